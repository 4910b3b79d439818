"""What a model name means: a path, a name of the catalogue, or a file on the Hub. Nothing here opens a connection."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..errors import BadRequestError, ModelNotFoundError
from ..paths import user_path
from .catalog import Catalog, Entry, HubSource, catalog
from .filenames import is_gguf, is_safe
from .hub_cache import find
from .hub_name import DEFAULT_QUANT, HubName
from .local import listed
from .quoting import quoted
from .stored import find_stored

HUB_HOSTS = ("huggingface.co", "hf.co")
FORMS = "a path, a name of the catalogue, or hf:user/repo:QUANT"

_OWNER = r"[\w.-]{1,96}"
_REVISION = r"refs/(?:pr|convert)/\w+|\w[\w.-]{0,94}"
_HUB = re.compile(
    rf"(?P<user>{_OWNER})/(?P<repo>{_OWNER})(?:@(?P<revision>{_REVISION}))?(?:/(?P<file>.+)|:(?P<quant>[^/:]+))?",
    re.ASCII | re.DOTALL,
)
_BARE_HUB = re.compile(rf"\w[\w.-]*/{_OWNER}(?:@(?:{_REVISION}))?:[^/\\:]+", re.ASCII)  # user/repo:QUANT: no such path
_QUANT = re.compile(r"[A-Z0-9][A-Z0-9_.-]{0,31}", re.ASCII)
_ENTRY = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)


@dataclass(frozen=True, slots=True)
class PathName:
    """A file of this machine."""

    path: Path

    @property
    def canonical(self) -> str:
        return os.fspath(self.path)


@dataclass(frozen=True, slots=True)
class CatalogueName:
    """A word that the catalogue may know, in lower case."""

    name: str

    @property
    def canonical(self) -> str:
        return self.name


Name = PathName | CatalogueName | HubName


def parse(name: str) -> Name:
    """What `name` is by its form alone; whether it exists is another question. `Name.canonical` parses to the same.

    Forms of a Hub name: hf:user/repo, hf:user/repo:QUANT, hf:user/repo/file.gguf, the same behind hf.co/ or
    huggingface.co/, user/repo:QUANT, and web addresses of a repository or a file; @revision may follow the repository.
    Raises BadRequestError for a Hub name that is none of these or leads out of its repository.
    """
    if (rest := _after_prefix(name)) is not None:
        return _hub_name(rest, name)
    if re.match(r"https?://", name, re.IGNORECASE):
        return _from_address(name)
    if _BARE_HUB.fullmatch(name):
        return _hub_name(name, name)
    lowered = name.lower()
    if _ENTRY.fullmatch(lowered) and not lowered.endswith(".gguf"):
        return CatalogueName(lowered)
    return PathName(user_path(name))


def resolve(name: str | None) -> Path:
    """The local file that `name` means; None: the starter model. A file that exists wins over any other meaning, and
    what `edgespec ls` calls a file comes last.

    Raises ModelNotFoundError, with the command that fetches it, where that file is not on this disk; BadRequestError
    as `parse` does; CatalogError where the user's own catalogue is wrong.
    """
    path = None if name is None else user_path(name)
    if name and path is not None and _exists(path) and not path.is_dir():
        return path
    entries = catalog()
    if name is None:
        return _of_entry(entries.starter, "no model is given and the starter model is not here")
    if (entry := entries.find(name)) is not None:  # a folder that happens to be called "starter" is not what it means
        return _of_entry(entry, f"{entry.name} is not here")
    if name and path is not None and _exists(path):
        return path
    parsed = parse(name)
    if not isinstance(parsed, HubName):
        if (model := listed(name)) is not None:
            return model.path
        raise unknown(name, entries)
    found = find(parsed, lenient=True)
    if found is None:
        raise ModelNotFoundError(f"{parsed.canonical} is not here; get it with `edgespec pull {parsed.canonical}`")
    return found


def find_file(entry: Entry) -> Path | None:
    """The file of a catalogue entry if it is on this disk: in our own folder or in the cache of the Hub."""
    if stored := find_stored(entry):
        return stored
    names = [hub_name(source, entry) for source in entry.sources if isinstance(source, HubSource)]
    return next((found for name in names if (found := find(name, lenient=False)) is not None), None)


def unknown(name: str, entries: Catalog) -> ModelNotFoundError:
    """The error for a name that is neither a file nor in the catalogue."""
    near = entries.nearest(name)
    meant = f"did you mean {near}?" if near else f"give {FORMS}"
    return ModelNotFoundError(f"no model {quoted(name)}: no such file, and not in the catalogue; {meant}")


def hub_name(source: HubSource, entry: Entry) -> HubName:
    """The Hub name of a catalogue entry's file at one of its sources."""
    return HubName(source.user, source.repo, file=source.file or entry.file, revision=source.revision)


