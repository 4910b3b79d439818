"""Which heads belong to which model file: a record of ours for each file, by its identity (models.identity)."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from edgespec.models.header import Header
from edgespec.models.identity import file_identity
from edgespec.models.quoting import quoted

from ..errors import ModelNotFoundError
from ..paths import home, user_path, write_whole

log = logging.getLogger(__name__)

NONE, AUTO = "none", "auto"
_IDENTITY = 32  # characters of it that name the record


def register(identity: str, path: Path) -> None:
    """From now on "auto" finds the heads in `path` for the model file of this identity. Raises OSError."""
    write_whole(_record(identity), json.dumps({"medusa": str(path.absolute())}))


def registered(header: Header) -> Path | None:
    """The heads that were registered for this file and are still there."""
    folder = _folder()
    if not folder.is_dir():  # the usual case costs nothing
        return None
    record = _record(file_identity(header))
    try:
        path = Path(json.loads(record.read_text("utf-8"))["medusa"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        log.warning("%s is damaged; going on without heads. Convert or train them again", quoted(record))
        return None
    if not path.is_file():
        log.warning("the heads %s are gone; going on without them", quoted(path))
        return None
    return path


def heads_file(wanted: str, header: Header) -> Path | None:
    """The file that "auto", "none" or a path means for a model; None: no heads. Raises ModelNotFoundError."""
    if wanted == NONE:
        return None
    if wanted == AUTO:
        return registered(header)
    path = user_path(wanted)
    if not path.is_file():
        raise ModelNotFoundError(f"there is no file {wanted} with heads; give the path of one, auto or none")
    return path


def _folder() -> Path:
    return home() / "heads"


def _record(identity: str) -> Path:
    return _folder() / f"{identity[:_IDENTITY]}.json"
