"""The catalogue: which models we know by name, and which draft goes with which target.

models/catalog.toml is the shipped one. The user's own `catalog.toml`, in the config folder, has the same form and is
laid over it: its entry replaces the shipped one of the same name.
"""

from __future__ import annotations

import difflib
import functools
from dataclasses import dataclass
from pathlib import Path

from .. import paths
from .catalog_file import check_drafts, read_entries
from .entries import Entry, HubSource, Role, Source, SuggestedSampling, WheelSource

__all__ = [
    "MACHINES_GB",
    "STARTER",
    "Catalog",
    "Entry",
    "HubSource",
    "Role",
    "Source",
    "SuggestedSampling",
    "WheelSource",
    "catalog",
    "overlay_path",
]

STARTER = "smollm2-135m"  # what is run where no model is named
MACHINES_GB = (4, 8, 16, 32, 64)  # sizes of memory that the shipped catalogue has pairs for
_SHIPPED = Path(__file__).with_name("catalog.toml")


@dataclass(frozen=True, slots=True)
class Catalog:
    """All entries, the user's first. Names are found in any case."""

    entries: tuple[Entry, ...]

    def find(self, name: str) -> Entry | None:
        """The entry of this name or alias."""
        wanted = name.lower()
        return next((e for e in self.entries if wanted == e.name or wanted in e.aliases), None)

    def partner(self, entry: Entry) -> Entry | None:
        """The entry that drafts for this one."""
        return None if entry.draft is None else self.find(entry.draft)

    def of_file(self, path: Path) -> Entry | None:
        """The entry that this file is: by its name and, where that is known exactly, its size."""
        try:
            size = path.stat().st_size
        except (OSError, ValueError):  # ValueError: a NUL in the path
            return None
        named = (e for e in self.entries if e.file == path.name)
        return next((e for e in named if e.sha256 is None or e.size == size), None)

    def nearest(self, name: str) -> str | None:
        """The known name that is most like this one, if any is."""
        known = [name for entry in self.entries for name in (entry.name, *entry.aliases)]
        return next(iter(difflib.get_close_matches(name.lower()[:64], known, n=1, cutoff=0.7)), None)

    @property
    def starter(self) -> Entry:
        """The model that is run where none is named."""
        found = self.find(STARTER)
        assert found is not None  # shipped, and an overlay can replace it but not remove it
        return found


def overlay_path() -> Path:
    """Where the user's own catalogue lies, if there is one."""
    return paths.config_dir() / "catalog.toml"


def catalog(overlay: Path | None = None) -> Catalog:
    """The shipped catalogue under the user's own. overlay: another file than the one in the config folder.

    Raises CatalogError, with file, entry and field, where the user's is wrong.
    """
    shipped = _shipped()
    path = overlay_path() if overlay is None else overlay
    own = read_entries(path) if overlay is not None or path.is_file() else ()
    taken = {name for entry in own for name in (entry.name, *entry.aliases)}
    entries = (*own, *(entry for entry in shipped if entry.name not in taken))
    check_drafts(entries, own, path)
    return Catalog(entries)


@functools.cache
def _shipped() -> tuple[Entry, ...]:
    entries = read_entries(_SHIPPED)
    check_drafts(entries, entries, _SHIPPED)
    return entries
