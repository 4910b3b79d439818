"""Slash commands as they are being typed."""

from __future__ import annotations

from ..chat_commands import APP, COMMANDS, Command


def matches(text: str) -> list[Command]:
    """The commands that `text` may become, or the one that it is with what follows it; none for a message."""
    if not text.startswith("/") or text.startswith("//") or "\n" in text:
        return []
    name, blank, _ = text[1:].partition(" ")
    rows = [row for row in COMMANDS.values() if APP in row.front_ends]
    if blank:
        return [row for row in rows if row.name == name]
    return [row for row in rows if row.name.startswith(name)]


def completed(text: str) -> str:
    """`text` as far as there is no choice."""
    found = matches(text)
    if not found or " " in text:
        return text
    if len(found) == 1:
        return f"/{found[0].name} " if found[0].argument else f"/{found[0].name}"
    first, last = min(row.name for row in found), max(row.name for row in found)
    same = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return f"/{first[:same]}"
