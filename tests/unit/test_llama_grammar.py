"""Grammars: what they allow is what may be generated, and hostile ones are refused without harm."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgespec.errors import BadRequestError
from edgespec.llama import LlamaGrammar, LlamaVocab, LoadSettings, Model, schema_to_gbnf

PLAIN = LoadSettings(n_ctx=64, threads=1, buffers="none")
PAIR = 'root ::= "ab" [0-9]{1,3} "é"?'
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "size": {"enum": ["s", "m"]}, "n": {"type": "integer"}},
    "required": ["name", "size", "n"],
}


@pytest.fixture(scope="module")
def vocab(tiny: Callable[..., Path]) -> Iterator[LlamaVocab]:
    with Model(tiny(), PLAIN) as model:
        yield model.vocab


def allowed(vocab: LlamaVocab, grammar: LlamaGrammar) -> list[int]:
    ids = np.arange(vocab.size, dtype=np.int64)
    return [int(i) for i in ids[grammar.mask(ids)]]


def random_text(vocab: LlamaVocab, grammar: LlamaGrammar, seed: int, limit: int = 300) -> bytes | None:
    """Draw allowed tokens until one ends the text; None if none did."""
    rng, text = np.random.default_rng(seed), b""
    for _ in range(limit):
        token = int(rng.choice(allowed(vocab, grammar)))
        if vocab.is_eog(token):
            return text
        text += vocab.piece(token)
        grammar.advance(token)
    return None


def test_every_text_matches(vocab: LlamaVocab) -> None:
    texts = {random_text(vocab, LlamaGrammar(vocab, PAIR), seed) for seed in range(40)}
    assert len(texts) > 10
    for text in texts:
        assert text is not None
        assert re.fullmatch("ab[0-9]{1,3}é?", text.decode())


def test_the_end_comes_only_when_complete(vocab: LlamaVocab) -> None:
    grammar = LlamaGrammar(vocab, PAIR)
    for text, may_end in ((b"a", False), (b"b", False), (b"7", True), (b"7", True), (b"\xc3", False), (b"\xa9", True)):
        token = next(t for t in range(vocab.size) if vocab.piece(t) == text)
        assert token in allowed(vocab, grammar)
        grammar.advance(token)
        assert any(vocab.is_eog(t) for t in allowed(vocab, grammar)) is may_end
    assert all(vocab.is_eog(t) for t in allowed(vocab, grammar))


def test_mask_has_no_effect_and_takes_any_subset(vocab: LlamaVocab) -> None:
    grammar = LlamaGrammar(vocab, PAIR)
    every = allowed(vocab, grammar)
    some = np.array([every[0], 300, 5, every[-1]], dtype=np.int64)
    assert grammar.mask(some).tolist() == [int(i) in every for i in some]
    assert grammar.mask(np.array([], dtype=np.int64)).shape == (0,)
    assert allowed(vocab, grammar) == every


def test_clones_are_independent(vocab: LlamaVocab) -> None:
    grammar = LlamaGrammar(vocab, PAIR)
    copy = grammar.clone()
    before = allowed(vocab, grammar)
    copy.advance(before[0])
    assert allowed(vocab, grammar) == before
    assert allowed(vocab, copy) != before
    del grammar
    again = copy.clone()
    del copy
    assert allowed(vocab, again) != before


@pytest.mark.parametrize(
    "schema",
    [
        SCHEMA,
        {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
        {"anyOf": [{"const": "x"}, {"type": "null"}]},
        {"$defs": {"p": {"enum": [1, 2]}}, "type": "array", "items": {"$ref": "#/$defs/p"}, "maxItems": 2},
        {"enum": ['say "x"', "c:\\d", "two\nlines", "größe", '"', "\\"]},
        {"type": "object", "properties": {'ö "\\"': {"type": "null"}}, "required": ['ö "\\"']},
    ],
)
def test_every_text_of_a_schema_is_json_of_it(vocab: LlamaVocab, schema: dict[str, Any]) -> None:
    source = schema_to_gbnf(json.dumps(schema))
    found = [random_text(vocab, LlamaGrammar(vocab, source), seed) for seed in range(10)]
    values = [json.loads(t.decode("utf-8", "replace")) for t in found if t is not None]
    assert values
    assert all(value in schema.get("enum", values) for value in values)
    assert all(schema["required"] == list(value) for value in values if "required" in schema and schema is not SCHEMA)
    if schema is SCHEMA:
        for value in values:
            assert set(value) == {"name", "size", "n"}
            assert value["size"] in ("s", "m")
            assert isinstance(value["n"], int)
            assert "\ufffd" in value["name"] or len(value["name"]) <= 5  # invalid UTF-8 counts otherwise


BAD = {
    "empty": "",
    "spaces": "  \n",
    "no root": 'start ::= "a"',
    "open string": 'root ::= "a',
    "open group": 'root ::= ("a"',
    "unknown rule": "root ::= other",
    "left recursion": 'root ::= root "a" | "b"',
    "hidden left recursion": 'root ::= x "a"\nx ::= "b"? root',
    "words": "please answer in French",
    "bad repetition": 'root ::= "a"{3,1}',
    "bad repetition with spaces": 'root ::= "a"{ 30 , 4 }',
    "huge repetition": 'root ::= "a"{3000}',
    "endless number": 'root ::= "a"{1,' + "9" * 5000 + "}",
    "unclosed classes": "root ::= " + "[" * 200_000,
    "nothing to repeat": "root ::= *",
    "bad class": "root ::= [a-",
    "bad escape": 'root ::= "\\x"',
    "nul": 'root ::= "a\0"',
    "half a surrogate": 'root ::= "\ud800',
    "too large": 'root ::= "a" # ' + "x" * (1 << 18),
    "deep groups": "root ::= " + "(" * 100_000 + '"a"' + ")" * 100_000,
    "deep open groups": "root ::= " + "(" * 200_000,
    "deep references": "root ::= a0\n" + "\n".join(f"a{i} ::= a{i + 1}" for i in range(15_000)),
}


def grammar_outcome(path: Path, source: str) -> str:
    with Model(path, PLAIN) as model:
        try:
            grammar = LlamaGrammar(model.vocab, source)
        except BadRequestError as error:
            return "several lines" if "\n" in str(error) else "refused"
        random_text(model.vocab, grammar, 0, 3)
        return "accepted"


@pytest.mark.parametrize("name", BAD)
def test_bad_grammars(tiny: Callable[..., Path], child: Callable[..., Any], name: str) -> None:
    harmless = ("nul", "bad escape")  # llama.cpp takes them literally
    assert child(grammar_outcome, tiny(), BAD[name]) in (("accepted", "refused") if name in harmless else ("refused",))


@pytest.mark.parametrize(
    "source",
    [
        'root ::= "((((" [({\\]] "{3,1}" # ((((\n',
        "root ::= " + "(" * 60 + '"a"' + ")" * 60,
        "root ::= a0\n" + "\n".join(f"a{i} ::= a{i + 1}" for i in range(1_900)) + '\na1900 ::= "x"',
        'root ::= (((("a"{99}){99}){99}){99}){99}',
        'root ::= "a"{0,2000} [0-9]{2,} "b"{3}',
    ],
)
def test_unusual_grammars_work(tiny: Callable[..., Path], child: Callable[..., Any], source: str) -> None:
    assert child(grammar_outcome, tiny(), source) == "accepted"


DEEP = "[" * 100_000 + "]" * 100_000
BAD_SCHEMAS = {
    "empty": "",
    "not json": "{",
    "a list": "[]",
    "a number": "3",
    "unknown type": '{"type": "elephant"}',
    "missing reference": '{"$ref": "#/nowhere"}',
    "reference to the network": '{"$ref": "https://example.invalid/schema.json"}',
    "deep json": DEEP,
    "deep schema": '{"items":' * 5000 + "{}" + "}" * 5000,
    "negative": '{"type": "string", "minLength": -3}',
    "nan": '{"minimum": NaN}',
}


@pytest.mark.parametrize("name", BAD_SCHEMAS)
def test_bad_schemas(vocab: LlamaVocab, name: str) -> None:
    """An error of ours, or a grammar that works."""
    message = ""
    try:
        LlamaGrammar(vocab, schema_to_gbnf(BAD_SCHEMAS[name]))
    except BadRequestError as error:
        message = str(error)
    assert "\n" not in message
    if name in (
        "empty",
        "not json",
        "a list",
        "a number",
        "missing reference",
        "reference to the network",
        "deep json",
    ):
        assert message
