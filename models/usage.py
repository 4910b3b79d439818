"""Which model files are loaded by running programs of ours, and when each was last loaded.

A program notes what it has loaded in a file of its own under `home()/running`. The note of a program that was killed
counts for nothing: its process number is gone, or belongs to a process that began at another time. Files that lie in
none of the places that `models.local` looks in are not noted.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path

import psutil

from .. import paths
from .local import file_number, origin_of

log = logging.getLogger(__name__)

_SAME_START_S = 60.0  # the start of a process is reckoned from the machine's clock, which may be set
_numbers = itertools.count()


class Lease:
    """Model files that this process has loaded, until `end`."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._note: Path | None = None
        listed = [file for file in files if origin_of(file) is not None]
        numbers = [number for number in map(file_number, listed) if number is not None]
        if not numbers:
            return
        note = _running() / f"{os.getpid()}-{next(_numbers)}.json"
        record = {"pid": os.getpid(), "started": psutil.Process().create_time(), "files": numbers}
        try:
            paths.write_whole(note, json.dumps(record))
            self._note = note
            for file in listed:
                _stamp(file).parent.mkdir(parents=True, exist_ok=True)
                _stamp(file).touch()
        except OSError as error:
            log.info("what is loaded is not noted: %s", error)

    def end(self) -> None:
        """The files are no longer loaded. May be called again."""
        if self._note is not None:
            self._note.unlink(missing_ok=True)
            self._note = None


def users(file: Path) -> tuple[int, ...]:
    """Numbers of the processes that have the file loaded."""
    number = file_number(file)
    found = set()
    for note in _running().glob("*.json"):
        try:
            record = json.loads(note.read_text("utf-8"))
            pid, started = int(record["pid"]), float(record["started"])
            files = [tuple(entry) for entry in record["files"]]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if not _runs(pid, started):
            note.unlink(missing_ok=True)
        elif number in files:
            found.add(pid)
    return tuple(sorted(found))


def last_used(file: Path) -> float | None:
    """When the file was last loaded, in seconds since 1970; None: never, as far as is known."""
    try:
        return _stamp(file).stat().st_mtime
    except OSError:
        return None


def forget(file: Path) -> None:
    """The file is gone: forget when it was used."""
    _stamp(file).unlink(missing_ok=True)


def _runs(pid: int, started: float) -> bool:
    try:
        return abs(psutil.Process(pid).create_time() - started) < _SAME_START_S
    except psutil.AccessDenied:
        return True
    except (psutil.Error, ValueError, OverflowError):
        return False


def _running() -> Path:
    return paths.home() / "running"


def _stamp(file: Path) -> Path:
    name = hashlib.sha256(os.fsencode(file.resolve())).hexdigest()[:32]
    return paths.cache_dir() / "used" / name
