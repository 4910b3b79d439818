"""Which file names are safe to create on any system, whoever chose them."""

from __future__ import annotations

import re

_DEVICES = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?", re.IGNORECASE)  # Windows opens no file of this name
_FORBIDDEN = frozenset('/\\:*?"<>|')


def is_safe(name: str) -> bool:
    """True for one component of a path that stays one, is no device, and means the same everywhere."""
    return (
        0 < len(name.encode("utf-8", "replace")) <= 200
        and name.isprintable()
        and not _FORBIDDEN.intersection(name)
        and name[0] != " "
        and name[-1] not in ". "
        and not _DEVICES.fullmatch(name)
    )


def is_gguf(name: str) -> bool:
    """True for a safe name that ends in .gguf."""
    return is_safe(name) and name.lower().endswith(".gguf") and len(name) > len(".gguf")
