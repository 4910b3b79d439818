"""How each token source looks, by colour and by glyph. Adding a source: one row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourceStyle:
    """ansi: SGR parameter of a terminal's own colour.  dark, light: colours on a dark and on a light background.
    glyph: shown where colour cannot be, one cell wide or empty.  label: for people.  name: shorter."""

    ansi: str
    dark: str
    light: str
    glyph: str
    label: str
    name: str


SOURCES = {
    "target": SourceStyle("39", "#c9d1d9", "#24292f", "", "target", "target"),
    "bonus": SourceStyle("36", "#56d4dd", "#0a6069", "+", "bonus: target, after a fully accepted draft", "bonus"),
    "model": SourceStyle("32", "#7ee787", "#116329", "·", "draft model", "draft"),
    "suffix": SourceStyle("34", "#79c0ff", "#0550ae", "=", "suffix: what usually followed", "suffix"),
    "medusa": SourceStyle("95", "#f778ba", "#99286e", "^", "heads: from the model's own state", "heads"),
    "eagle": SourceStyle("92", "#a5d6a7", "#33691e", "*", "EAGLE: a layer that follows the model", "eagle"),
    "mtp": SourceStyle("94", "#82aaff", "#1a4fa0", "%", "MTP: the model's own further layers", "mtp"),
    "lookup": SourceStyle("33", "#f2cc60", "#6f4400", "~", "prompt lookup", "lookup"),
}
UNKNOWN = SourceStyle("35", "#d2a8ff", "#6e40c9", "?", "another source", "other")
REJECTED = SourceStyle("31", "#ff9a8f", "#a40e26", "✗", "rejected guess", "rejected")


def look(source: str) -> SourceStyle:
    """The look of a source, known or not."""
    return SOURCES.get(source, UNKNOWN)


def paint(text: str, source: str, *, colour: bool) -> str:
    """`text`, which must be sanitised, as its source looks."""
    style = look(source)
    return f"\x1b[{style.ansi}m{text}\x1b[0m" if colour else f"{style.glyph}{text}"


def legend(sources: Sequence[str], *, colour: bool) -> str:
    """One line that explains the colours or glyphs in use."""
    parts = []
    for source in sources:
        style = look(source)
        shown = paint(style.label, source, colour=True) if colour else f"{style.glyph or 'plain'} {style.label}"
        parts.append(shown)
    return "tokens by source: " + ", ".join(parts)
