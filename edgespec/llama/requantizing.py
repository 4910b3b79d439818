"""Requantizing in a child process: llama.cpp works for minutes and cannot be stopped, a process can.

`python -m edgespec.llama.requantizing SOURCE DESTINATION TYPE pure|mixed [EMBEDDINGS]` is that child.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

from ..errors import EdgeSpecError
from .quantize import partial_file, requantize

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
            stdin=subprocess.PIPE,  # never written to: it ends when this process does, however that comes about
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
        partial = partial_file(destination, child.pid)
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
            if child.stdin is not None:
                child.stdin.close()
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
    """Requantize; on failure say why in one line on standard error. The end of standard input ends it."""
    threading.Thread(target=_die_with_parent, args=[partial_file(Path(destination), os.getpid())], daemon=True).start()
    try:
        requantize(Path(source), Path(destination), file_type, pure=mixture == "pure", embeddings=embeddings)
    except EdgeSpecError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _die_with_parent(partial: Path) -> None:
    while os.read(0, 1):  # not sys.stdin: its lock would be held when this process ends by itself
        pass
    with contextlib.suppress(OSError):
        partial.unlink()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
