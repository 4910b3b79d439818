"""The vocabulary: text round-trips, ids are guarded, control tokens come only when asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from edgespec.errors import BadRequestError
from edgespec.llama import LlamaVocab, LoadSettings, Model
from edgespec.tiny_gguf import USER_DEFINED, TinyVocab

KINDS = {"bpe": TinyVocab(), "spm": TinyVocab(kind="spm"), "spm bare": TinyVocab(kind="spm", add_space_prefix=False)}
PLAIN = LoadSettings(n_ctx=64, threads=1, buffers="none")


@pytest.fixture(scope="module", params=KINDS)
def pair(request: pytest.FixtureRequest, tiny: Callable[..., Path]) -> Iterator[tuple[LlamaVocab, TinyVocab]]:
    written = KINDS[request.param]
    with Model(tiny(vocab=written, n_layer=1), PLAIN) as model:
        yield model.vocab, written


Pair = tuple[LlamaVocab, TinyVocab]


def test_facts(pair: Pair) -> None:
    vocab, written = pair
    spm = written.kind == "spm"
    assert (vocab.type, vocab.size) == (written.kind, 512)
    assert vocab.add_bos is spm
    assert vocab.bos == written.id_of("<s>" if spm else "<|endoftext|>")
    assert vocab.eos == written.id_of("</s>" if spm else "<|im_end|>")
    assert vocab.texts == [t.encode() for t in written.tokens()]
    assert vocab.text(vocab.eos) == ("</s>" if spm else "<|im_end|>")
    assert vocab.add_space_prefix is (spm and written.add_space_prefix is not False)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(text=st.text(max_size=40))
@example(text=USER_DEFINED)
@example(text=f"a{USER_DEFINED}b {USER_DEFINED}")
def test_text_round_trips(pair: Pair, text: str) -> None:
    """A user-defined token's text is always that token, and llama.cpp leads each text beside one with a space."""
    vocab, written = pair
    tokens = vocab.tokenize(text, special=False)
    assert all(0 <= t < vocab.size for t in tokens)
    assert vocab.bos not in tokens
    between = text.split(USER_DEFINED)
    assert tokens.count(written.id_of(USER_DEFINED)) == len(between) - 1
    lead = " " if vocab.add_space_prefix else ""
    wanted = USER_DEFINED.join(lead + part if part else "" for part in between)
    if vocab.type == "spm":
        wanted = wanted.replace("▁", " ")  # SentencePiece writes spaces so
    assert vocab.detokenize(tokens) == wanted.encode()


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(data=st.binary(max_size=40))
def test_any_bytes_are_tokens(pair: Pair, data: bytes) -> None:
    vocab, _ = pair
    tokens = vocab.tokenize(data, special=False)
    assert all(0 <= t < vocab.size for t in tokens)
    vocab.detokenize(tokens).decode("utf-8", "replace")


def test_a_code_point_above_the_last_one_does_not_end_the_process(pair: Pair) -> None:
    vocab, _ = pair
    tokens = vocab.tokenize(b"A\xbf\xf4\xa0\xbf\x80", special=False)
    assert vocab.detokenize(tokens).decode().lstrip(" ").startswith("A\ufffd")


@pytest.mark.parametrize("text", ["", "\0", "a\0b", "\ud800", "x\udfffy", "\U0010ffff"])
def test_odd_texts(pair: Pair, text: str) -> None:
    vocab, _ = pair
    tokens = vocab.tokenize(text, special=True)
    if not any(0xD800 <= ord(c) < 0xE000 for c in text):
        assert vocab.detokenize(tokens).decode().lstrip(" ") == text


def test_control_tokens_only_when_asked_for(pair: Pair) -> None:
    vocab, written = pair
    text = "<|im_start|>user<|im_end|>"
    start, end = written.id_of("<|im_start|>"), written.id_of("<|im_end|>")
    parsed, plain = vocab.tokenize(text, special=True), vocab.tokenize(text, special=False)
    assert {start, end} <= set(parsed)
    assert not {start, end} & set(plain)
    assert vocab.detokenize(plain).decode().strip() == text
    assert (vocab.piece(start), vocab.piece(end)) == (b"", b"")
    assert (vocab.is_eog(start), vocab.is_eog(end)) == (False, True)


def test_special_texts(pair: Pair) -> None:
    vocab, written = pair
    special = vocab.special_texts()
    assert {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>"} <= set(special)
    assert all(special[t] == written.id_of(t) for t in special)
    assert "the" not in special


@pytest.mark.parametrize("token", [-1, 512, 2**31, -(2**31), 2**40])
@pytest.mark.parametrize("method", ["piece", "is_eog", "text", "check"])
def test_bad_ids(pair: Pair, method: str, token: int) -> None:
    with pytest.raises(BadRequestError, match="0 to 511"):
        getattr(pair[0], method)(token)


def test_pieces_of_many_bytes(tiny: Callable[..., Path]) -> None:
    """A user-defined token longer than the first buffer."""
    with Model(tiny(vocab=TinyVocab(pad_to=520), n_layer=1), PLAIN) as model:
        assert b"".join(model.vocab.piece(t) for t in range(model.vocab.size))
        assert model.vocab.text(515) == "[PAD515]"


def long_runs(path: Path) -> list[int]:
    with Model(path, PLAIN) as model:
        texts = [c * 20_000 for c in ("a", " ", "\n", "é", "🙂", "1", "=", "字")]
        return [len(model.vocab.tokenize(t, special=False)) for t in texts]


@pytest.mark.parametrize("kind", ["bpe", "spm"])
def test_20000_repeated_characters(tiny: Callable[..., Path], child: Callable[..., Any], kind: str) -> None:
    assert all(n > 0 for n in child(long_runs, tiny(vocab=KINDS[kind], n_layer=1)))
