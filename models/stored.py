"""The files of catalogue entries in our own folder: where they lie, and how they get there whole."""

from __future__ import annotations

import os
from pathlib import Path

from .. import paths
from .entries import Entry


def place(entry: Entry) -> Path:
    """Where the file of the entry lies, or will lie once fetched."""
    return paths.models_dir() / entry.file


def find_stored(entry: Entry) -> Path | None:
    """The file of the entry if it is in our folder. Checks its first bytes and, where it is known, its size.

    Its hash was checked when it was fetched.
    """
    path = place(entry)
    try:
        with path.open("rb") as file:
            whole = entry.sha256 is None or os.fstat(file.fileno()).st_size == entry.size
            return path if whole and file.read(4) == b"GGUF" else None
    except OSError:
        return None


def publish(part: Path, entry: Entry) -> Path:
    """Move a whole and checked file into place; readers see all of it or none. Raises OSError."""
    target = place(entry)
    try:
        part.replace(target)
    except OSError:
        if find_stored(entry) is None:  # Windows: another process has fetched the file and is reading it
            raise
    if os.name == "posix":
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the rename, too, survives a power cut
        finally:
            os.close(folder)
    return target