def _of_entry(entry: Entry, missing: str) -> Path:
    found = find_file(entry)
    if found is None:
        raise ModelNotFoundError(
            f"{missing}; get it with `edgespec pull {entry.name}` or give the path of a .gguf file"
        )
    return found


def _after_prefix(name: str) -> str | None:
    for prefix in ("hf:", *(f"{host}/" for host in HUB_HOSTS)):
        if name[: len(prefix)].lower() == prefix:
            return name[len(prefix) :].removeprefix("//") if prefix == "hf:" else name[len(prefix) :]
    return None


def _hub_name(text: str, given: str) -> HubName:
    match = _HUB.fullmatch(text)
    if match is None:
        raise _refused(given, "it is not user/repo, user/repo:QUANT or user/repo/file.gguf")
    if {match["user"], match["repo"]} & {".", ".."}:
        raise _refused(given, "it leads out of the Hub")
    revision, file, quant = match["revision"] or "main", match["file"], match["quant"]
    if file is not None:
        parts = file.split("/")
        if any(part in ("", ".", "..") for part in parts):
            raise _refused(given, "its file leads out of the repository")
        if not all(is_safe(part) for part in parts):
            raise _refused(given, "its file has no name that every system allows")
        if not is_gguf(parts[-1]):
            raise _refused(given, "its file is not a .gguf file")
    if ".." in revision:  # git allows no such name
        raise _refused(given, f"{quoted(revision)} is no revision")
    if quant is not None and not _QUANT.fullmatch(quant.upper()):
        raise _refused(given, f"{quoted(quant)} is no quantization such as {DEFAULT_QUANT}")
    return HubName(match["user"], match["repo"], None if quant is None else quant.upper(), file, revision)


def _from_address(address: str) -> HubName:
    """https://HOST/user/repo[/(resolve|blob|raw|tree)/revision[/file]], with or without a query."""
    try:
        parts = urlsplit(address)
        host = (parts.hostname or "").removeprefix("www.")
    except ValueError:
        raise _refused(address, "it is not a web address") from None
    if host not in _hub_hosts():
        raise ModelNotFoundError(f"{quoted(address)} is not on the Hub; download the file and give its path")
    pieces = [unquote(piece) for piece in parts.path.strip("/").split("/")]
    if any("/" in piece and not re.fullmatch(_REVISION, piece) for piece in pieces):
        raise _refused(address, "it hides a path in %2F")
    user_repo, rest = "/".join(pieces[:2]), pieces[2:]
    if not rest:
        return _hub_name(user_repo, address)
    if rest[0] not in ("resolve", "blob", "raw", "tree") or len(rest) < 2:
        raise _refused(address, "it is not the address of a repository or a file in it")
    return _hub_name("/".join([f"{user_repo}@{rest[1]}", *rest[2:]]), address)


def _hub_hosts() -> tuple[str, ...]:
    try:
        own = urlsplit(os.environ.get("HF_ENDPOINT", "")).hostname
    except ValueError:
        own = None
    return (*HUB_HOSTS, own) if own else HUB_HOSTS


def _refused(given: str, why: str) -> BadRequestError:
    return BadRequestError(f"{quoted(given)} is no name of a model: {why}; give {FORMS}")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # unreadable folders are reported when the file is opened; ValueError: a NUL
        return False
