"""Which heads belong to which model file, by its identity (models.identity): a record of ours, else those shipped.

A file may have heads of several kinds, one of each.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

import edgespec.models
from edgespec.models.header import Header
from edgespec.models.identity import file_identity
from edgespec.models.quoting import quoted

from ..errors import ModelNotFoundError
from ..paths import home, user_path, write_whole

log = logging.getLogger(__name__)

NONE, AUTO = "none", "auto"
MEDUSA, EAGLE = "medusa", "eagle"
_IDENTITY = 32  # characters of it that name the record
_SHIPPED = Path(edgespec.models.__file__).parent / "heads"


def register(identity: str, path: Path, kind: str = MEDUSA) -> None:
    """From now on "auto" finds the heads in `path` for the model file of this identity. Raises OSError."""
    record = _record(identity)
    try:
        known = json.loads(record.read_text("utf-8"))
    except (OSError, ValueError):
        known = {}
    known = known if isinstance(known, dict) else {}
    write_whole(record, json.dumps(known | {kind: str(path.absolute())}))


def registered(header: Header, kind: str = MEDUSA) -> Path | None:
    """The heads that were registered for this file and are still there, else those that come with EdgeSpec."""
    identity = file_identity(header)
    return _recorded(identity, kind) or (shipped(identity) if kind == MEDUSA else None)


def shipped(identity: str) -> Path | None:
    """The heads for a model file of this identity that come with EdgeSpec."""
    path = _SHIPPED / f"{identity[:_IDENTITY]}.safetensors"
    return path if path.is_file() else None


def is_shipped(path: Path) -> bool:
    """Do these heads come with EdgeSpec?"""
    return path.parent == _SHIPPED


def _recorded(identity: str, kind: str) -> Path | None:
    record = _record(identity)
    try:
        known = json.loads(record.read_text("utf-8"))
        path = Path(known[kind]) if kind in known or not known else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        log.warning("%s is damaged; going on without heads. Convert or train them again", quoted(record))
        return None
    if path is None:
        return None
    if not path.is_file():
        log.warning("the heads %s are gone; going on without them", quoted(path))
        return None
    return path


def heads_file(wanted: str, header: Header) -> Path | None:
    """The Medusa heads that "auto", "none" or a path means for a model; None: none. Raises ModelNotFoundError."""
    if wanted == AUTO:
        return registered(header)
    path = _given(wanted)
    return None if path is None or is_gguf(path) else path


def eagle_file(wanted: str, header: Header) -> Path | None:
    """The EAGLE head that "auto", "none" or a path means for a model; None: none. Raises ModelNotFoundError."""
    if wanted == AUTO:
        return registered(header, EAGLE)
    path = _given(wanted)
    return path if path is not None and is_gguf(path) else None


def _given(wanted: str) -> Path | None:
    """A file that was named. Which kind of heads it has is told by how it begins."""
    if wanted == NONE:
        return None
    path = user_path(wanted)
    if not path.is_file():
        raise ModelNotFoundError(f"there is no file {wanted} with heads; give the path of one, auto or none")
    return path


def is_gguf(path: Path) -> bool:
    """Does a file begin like a GGUF? Then it has an EAGLE head."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except OSError:
        return False


def _folder() -> Path:
    return home() / "heads"


def _record(identity: str) -> Path:
    return _folder() / f"{identity[:_IDENTITY]}.json"
