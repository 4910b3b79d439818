"""Laws of incremental text: any cut into pieces gives the same result, and nothing forbidden comes out."""

from __future__ import annotations

import re
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.errors import BadRequestError
from edgespec.text import (
    RUN_LIMIT,
    STRING_LIMIT,
    OutputText,
    Sanitizer,
    StopMatcher,
    Utf8Stream,
    replace_surrogates,
    sanitize,
    split_long_runs,
)

FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def cut_up(data, at):
    edges = [0, *sorted({min(i, len(data)) for i in at}), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


cuts = st.lists(st.integers(0, 60), max_size=12)
stops_strategy = st.lists(st.text("aaabé\N{GRINNING FACE}", min_size=1, max_size=5), max_size=4)


def cut_at_first_stop(text: str, stops: list[str]) -> tuple[str, bool]:
    """The definition, naively: the first end wins, then the earliest start."""
    for end in range(1, len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return text[: min(starts)], True
    return text, False


# UTF-8 and stop strings


@given(st.one_of(st.binary(max_size=40), st.text(max_size=20).map(str.encode)), cuts)
def test_decoding_does_not_depend_on_the_cuts(data, at):
    stream = Utf8Stream()
    assert "".join(stream.push(p) for p in cut_up(data, at)) + stream.flush() == data.decode("utf-8", "replace")


def test_an_unfinished_character_is_held_back_and_an_invalid_byte_is_not():
    stream = Utf8Stream()
    first, *rest = "é".encode()
    assert stream.push(bytes([first])) == ""
    assert stream.push(bytes(rest)) == "é"
    assert stream.push(b"\xff") == "\ufffd"
    assert stream.push("\N{GRINNING FACE}".encode()[:3]) == ""
    assert stream.flush() == "\ufffd"


@given(st.text("aaabé\N{GRINNING FACE}", max_size=40), stops_strategy, cuts)
def test_output_is_the_text_cut_before_the_first_stop(text, stops, at):
    out = OutputText(stops)
    shown = "".join(out.push(piece) for piece in cut_up(text.encode(), at))
    expected, stopped = cut_at_first_stop(text, stops)
    assert expected.startswith(shown)
    assert shown + out.finish() == expected
    assert out.stopped == stopped


@given(st.text("aab", max_size=40), stops_strategy)
def test_exactly_the_longest_possible_stop_beginning_is_held_back(text, stops):
    matcher = StopMatcher(stops)
    shown = ""
    for i, char in enumerate(text):
        visible, stopped = matcher.push(char)
        shown += visible
        if stopped:
            assert not any(stop in shown for stop in stops)
            return
        so_far = text[: i + 1]
        held = max((n for stop in stops for n in range(len(stop)) if so_far.endswith(stop[:n])), default=0)
        assert shown == so_far[: len(so_far) - held]


def test_the_stop_that_ends_first_wins_and_then_the_longest():
    assert StopMatcher(["abcd", "bc"]).push("xabcd") == ("xa", True)
    assert StopMatcher(["bc", "abc"]).push("xabcd") == ("x", True)
    assert StopMatcher(["abc", "bc"]).push("xabcd") == ("x", True)


def test_a_stop_is_found_across_tokens_that_split_a_character():
    out = OutputText(["é!"])
    assert [out.push(piece) for piece in (b"caf\xc3", b"\xa9", b"s", b"\xc3", b"\xa9", b"! more")] == [
        "caf",
        "",
        "és",
        "",
        "",
        "",
    ]
    assert out.stopped
    assert out.push(b"ignored") == ""
    assert out.finish() == ""


def test_a_stop_holding_the_replacement_character_can_complete_at_the_end():
    out = OutputText(["x\ufffd"])
    assert out.push(b"abx\xe2") == "ab"
    assert out.finish() == ""
    assert out.stopped


@pytest.mark.parametrize("stops", [[""], ["ok", ""], "text", b"text", [3], ["\ud800"]])
def test_unusable_stops_are_refused_in_one_line(stops):
    with pytest.raises(BadRequestError) as error:
        OutputText(stops)
    assert "stop" in str(error.value)
    assert "\n" not in str(error.value)


def test_matching_is_linear_even_for_a_stop_that_nearly_matches_all_along():
    out = OutputText(["a" * 1999 + "b"])
    start = time.perf_counter()
    shown = sum(len(out.push(b"aaaa")) for _ in range(20_000))
    assert shown == 80_000 - 1999
    assert time.perf_counter() - start < 5


# Terminal safety

nasty = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from("\x1b[]PX^_\\;0m\x07\x18\x1a\r\n\t\x9b\x9d\x9c\x90\u202e\u2066\u200d\ufe0f\N{WOMAN}a1"),
    ),
    max_size=50,
)


