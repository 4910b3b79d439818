"""Laws of the layout of tokens: nothing is lost, lines fit, and how the text is cut into tokens hardly matters."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_reply import TEXT, pieces
from rich.cells import cell_len

from edgespec.tui.token_layout import HIDDEN, NEWLINE, OVERHANG, TokenLayout

WORDS = ("a", "bird", " of", " the", "\n", "\n\n", " ", "   ", "\t", "灯", "台守", "é", "e\u0301", "\u0301", "👩",
         "\u200d", "💻", "☎", "\ufe0f", "שלום", "-", "unbelievably-long-word-of-several-parts", "")  # fmt: skip
TOKENS = st.lists(st.sampled_from(WORDS), max_size=60)


def laid(tokens: list[str], width: int, mark: str = "") -> TokenLayout:
    layout = TokenLayout(width)
    for token in tokens:
        layout.append(token, mark)
    return layout


def visible(text: str) -> str:
    """What must be on the screen: all but blanks."""
    return "".join(text.split())


@settings(max_examples=150, deadline=None)
@given(tokens=TOKENS, width=st.integers(2, 30), mark=st.sampled_from(["", "·"]))
def test_nothing_is_lost_and_lines_fit(tokens: list[str], width: int, mark: str) -> None:
    layout = laid(tokens, width, mark)
    shown = "".join(piece.text for line in layout.lines for piece in line).replace(NEWLINE, "")
    assert visible(shown) == visible("".join(tokens))
    for line in layout.lines:
        assert all(piece.cells == cell_len(piece.mark + piece.text) for piece in line)
        assert sum(piece.cells for piece in line) <= max(layout.width, 2 + len(mark)) + OVERHANG + 2 * len(mark)


@settings(max_examples=150, deadline=None)
@given(tokens=TOKENS, width=st.integers(4, 30))
def test_places_of_tokens(tokens: list[str], width: int) -> None:
    layout = laid(tokens, width)
    assert len(layout.first) == len(tokens)
    for token, line in enumerate(layout.first):
        found = [i for i, pieces in enumerate(layout.lines) if any(p.token == token for p in pieces)]
        assert (found[0] if found else HIDDEN) == line
    order = [piece.token for line in layout.lines for piece in line]
    assert order == sorted(order)


@settings(max_examples=100, deadline=None)
@given(tokens=TOKENS, width=st.integers(4, 30), cut=st.integers(0, 60))
def test_it_only_grows_at_its_end(tokens: list[str], width: int, cut: int) -> None:
    layout = laid(tokens[:cut], width)
    for token in tokens[cut:]:
        before = [[(p.token, p.text) for p in line] for line in layout.lines]
        first = layout.append(token)
        assert first == len(before) - 1
        assert [[(p.token, p.text) for p in line] for line in layout.lines[:first]] == before[:first]


def test_lines_break_between_words() -> None:
    layout = laid(pieces("one two three four"), 9)
    assert ["".join(p.text for p in line).strip() for line in layout.lines] == ["one two", "three", "four"]


def test_a_word_of_many_tokens_moves_to_the_next_line_whole() -> None:
    layout = laid(["one", " un", "think", "able"], 12)
    assert ["".join(p.text for p in line).strip() for line in layout.lines] == ["one", "unthinkable"]
    assert layout.first == [0, 0, 1, 1]


def test_wide_text_fills_its_lines() -> None:
    layout = laid(pieces("灯台守は猫を二匹飼っていた"), 10)
    assert [sum(p.cells for p in line) for line in layout.lines] == [10, 10, 6]


def test_a_character_made_of_several_tokens_is_one() -> None:
    layout = laid(["e", "\u0301", " 👩", "\u200d", "💻", " ☎", "\ufe0f!"], 40, mark="·")
    texts = [piece.text for piece in layout.lines[0] if piece.text.strip()]
    assert texts[0] == "e\u0301"
    assert texts[1] == "👩\u200d💻"
    assert texts[2] == "☎\ufe0f"
    assert layout.first[1] == layout.first[3] == HIDDEN


@pytest.mark.parametrize("width", [20, 38, 78])
def test_the_mark_stands_before_the_first_visible_character(width: int) -> None:
    layout = laid(pieces(TEXT), width, mark="~")
    for line in layout.lines:
        for piece in line:
            assert not piece.mark or not piece.text or not piece.text[0].isspace()
    marked = {piece.token for line in layout.lines for piece in line if piece.mark}
    assert marked == {t for t, first in enumerate(layout.first) if first != HIDDEN}


def test_nothing_in_it_has_an_unknown_width() -> None:
    layout = laid(["a\u2028b\u00a0c\u3000d"], 30)
    text = "".join(piece.text for piece in layout.lines[0])
    assert all(unicodedata.category(char) not in ("Zl", "Zp") for char in text)
