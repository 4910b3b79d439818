"""What `edgespec show` says of the draft heads that are registered for a file."""

from __future__ import annotations

import os
from typing import Any

from ..errors import EdgeSpecError
from ..heads.registry import EAGLE, registered
from ..models.header import Header


def heads_json(header: Header) -> dict[str, Any] | None:
    """The value of "heads" in --json; None without heads, or where their file cannot be read."""
    path = registered(header)
    if path is None:
        return None
    from ..heads.storage import SOURCE, described, read_facts  # numpy, which a model without heads need not wait for

    try:
        facts, count, size = read_facts(path)
    except EdgeSpecError:
        return None
    return {
        "path": os.fsencode(path).decode("utf-8", "replace"),
        "source": SOURCE,
        "count": count,
        "vocabulary": size,
        "recipe": described(facts.recipe),
        "scores": described(facts.scores),
    }


def eagle_json(header: Header) -> dict[str, Any] | None:
    """The value of "eagle" in --json; None without an EAGLE head, or where its file cannot be read."""
    path = registered(header, EAGLE)
    if path is None:
        return None
    from ..heads.eagle_file import read_eagle
    from ..heads.storage import described

    try:
        head = read_eagle(path)
    except EdgeSpecError:
        return None
    return {
        "path": os.fsencode(path).decode("utf-8", "replace"),
        "source": EAGLE,
        "vocabulary": head.vocabulary,
        "recipe": described(head.facts.recipe),
        "scores": described(head.facts.scores),
    }


def eagle_line(found: dict[str, Any]) -> str:
    """The same for people; not yet safe for a terminal."""
    line = f"over {found['vocabulary']:,} tokens, in {found['path']}"
    return f"{line} ({found['recipe']})" if found["recipe"] else line


def heads_line(found: dict[str, Any]) -> str:
    """The same for people; not yet safe for a terminal."""
    line = f"{found['source']}, {found['count']} heads over {found['vocabulary']:,} tokens, in {found['path']}"
    return f"{line} ({found['recipe']})" if found["recipe"] else line
