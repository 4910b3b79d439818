"""Models of the Hugging Face Hub: found in the cache that all programs share, and fetched into it.

find_cached() never uses the network. list_files() and fetch() do, fetch() only for what is not here.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..errors import DamagedDownloadError, EdgeSpecError, ModelLoadError, NoSpaceError, OfflineError
from . import hub_cache
from .header import read_header
from .hub_client import HubClient, Patience, RemoteFile
from .hub_download import check, download
from .hub_files import RepoModel, choose, models_of, part_paths
from .hub_name import HubName
from .hub_placing import (
    blob_path,
    locked,
    partial_path,
    point,
    pointer_path,
    publish,
    remember_revision,
    remove_abandoned,
)
from .quoting import one_line, quoted

__all__ = ["HubName", "Patience", "Progress", "RepoModel", "choose", "fetch", "find_cached", "list_files"]

SPARE = 50_000_000  # bytes to leave free on the disk

# Stage ("download", "check", or "wait" while another process downloads), bytes done, bytes in all.
Progress = Callable[[str, int, int], None]


def find_cached(name: HubName) -> Path | None:
    """The model's file on this disk (of a split model its first part), or None."""
    return hub_cache.find(name, lenient=True)


def list_files(name: HubName, *, offline: bool = False, patience: Patience | None = None) -> tuple[RepoModel, ...]:
    """The models that a repository has, asked of the Hub. Raises as fetch() does."""
    return models_of(_client(name, offline, patience).list_files(name))


def fetch(
    name: HubName,
    *,
    progress: Progress | None = None,
    offline: bool = False,
    sha256: str | None = None,
    patience: Patience | None = None,
) -> Path:
    """Download a model unless it is here; the path of its file, or of its first part. Several processes may do it.

    offline: use no network this time. Where the user forbids it for good (HF_HUB_OFFLINE), a name without quantization
    is also the only model of the repository that is here.  sha256: what the file must have, beyond being what the Hub
    has.  Raises OfflineError, GatedError, ModelNotFoundError, DownloadError, NoSpaceError, DamagedDownloadError, and
    EdgeSpecError where the cache cannot be written. None of them gives a name to a file that is not whole; after
    DownloadError and Ctrl+C what has arrived is kept aside, and the next fetch goes on from there.
    """
    found = hub_cache.find(name, lenient=hub_cache.offline())
    whole = found is not None and _is_whole(found)
    if found is not None and whole and _has_hash(found, sha256):
        return found
    client = _client(name, offline, patience)
    files = _describe(client, name)
    if sha256 is not None and (len(files) != 1 or files[0].etag != sha256):
        raise DamagedDownloadError(
            f"{quoted(files[0].path)} in {name.repo_id} is no longer the file that is listed under this name (SHA-256"
            f" {sha256[:12]}...); to have it as it is now, fetch it by its own name"
        )
    folder = hub_cache.repo_folder(name)
    job = _Job(client, name, folder, files, progress or (lambda stage, done, total: None), found is not None)
    try:
        return job.run()
    except OSError as error:
        raise EdgeSpecError(
            f"cannot write {quoted(folder)}: {one_line(error.strerror or str(error))};"
            " make that folder writable or point HF_HUB_CACHE at another one"
        ) from error


@dataclass(frozen=True, slots=True)
class _Job:
    """files: of one model, in order.  suspect: what is here under their names was found damaged."""

    client: HubClient
    name: HubName
    folder: Path
    files: tuple[RemoteFile, ...]
    progress: Progress
    suspect: bool

    def run(self) -> Path:
        """Download, place, and give the path of the first file."""
        (self.folder / "blobs").mkdir(parents=True, exist_ok=True)
        remove_abandoned(self.folder)
        self._require_space()
        before = 0
        for file in self.files:
            self._get(file, before)
            before += file.size
        remember_revision(self.folder, self.name.revision, self.files[0].commit)
        return self._pointer(self.files[0])

    def _get(self, file: RemoteFile, before: int) -> None:
        """Have one file under its name. before: bytes of the files ahead of it."""
        total = sum(other.size for other in self.files)
        blob, partial = blob_path(self.folder, file.etag), partial_path(self.folder, file.etag)

        def report(stage: str, done: int) -> None:
            self.progress(stage, before + done, total)

        with locked(self.folder, file.etag, lambda: report("wait", min(_size(partial), file.size))):
            if not self._is_here(self._pointer(file), file):
                fresh = not self._is_here(blob, file)
                if fresh:
                    download(self.client, self.name, file, partial, report)
                    publish(partial, blob)
                point(blob, self._pointer(file), fresh=fresh)
        report("download", file.size)

    def _is_here(self, path: Path, file: RemoteFile) -> bool:
        if _size(path) != file.size:
            return False
        if self.suspect:
            try:
                check(file, path, lambda stage, done: None)
            except DamagedDownloadError:
                return False
        return True

    def _require_space(self) -> None:
        needed = SPARE
        for file in self.files:
            if not any(_size(p) == file.size for p in (self._pointer(file), blob_path(self.folder, file.etag))):
                needed += max(0, file.size - _size(partial_path(self.folder, file.etag)))
        free = shutil.disk_usage(self.folder).free
        if needed > SPARE and free < needed:
            raise NoSpaceError(
                f"{self.name.repo_id} needs {needed / 1e6:,.0f} MB free in {quoted(self.folder.parent)}, which has"
                f" {free / 1e6:,.0f} MB; free some space or point HF_HUB_CACHE at another disk"
            )

    def _pointer(self, file: RemoteFile) -> Path:
        return pointer_path(self.folder, file.commit, file.path)


def _client(name: HubName, offline: bool, patience: Patience | None) -> HubClient:
    if offline or hub_cache.offline():
        why = "as was asked" if offline else "HF_HUB_OFFLINE is set"
        raise OfflineError(
            f"{name.repo_id} is not whole in {quoted(hub_cache.hub_cache())}, and the network is not used ({why});"
            " fetch it where the network may be used"
        )
    return HubClient(patience or Patience())


def _describe(client: HubClient, name: HubName) -> tuple[RemoteFile, ...]:
    """The files of the model that `name` means, all at one commit."""
    if name.file is not None:
        paths = part_paths(name.file)
    else:
        paths = tuple(part.path for part in choose(models_of(client.list_files(name)), name).parts)
    first = client.describe(name, paths[0], name.revision)
    return (first, *(client.describe(name, path, first.commit) for path in paths[1:]))


def _is_whole(path: Path) -> bool:
    """As far as headers tell: a file cut off by some other program is not."""
    try:
        for part in part_paths(path.name):
            read_header(path.with_name(part))
    except ModelLoadError:
        return False
    return True


def _has_hash(path: Path, sha256: str | None) -> bool:
    """Blobs are called by their hash. A file without a link has none to tell."""
    blob = path.resolve().name
    return sha256 is None or len(blob) != 64 or blob == sha256


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