@given(nasty, cuts)
def test_sanitising_does_not_depend_on_the_cuts(text, at):
    sanitizer = Sanitizer()
    assert "".join(sanitizer.push(p) for p in cut_up(text, at)) + sanitizer.finish() == sanitize(text)


@given(nasty)
def test_sanitised_text_has_nothing_forbidden_and_is_a_fixed_point(text):
    safe = sanitize(text)
    assert not FORBIDDEN.search(safe)
    assert sanitize(safe) == safe


@given(
    st.text(
        st.characters(
            exclude_categories=["Cc", "Cs"],
            exclude_characters="\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",
            include_characters="\n\t",
        )
    )
)
def test_ordinary_text_is_untouched(text):
    assert sanitize(text) == text


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("a\r\nb\rc\n", "a\nbc\n"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x9b31mred", "red"),
        ("\x1b]0;title\x07rest", "rest"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;aGk=\x9crest", "rest"),
        ("\x1bPq#0~\x07still inside\x1b\\rest", "rest"),
        ("\x1b_apc\x1b\\\x1b^pm\x1b\\\x1bXsos\x1b\\rest", "rest"),
        ("\x1b(Bplain", "plain"),
        ("\x1bcreset", "reset"),
        ("\x1b[12\x18kept", "kept"),
        ("\x1b\x1b[1mbold", "bold"),
        ("\x1b]title\nnext line", "\nnext line"),
        ("\x1b[é", "é"),
        ("bell\x07 nul\x00 del\x7f", "bell nul del"),
        ("abc\u202edef\u2066g", "abcdefg"),
        ("\ud800x", "\ufffdx"),
        ("\N{WOMAN}\u200d\N{PERSONAL COMPUTER} e\u0301 \u6f22\u5b57 [/INST]", None),
    ],
)
def test_terminal_sequences_go_and_text_stays(text, safe):
    assert sanitize(text) == (text if safe is None else safe)


def test_an_unterminated_string_swallows_a_bounded_amount():
    text = "\x1b]" + "x" * (STRING_LIMIT + 10_000)
    assert sanitize(text) == "x" * 10_000
    assert len(sanitize("\x1b[" + "1;" * 5000)) > 9000


# Prompt text


def test_surrogates_are_joined_or_replaced():
    assert replace_surrogates("a\ud83d\ude00b\ud800c\udc00") == "a\N{GRINNING FACE}b\ufffdc\ufffd"
    assert replace_surrogates("plain \x00 \N{GRINNING FACE}") == "plain \x00 \N{GRINNING FACE}"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "A1", "!", " ", "\n", "\u6f22", "ab cd ", "e\u0301", "x-y."]), st.integers(1, 1500)
        ),
        max_size=5,
    )
)
def test_long_runs_are_cut_and_nothing_is_lost(parts):
    text = "".join(unit * n for unit, n in parts)
    pieces = split_long_runs(text)
    assert "".join(pieces) == text
    for piece in pieces:
        assert max((len(run) for run in re.findall(r"\S+|\s+|[^\W\d_]+(?: [^\W\d_]+)*", piece)), default=0) <= RUN_LIMIT
    if not re.search(rf"\S{{{RUN_LIMIT + 1}}}|\s{{{RUN_LIMIT + 1}}}|(?:[^\s\d]| (?! )){{{RUN_LIMIT + 1}}}", text):
        assert pieces == ((text,) if text else ("",))


def test_prose_of_any_length_is_one_piece():
    text = "The quick brown fox, as they say, jumps over the lazy dog.\n" * 5000
    assert split_long_runs(text) == (text,)


def test_cuts_prefer_the_places_where_tokenizers_split_anyway():
    words = "word " * 1000
    assert all(piece.startswith(" word") for piece in split_long_runs(words)[1:])
    csv = "value12;" * 1000
    assert all(piece.startswith(";") for piece in split_long_runs(csv)[1:])


def test_atoms_are_not_cut():
    marker = "<|im_end|>"
    text = "a" * (RUN_LIMIT - 4) + marker + "b" * 3000 + marker
    spans = [m.span() for m in re.finditer(re.escape(marker), text)]
    pieces = split_long_runs(text, spans)
    assert "".join(pieces) == text
    assert sum(piece.count(marker) for piece in pieces) == 2
