"""The Hugging Face cache on this disk, shared with other programs: where it lies and what is in it. Local only.

    HUB_CACHE/models--USER--REPO/refs/REVISION                  the commit that a branch or tag had
                                 snapshots/COMMIT/FOLDER/FILE   a link to
                                 blobs/ETAG                     the bytes
    HUB_CACHE/.locks/models--USER--REPO/ETAG.lock

The library of the Hub is not imported: finding a model must be quick.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from ..errors import ModelNotFoundError
from ..paths import user_path
from .hub_files import RepoFile, RepoModel, choose, models_of, part_paths
from .hub_name import DEFAULT_QUANT, HubName

_TRUE = ("1", "ON", "YES", "TRUE")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_MOST_FILES = 10_000  # of one snapshot that are looked at


def hub_cache() -> Path:
    """The folder of the cache: HF_HUB_CACHE, else hub/ in HF_HOME, else the platform-independent default."""
    if cache := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return _expanded(cache)
    home = os.environ.get("HF_HOME") or str(Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    return _expanded(home) / "hub"


def offline() -> bool:
    """True where the user forbids the network: HF_HUB_OFFLINE, or TRANSFORMERS_OFFLINE in its place."""
    return (os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or "").upper() in _TRUE


def repo_folder(name: HubName) -> Path:
    """Where the files of the repository lie, or will lie. The Hub does not mind the case of names; disks may."""
    exact = hub_cache() / f"models--{name.user}--{name.repo}"
    if exact.is_dir():
        return exact
    try:
        alike = [path for path in hub_cache().iterdir() if path.name.lower() == exact.name.lower()]
    except OSError:
        return exact
    return alike[0] if alike else exact


def is_commit(revision: str) -> bool:
    """True for a full commit hash: what it names never changes."""
    return _COMMIT.fullmatch(revision) is not None


def find(name: HubName, *, lenient: bool) -> Path | None:
    """The model that `name` means, whole, or None: its file, of a split model the first part.

    lenient: with neither file nor quant said, a repository of which one model is here means that model; what the Hub
    has besides is not known here.
    """
    for snapshot in _snapshots(name):
        model = _model_in(snapshot, name, lenient)
        if model is not None:
            return snapshot.joinpath(*model.parts[0].path.split("/"))
    return None


def _snapshots(name: HubName) -> Iterator[Path]:
    """The snapshot of the revision; for the default branch then all others, the newest first.

    Another program may have moved the branch on with a file that is no model.
    """
    folder = repo_folder(name)
    if is_commit(name.revision):
        yield folder / "snapshots" / name.revision
        return
    try:
        commit = folder.joinpath("refs", *name.revision.split("/")).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        commit = ""
    if is_commit(commit):
        yield folder / "snapshots" / commit
    if name.revision == "main":
        try:
            others = [path for path in (folder / "snapshots").iterdir() if path.name != commit and is_commit(path.name)]
            yield from sorted(others, key=lambda path: path.stat().st_mtime, reverse=True)
        except OSError:
            return


def _model_in(snapshot: Path, name: HubName, lenient: bool) -> RepoModel | None:
    if name.file is not None:
        paths = part_paths(name.file)
        whole = all(_is_model(snapshot.joinpath(*path.split("/"))) for path in paths)
        return RepoModel(name.quant, tuple(map(RepoFile, paths))) if whole else None
    models = models_of(RepoFile(path) for path in _files(snapshot))
    if name.quant is None and not lenient:
        models = tuple(model for model in models if model.quant in (DEFAULT_QUANT, f"UD-{DEFAULT_QUANT}"))
    try:
        return choose(models, name)
    except ModelNotFoundError:
        return None


def _files(snapshot: Path) -> Iterator[str]:
    """Paths of GGUF files in a snapshot, with "/"."""
    seen = 0
    for folder, _, files in os.walk(snapshot):
        for file in files:
            seen += 1
            if seen > _MOST_FILES:
                return
            path = Path(folder) / file
            if file.lower().endswith(".gguf") and _is_model(path):
                yield path.relative_to(snapshot).as_posix()


def _is_model(path: Path) -> bool:
    """False also for a link to nothing, and for what is no GGUF."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except (OSError, ValueError):
        return False


def _expanded(path: str) -> Path:
    return user_path(os.path.expandvars(path))
