"""Where states of conversations lie, by name: what can be said and done without a model."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ..paths import home

SUFFIX = ".state"


def states_dir() -> Path:
    """Where states lie unless told otherwise."""
    return home() / "states"


def file_name(conversation: str, identity: str) -> str:
    """Name of the file of a conversation and a model. Neither can be read from it."""
    return f"{_hashed(conversation)}-{identity[:16]}{SUFFIX}"


def forget(folder: Path, conversation: str) -> None:
    """Delete what is saved of a conversation, of any model. A file that cannot be deleted raises OSError."""
    for path in folder.glob(f"{_hashed(conversation)}-*"):
        path.unlink(missing_ok=True)


def _hashed(conversation: str) -> str:
    return hashlib.sha256(conversation.encode("utf-8", "surrogatepass")).hexdigest()[:32]
