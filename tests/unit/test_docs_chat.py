"""The documents list the commands of plain chat, and the glyphs of tokens."""

from __future__ import annotations

from documents import CLI, ROOT, code, sections, table_rows

from edgespec.chat_commands import COMMANDS, PLAIN
from edgespec.tui.sources import SOURCES


def test_commands_of_plain_chat() -> None:
    rows = table_rows(sections(CLI, 3)["Line by line"])
    known = [row for row in COMMANDS.values() if PLAIN in row.front_ends]
    assert [code(row[0]) for row in rows] == [[row.usage] for row in known]
    for (_, stated), row in zip(rows, known, strict=True):
        assert f"{stated[0].upper()}{stated[1:]}." == row.help


def test_glyphs_of_sources() -> None:
    page = (ROOT / "docs" / "tui.md").read_text("utf-8")
    rows = table_rows(sections(page, 2)["Who proposed a token"])
    assert {"".join(code(glyph)) for glyph, _ in rows} == {row.glyph for row in SOURCES.values()}
