"""How each token source looks, by colour and by glyph. Adding a source: one row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourceStyle:
    """ansi: SGR parameters.  glyph: shown where colour cannot be.  label: for people."""

    ansi: str
    glyph: str
    label: str


SOURCES = {
    "target": SourceStyle("39", "", "target"),
    "bonus": SourceStyle("36", "+", "bonus: target, after a fully accepted draft"),
    "model": SourceStyle("32", "·", "draft model"),
    "suffix": SourceStyle("34", "=", "suffix: what usually followed"),
    "lookup": SourceStyle("33", "~", "prompt lookup"),
}
_UNKNOWN = SourceStyle("35", "?", "another source")


def paint(text: str, source: str, *, colour: bool) -> str:
    """`text`, which must be sanitised, as its source looks."""
    style = SOURCES.get(source, _UNKNOWN)
    return f"\x1b[{style.ansi}m{text}\x1b[0m" if colour else f"{style.glyph}{text}"


def legend(sources: Sequence[str], *, colour: bool) -> str:
    """One line that explains the colours or glyphs in use."""
    parts = []
    for source in sources:
        style = SOURCES.get(source, _UNKNOWN)
        shown = paint(style.label, source, colour=True) if colour else f"{style.glyph or 'plain'} {style.label}"
        parts.append(shown)
    return "tokens by source: " + ", ".join(parts)
