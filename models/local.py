"""The GGUF models on this disk: in our folder, in the Hub cache, in LM Studio's and llama.cpp's folders. Read only.

Nothing is opened here, so damaged files cost nothing. Folders that are links are not entered, so no loop is walked;
a file is listed once, however many names it has.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import platformdirs

from .. import paths
from ..errors import BadRequestError, EdgeSpecError
from .catalog import Catalog, catalog
from .hub_cache import hub_cache
from .hub_files import RepoFile, models_of, part_paths
from .hub_name import HubName
from .quoting import one_line, quoted

log = logging.getLogger(__name__)

Origin = Literal["edgespec", "hub cache", "lm studio", "llama.cpp"]

MOST_ENTRIES = 50_000  # files and folders of one place that are looked at
_DEEPEST = 8  # folders below a place


@dataclass(frozen=True, slots=True)
class LocalModel:
    """path: the file, of a split model the first part.  parts: all files, `path` first.  size: bytes of all parts.

    origin: whose folder it lies in.  name: what to call it in a command.
    """

    path: Path
    origin: Origin
    size: int
    name: str
    parts: tuple[Path, ...]


def places() -> tuple[tuple[Origin, Path], ...]:
    """Where models are looked for, in this order."""
    found: list[tuple[Origin, Path]] = [("edgespec", paths.models_dir()), ("hub cache", hub_cache())]
    found += [("lm studio", folder) for folder in _lm_studio()]
    return (*found, ("llama.cpp", _llama_cpp()))


def local_models() -> tuple[LocalModel, ...]:
    """All models found, by place and name. A folder that cannot be read is left out."""
    entries = _entries()
    seen: set[tuple[int, int]] = set()
    found: list[LocalModel] = []
    for origin, folder in places():
        there = _hub_models(folder) if origin == "hub cache" else _models_in(folder, origin, entries)
        for model in sorted(there, key=lambda m: (m.name.lower(), os.fspath(m.path))):
            identity = file_number(model.path)
            if identity is not None and identity not in seen:
                seen.add(identity)
                found.append(model)
    return tuple(found)


def listed(name: str) -> LocalModel | None:
    """The model that has this name in the list, or whose file has it; None where none has.

    Raises BadRequestError where several have it.
    """
    models, lowered = local_models(), name.lower()
    found = [model for model in models if model.name.lower() == lowered]
    found = found or [m for m in models if lowered in (m.path.name.lower(), m.path.stem.lower())]
    if len(found) > 1:
        files = ", ".join(quoted(model.path) for model in found)
        raise BadRequestError(f"{quoted(name)} could be {files}; give the path of the one that you mean")
    return found[0] if found else None


def origin_of(path: Path) -> Origin | None:
    """Whose folder a file lies in; None: in none of the places."""
    for origin, folder in places():
        for file, root in ((path.absolute(), folder.absolute()), (path.resolve(), folder.resolve())):
            if file.is_relative_to(root):
                return origin
    return None


def whole_size(path: Path) -> int:
    """Bytes of a model, of which `path` is the file or a part; parts that are not there count for nothing."""
    parts = (path.with_name(name) for name in part_paths(path.name))
    return sum(part.stat().st_size for part in parts if file_number(part) is not None)


def _lm_studio() -> Iterator[Path]:
    home = _home()
    if home is None:
        return
    try:  # where the user has moved its folder to
        moved = (home / ".lmstudio-home-pointer").read_text("utf-8")[:4096].strip()
    except (OSError, UnicodeDecodeError):
        moved = ""
    folders = [Path(moved)] if moved and "\0" not in moved else []
    for folder in dict.fromkeys((*folders, home / ".lmstudio", home / ".cache" / "lm-studio")):
        yield folder / "models"


def _llama_cpp() -> Path:
    if folder := os.environ.get("LLAMA_CACHE"):
        return Path(folder)
    kind = platformdirs.user_data_dir if sys.platform == "win32" else platformdirs.user_cache_dir
    return Path(kind("llama.cpp", appauthor=False))


def _home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:  # nobody's, as in some containers
        return None


def _entries() -> Catalog | None:
    try:
        return catalog()
    except EdgeSpecError as error:  # a mistake in the user's catalogue hides no file
        log.warning("%s", error)
        return None


def _models_in(folder: Path, origin: Origin, entries: Catalog | None) -> Iterator[LocalModel]:
    for _, model in _whole_models(folder, origin):
        entry = None if entries is None or origin != "edgespec" else entries.of_file(model.path)
        name = one_line(model.path.stem if entry is None else entry.name)
        yield LocalModel(model.path, origin, model.size, name, model.parts)


def _hub_models(cache: Path) -> Iterator[LocalModel]:
    """Named as the Hub names them: by the quantization, or by the file where several have the same one."""
    for repo in sorted(_folders(cache)):
        kind, _, rest = repo.name.partition("--")
        user, _, name = rest.partition("--")
        for commit, snapshot in _snapshots(repo) if kind == "models" else ():
            found = list(_whole_models(snapshot, "hub cache"))
            quants = [quant for quant, _ in found]
            for quant, model in found:
                file = None if quant is not None and quants.count(quant) == 1 else _within(model.path, snapshot)
                try:
                    called = HubName(user, name, None if file else quant, file, commit).canonical
                except BadRequestError:  # a folder that the Hub did not name
                    called = one_line(model.path.stem)
                yield LocalModel(model.path, model.origin, model.size, called, model.parts)


def _snapshots(repo: Path) -> list[tuple[str, Path]]:
    """(revision, folder) of all snapshots, that of the default branch first; the only one stands for that too."""
    try:
        main = (repo / "refs" / "main").read_text("utf-8")[:100].strip()
    except (OSError, UnicodeDecodeError):
        main = ""
    folders = sorted(_folders(repo / "snapshots"), key=lambda folder: (folder.name != main, folder.name))
    return [("main" if f.name == main or len(folders) == 1 else f.name, f) for f in folders]


def _whole_models(folder: Path, origin: Origin) -> Iterator[tuple[str | None, LocalModel]]:
    """(quantization by its name, model) of all models in a folder; its name is that of the file."""
    sizes = dict(_files(folder))
    for model in models_of(RepoFile(path, size) for path, size in sizes.items()):
        parts = tuple(folder / part.path for part in model.parts)
        yield model.quant, LocalModel(parts[0], origin, model.size or 0, parts[0].stem, parts)


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    """(path within the folder, bytes) of the files that end in .gguf."""
    waiting, left = [(folder, 0)], MOST_ENTRIES
    while waiting:
        place, depth = waiting.pop()
        inside = _inside(place, left + 1)
        if len(inside) > left:
            log.warning("%s holds more than %d files; the rest is not looked at", quoted(folder), MOST_ENTRIES)
        for entry in inside[:left]:
            try:
                if entry.is_dir(follow_symlinks=False) and depth < _DEEPEST:
                    waiting.append((Path(entry.path), depth + 1))
                elif entry.name.lower().endswith(".gguf") and stat.S_ISREG((status := entry.stat()).st_mode):
                    yield _within(Path(entry.path), folder), status.st_size
            except OSError:  # a link to nothing or to itself, or gone meanwhile
                continue
        left -= len(inside)
        if left < 0:
            return


def _folders(folder: Path) -> list[Path]:
    """The folders in one, not those that are links."""
    found = []
    for entry in _inside(folder, MOST_ENTRIES):
        with contextlib.suppress(OSError):
            if entry.is_dir(follow_symlinks=False):
                found.append(Path(entry.path))
    return found


def _inside(folder: Path, most: int) -> list[os.DirEntry[str]]:
    """What a folder holds, at most so much of it; nothing where it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return sorted(itertools.islice(entries, most), key=lambda entry: entry.name)
    except (OSError, ValueError):
        return []


def _within(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def file_number(path: Path) -> tuple[int, int] | None:
    """What all names of one file share; None where there is no such file."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None
