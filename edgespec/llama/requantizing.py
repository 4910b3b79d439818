"""Requantizing in a child process: llama.cpp works for minutes and cannot be stopped, a process can.

`python -m edgespec.llama.requantizing SOURCE DESTINATION TYPE pure|mixed [EMBEDDINGS]` is that child.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from ..errors import EdgeSpecError
from .quantize import requantize

_POLL_S = 0.1


def requantize_apart(
    source: Path,
    destination: Path,
    file_type: str,
    *,
    pure: bool,
    embeddings: str | None,
    nbytes: int,
    progress: Callable[[float], None] | None = None,
) -> Path:
    """quantize.requantize() in a child process. An exception here, such as Ctrl+C, ends it and removes what it wrote.

    nbytes: what the result will take, for progress (0.0 to 1.0). Raises EdgeSpecError.
    """
    arguments = [str(source), str(destination), file_type, "pure" if pure else "mixed"]
    arguments += [] if embeddings is None else [embeddings]
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "edgespec.llama.requantizing", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
        partial = destination.with_name(f"{destination.name}.{child.pid}.part")  # as requantize() calls it
        try:
            while True:
                try:
                    code = child.wait(_POLL_S)
                    break
                except subprocess.TimeoutExpired:
                    if progress:
                        progress(min(1.0, _size(partial) / max(1, nbytes)))
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
            partial.unlink(missing_ok=True)
        if code:
            why = _last_line(log) if code == 1 else ""  # else a signal ended it, as where memory ran out
            raise EdgeSpecError(why or f"cannot requantize {source.name} to {file_type}: its process ended with {code}")
    return destination


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # not begun, or done
        return 0


def _last_line(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def main(source: str, destination: str, file_type: str, mixture: str, embeddings: str | None = None) -> int:
    """Requantize; on failure say why in one line on standard error."""
    try:
        requantize(Path(source), Path(destination), file_type, pure=mixture == "pure", embeddings=embeddings)
    except EdgeSpecError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
