"""Deleting a model that we may delete: one in our own folder, or in the Hub cache, which is there to be shared."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import BadRequestError, EdgeSpecError
from . import usage
from .local import LocalModel, file_number, local_models
from .names import resolve
from .quoting import quoted

_MAY = ("edgespec", "hub cache")


@dataclass(frozen=True, slots=True)
class Removal:
    """What deleting a model takes. files: names that go, links too.  freed: bytes."""

    model: LocalModel
    files: tuple[Path, ...]
    freed: int


def find_local(name: str) -> LocalModel:
    """The model that `name` means, among those that `edgespec ls` lists.

    Raises as `names.resolve` does, BadRequestError for a file that is not listed.
    """
    path = resolve(name)
    number = file_number(path)
    found = next((m for m in local_models() if number in map(file_number, m.parts)), None)
    if found is None:
        raise BadRequestError(f"{quoted(path)} lies in no folder that `edgespec ls` looks in; delete it yourself")
    return found


def plan(model: LocalModel) -> Removal:
    """What would be deleted. Raises BadRequestError for another program's file, EdgeSpecError for one in use."""
    if model.origin not in _MAY:
        owner = {"lm studio": "LM Studio", "llama.cpp": "llama.cpp"}[model.origin]
        raise BadRequestError(f"{quoted(model.path)} belongs to {owner}; delete it there")
    if pids := sorted({pid for part in model.parts for pid in usage.users(part)}):
        processes = f"process{'' if len(pids) == 1 else 'es'} {', '.join(map(str, pids))}"
        raise EdgeSpecError(f"{model.name} is loaded by a running edgespec ({processes}); end that first")
    files = tuple(path for part in model.parts for path in _behind(part, model))
    return Removal(model, files, sum(path.lstat().st_size for path in files if not path.is_symlink()))


def remove(removal: Removal) -> None:
    """Do it. A file that is gone already is no error. Raises OSError."""
    for path in removal.files:
        usage.forget(path)
        path.unlink(missing_ok=True)
    if removal.model.origin == "hub cache":
        for part in removal.model.parts:
            _remove_empty(part.parent)


def _behind(part: Path, model: LocalModel) -> Iterator[Path]:
    """The file by its name; in the Hub cache also the bytes behind the link, where no other link needs them."""
    yield part
    repo = _repo(part)
    if model.origin != "hub cache" or repo is None or not part.is_symlink():
        return
    blob = part.resolve()
    if blob.parent == (repo / "blobs").resolve() and not _linked_elsewhere(blob, part, repo):
        yield blob


def _linked_elsewhere(blob: Path, part: Path, repo: Path) -> bool:
    for folder, _, files in os.walk(repo / "snapshots"):
        for file in files:
            path = Path(folder) / file
            if path != part and path.is_symlink() and path.resolve() == blob:
                return True
    return False


def _repo(part: Path) -> Path | None:
    return next((p.parent for p in part.parents if p.name == "snapshots"), None)


def _remove_empty(folder: Path) -> None:
    """Delete folders that hold nothing any more, up to the list of snapshots."""
    with contextlib.suppress(OSError):
        while folder.name != "snapshots":
            folder.rmdir()
            folder = folder.parent
