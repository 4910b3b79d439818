"""JSON on a terminal: the same value to a program, and nothing that drives the terminal."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from edgespec.cli.json_text import json_text


@given(st.text())
def test_the_value_is_the_same_and_no_control_is_bare(text: str) -> None:
    written = json_text({"text": text})
    assert json.loads(written) == {"text": text}
    assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or 0x202A <= ord(c) <= 0x202E for c in written)


def test_words_stay_readable() -> None:
    assert json_text("Größe 大きさ") == '"Größe 大きさ"'
    assert json_text("\x9b31m\u202e") == '"\\u009b31m\\u202e"'
