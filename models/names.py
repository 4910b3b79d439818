"""Which file a model name means. Local only: nothing here fetches."""

from __future__ import annotations

import re
from pathlib import Path

from ..errors import ModelNotFoundError
from .quoting import quoted
from .starter import NAMES, PULL, find_starter

_HUB = re.compile(r"(hf:|hf\.co/|https?://)", re.IGNORECASE)


def is_starter(name: str) -> bool:
    """True for the names of the starter model."""
    return name.lower() in NAMES


def is_hub_name(name: str) -> bool:
    """True for hf:user/repo and the like, and for web addresses."""
    return _HUB.match(name) is not None


def resolve(name: str | None) -> Path:
    """The file that `name` means: a path, a name of the starter model, or None for the starter model.

    Raises ModelNotFoundError, with what to do, where that file is not on this disk.
    """
    if name is None:
        return _starter("no model is given and the starter model is not here")
    path = Path(name).expanduser() if name.startswith("~") else Path(name)
    # A folder that happens to be called "starter" is not what that name means.
    if name and _exists(path) and not (is_starter(name) and path.is_dir()):
        return path
    if is_starter(name):
        return _starter("the starter model is not here")
    if is_hub_name(name):
        raise ModelNotFoundError(
            f"{quoted(name)} is on a model hub, which this version does not read; download the file and give its path"
        )
    raise ModelNotFoundError(
        f"no model {quoted(name)}: no such file, and the only known name is {NAMES[0]}; check the path or use that name"
    )


def _starter(missing: str) -> Path:
    found = find_starter()
    if found is None:
        raise ModelNotFoundError(f"{missing}; get it with `{PULL}` or give the path of a .gguf file")
    return found


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # unreadable folders are reported when the file is opened; ValueError: a NUL
        return False
