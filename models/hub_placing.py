"""Writing into the shared Hugging Face cache: one process at a time, each step whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from .hub_cache import hub_cache, is_commit

_PARTIAL = ".edgespec.incomplete"  # programs that clean the cache know the end of it
_ABANDONED_S = 14 * 86_400.0
_WAIT_S = 1.0  # between two looks at how far another process has come


def blob_path(folder: Path, etag: str) -> Path:
    """Where the bytes lie once they are whole. folder: of the repository."""
    return folder / "blobs" / etag


def partial_path(folder: Path, etag: str) -> Path:
    """Where they lie until then. Ours alone: other programs do not read or write it."""
    return folder / "blobs" / f"{etag}{_PARTIAL}"


def pointer_path(folder: Path, commit: str, path: str) -> Path:
    """The name under which all programs find a file of a commit. path: in the repository."""
    return folder.joinpath("snapshots", commit, *path.split("/"))


@contextlib.contextmanager
def locked(folder: Path, etag: str, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock that all programs hold while they download this content. waiting: called about every second.

    The system lets go of it when a process dies.
    """
    from filelock import Timeout
    from huggingface_hub.utils import WeakFileLock

    lock = hub_cache() / ".locks" / folder.name / f"{etag}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as held:
        while True:
            try:
                held.enter_context(WeakFileLock(lock, timeout=_WAIT_S))
                break
            except Timeout:
                waiting()
        yield


def publish(partial: Path, blob: Path) -> None:
    """Give checked content its name, for good."""
    partial.replace(blob)
    _sync(blob.parent)


def point(blob: Path, pointer: Path, *, fresh: bool) -> None:
    """Make `pointer` a relative link to `blob`. Where links cannot be made: the file itself, moved there if it is
    fresh, else copied, since it may be another name's."""
    pointer.parent.mkdir(parents=True, exist_ok=True)
    temporary = _beside(pointer)
    try:
        try:
            if os.environ.get("HF_HUB_DISABLE_SYMLINKS", "").upper() in ("1", "ON", "YES", "TRUE"):
                raise OSError("links are forbidden")
            temporary.symlink_to(os.path.relpath(blob, pointer.parent))
        except (OSError, NotImplementedError):
            if fresh:
                blob.replace(pointer)
                return
            shutil.copyfile(blob, temporary)
        temporary.replace(pointer)
    finally:
        temporary.unlink(missing_ok=True)
        _sync(pointer.parent)


def remember_revision(folder: Path, revision: str, commit: str) -> None:
    """Note which commit a branch or tag has."""
    if is_commit(revision):
        return
    reference = folder.joinpath("refs", *revision.split("/"))
    reference.parent.mkdir(parents=True, exist_ok=True)
    temporary = _beside(reference)
    temporary.write_text(commit, "utf-8")
    temporary.replace(reference)


def remove_abandoned(folder: Path) -> None:
    """Delete beginnings of files that nobody went on with for two weeks."""
    for partial in (folder / "blobs").glob(f"*{_PARTIAL}"):
        with contextlib.suppress(OSError):
            if time.time() - partial.stat().st_mtime > _ABANDONED_S:
                partial.unlink()


def _beside(path: Path) -> Path:
    """A name that no other thread of any process uses."""
    return path.with_name(f".{secrets.token_hex(8)}{_PARTIAL}")


def _sync(folder: Path) -> None:
    """Names, too, survive a power cut."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
