"""Which draft goes with a target: what `edgespec pair` found best here, else the catalogue's partner, if it is here."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path

from .. import paths
from ..errors import EdgeSpecError
from .catalog import catalog
from .compat import compatible
from .header import Header, read_header
from .identity import file_identity
from .names import find_file, resolve
from .quoting import one_line

log = logging.getLogger(__name__)

_IDENTITY = 32  # characters of it that name a file


@dataclass(frozen=True, slots=True)
class Partner:
    """The draft for a target. line: one for the user, on which it is and why."""

    path: Path
    line: str


@dataclass(frozen=True, slots=True)
class Pairing:
    """What is remembered for a target. draft: None where none paid.  measured: not only predicted."""

    draft: Path | None
    measured: bool


def draft_file(draft: str, target: Path) -> tuple[Path | None, str | None]:
    """The file of the draft that is named, and a line for the user where "auto" named it. Raises as `resolve`."""
    if draft != "auto":
        return resolve(draft), None
    found = partner(read_header(target))
    return (None, None) if found is None else (found.path, found.line)


def partner(target: Header) -> Partner | None:
    """The draft that --draft auto means for this file, or None: none is known, or none that is here and fits.

    Raises nothing: a draft that cannot be used is as good as none, and is logged.
    """
    try:
        if (known := pairing(target)) is not None:
            path, why = known.draft, "`edgespec pair` found it best here"
        else:
            path, why = _catalogued(target), "the catalogue's partner"
        if path is None:
            return None
        verdict = compatible(target, read_header(path))
    except (EdgeSpecError, OSError) as error:
        log.warning("going on without a draft model: %s", error)
        return None
    if verdict.ok:
        return Partner(path, f"drafting with {one_line(path.name)}, {why} (--draft none: without)")
    log.warning("%s cannot draft for %s: %s", one_line(path.name), one_line(target.path.name), verdict.reason)
    return None


def remember(target: Header, draft: Header | None, *, measured: bool) -> None:
    """From now on this draft is the target's partner; None: no draft is. Raises OSError."""
    record = {
        "target": os.fspath(target.path.absolute()),
        "draft": None if draft is None else os.fspath(draft.path.absolute()),
        "identity": None if draft is None else file_identity(draft)[:_IDENTITY],
        "measured": measured,
    }
    paths.write_whole(_file(target), json.dumps(record))


def forget(target: Header) -> bool:
    """Forget the partner; False where none was remembered. Raises OSError."""
    there = _file(target).exists()
    _file(target).unlink(missing_ok=True)
    return there


def remembered(target: Header) -> Path | None:
    """The draft that was remembered for this file, if it is still there and still the same."""
    known = pairing(target)
    return None if known is None else known.draft


def pairing(target: Header) -> Pairing | None:
    """What was remembered for this file, unless the draft is gone or another file now."""
    if not _folder().is_dir():  # the usual case costs nothing
        return None
    try:
        record = json.loads(_file(target).read_text("utf-8"))
        draft, identity, measured = record["draft"], record["identity"], bool(record["measured"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        log.warning("the pair remembered for %s is damaged; run `edgespec pair` again", one_line(target.path.name))
        return None
    if draft is None:
        return Pairing(None, measured)
    path = Path(str(draft))
    try:
        if file_identity(read_header(path))[:_IDENTITY] == identity:
            return Pairing(path, measured)
        changed = "is another file now"
    except (EdgeSpecError, OSError, ValueError):
        changed = "is not there any more"
    log.warning("the remembered draft %s %s; run `edgespec pair` again", one_line(path.name), changed)
    return None


def _catalogued(target: Header) -> Path | None:
    entries = catalog()
    entry = entries.of_file(target.path)
    draft = None if entry is None else entries.partner(entry)
    return None if draft is None else find_file(draft)


def _folder() -> Path:
    return paths.home() / "pairs"


def _file(target: Header) -> Path:
    return _folder() / f"{file_identity(target)[:_IDENTITY]}.json"
