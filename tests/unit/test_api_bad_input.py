"""Bad input to the Python API: a typed error with one line, nothing run, and a model as good as before."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgespec
from edgespec import (
    LLM,
    BadRequestError,
    ContextFullError,
    ModelLoadError,
    ModelNotFoundError,
    VocabMismatchError,
)
from edgespec.tiny_gguf import CHATML_TEMPLATE, TinyVocab

NAN, INF = math.nan, math.inf
SMALL: dict[str, Any] = {"ctx_size": 512, "threads": 1}
SCHEMA = '{"type": "boolean"}'


@pytest.fixture(scope="module")
def chat(tiny: Callable[..., Path]) -> Path:
    return tiny(chat_template=CHATML_TEMPLATE, n_ctx_train=16384)


@pytest.fixture(scope="module")
def llm(chat: Path, tiny: Callable[..., Path]) -> Iterator[LLM]:
    with edgespec.load(chat, draft=tiny(noise=0.05, n_ctx_train=16384), **SMALL) as loaded:
        yield loaded


@pytest.fixture(autouse=True)
def unharmed(request: pytest.FixtureRequest) -> Iterator[None]:
    """After every refusal no cache is held and the model answers."""
    yield
    if "llm" in request.fixturenames:
        llm = request.getfixturevalue("llm")
        assert all(slot.owner is None for context in (llm.target, llm.draft) for slot in context._slots)
        assert len(llm.complete("x", max_tokens=2).tokens) == 2


def one_line(error: BaseException) -> bool:
    text = str(error)
    return bool(text) and "\n" not in text and len(text) < 1000


def test_a_model_that_is_not_there(tmp_path):
    for name in (
        tmp_path / "none.gguf",
        str(tmp_path / "none.gguf"),
        "no-such-model",
        "",
        "hf:user/repo:Q4_0",
        "a\x00b",
    ):
        with pytest.raises(ModelNotFoundError) as caught:
            edgespec.load(name)
        assert one_line(caught.value)


def test_a_file_that_is_no_model(tmp_path, chat):
    whole = chat.read_bytes()
    for name, content in {"text": b"hello " * 99, "empty": b"", "stub": b"GGUF", "cut": whole[:-70_000]}.items():
        (tmp_path / name).write_bytes(content)
        for arguments in ({"model": tmp_path / name}, {"model": chat, "draft": tmp_path / name}):
            with pytest.raises(ModelLoadError) as caught:
                edgespec.load(**arguments, **SMALL)
            assert one_line(caught.value)
    with pytest.raises(ModelLoadError, match="directory"):
        edgespec.load(tmp_path)


def test_a_draft_of_another_vocabulary_names_the_first_difference(chat, tiny):
    with pytest.raises(VocabMismatchError, match="token 100 is 'd' in the target and 'e' in the draft") as caught:
        edgespec.load(chat, draft=tiny(vocab=TinyVocab(swap=(100, 101))), **SMALL)
    assert one_line(caught.value)
    assert caught.value.exit_code == 4


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("ctx_size", 1), ("ctx_size", 0), ("ctx_size", -5), ("ctx_size", 10**12), ("ctx_size", 512.0),
        ("ctx_size", True), ("ctx_size", "512"), ("ctx_size", NAN),
        ("n_batch", 0), ("n_batch", -1), ("n_batch", 2.5), ("n_batch", None), ("n_batch", 10**9),
        ("threads", 0), ("threads", -1), ("threads", 10**6), ("threads", 1.5), ("threads", False),
        ("gpu_layers", -2), ("gpu_layers", 1.0), ("draft_gpu_layers", -2),
        ("kv_type", "q5_9"), ("kv_type", None), ("kv_type", 16), ("buffers", "some"), ("buffers", ""),
        ("flash_attn", "maybe"), ("flash_attn", True), ("parallel", 0), ("parallel", 2.0), ("max_width", 0),
        ("drafter", "oracle"), ("drafter", ""), ("drafter", "lookup,"), ("drafter", "Lookup"), ("drafter", None),
        ("drafter", "model"),
    ],
)  # fmt: skip
def test_a_load_option_out_of_range(chat, tiny, option, value):
    options = {**SMALL, option: value}
    if option == "draft_gpu_layers":
        options["draft"] = tiny(noise=0.05, n_ctx_train=16384)
    with pytest.raises(BadRequestError) as caught:
        edgespec.load(chat, **options)
    assert one_line(caught.value)
    assert repr(value) in str(caught.value) or value is NAN or option == "drafter"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        *(({"temperature": v}, "temperature is") for v in (-0.1, NAN, INF, "1", None, True, 10**400)),
        *(({"top_k": v}, "top_k is") for v in (-1, 1.5, True, "40", None)),
        *(({"top_p": v}, "top_p is") for v in (0, -1, 1.1, NAN, None)),
        *(({"min_p": v}, "min_p is") for v in (-0.1, 1.1, NAN)),
        *(({"typical": v}, "typical is") for v in (0, NAN)),
        *(({"repeat_penalty": v}, "repeat_penalty is") for v in (0, -1, NAN, INF)),
        *(({"frequency_penalty": v}, "frequency_penalty is") for v in (NAN, 101)),
        *(({"presence_penalty": v}, "presence_penalty is") for v in (NAN, -101)),
        *(({"penalty_last_n": v}, "penalty_last_n is") for v in (-2, 0.5, False)),
        *(({"seed": v}, "seed is") for v in (-1, 2**64, 1.0, "7", True)),
        *(({"max_tokens": v}, "max tokens is") for v in (0, -1, 1.0, True, "5", NAN)),
        *(({"draft_max": v}, "draft max is") for v in (-1, 1.0, True, "3", 32)),
        *(({"verify": v}, "verify is") for v in ("magic", "", 1, ["block"])),
        *(({"reproducible": v}, "reproducible is") for v in (None, 1, "yes")),
        *(({"reproducible": True, "verify": v}, "reproducible means verify='seed'") for v in ("block", "token")),
        *(({"draft_temperature": v}, "draft_temperature is") for v in (-1, NAN, INF, "1", True)),
        *(({"stop": v}, "stop") for v in ("", [""], ["a", ""], [1], [None], None, 5, b"a", ["a", b"b"], "\ud800")),
        *(
            ({"grammar": v}, "grammar")
            for v in (5, b"root", "", 'root ::= "a" x', 'start ::= "a"', "\ud800", "x" * 300000)
        ),
        *(
            ({"json_schema": v}, "(?i)schema")
            for v in (5, {"type": "boolean"}, "", "{", "[]", "1", '{"type": "colour"}')
        ),
        ({"grammar": 'root ::= "a"', "json_schema": SCHEMA}, "not both"),
        *(({"logit_bias": v}, "logit_bias") for v in ({512: 1.0}, {-1: 1.0}, {1: NAN}, {1: INF}, {1: "x"}, {"1": 1.0})),
        *(
            ({"logit_bias": v}, "logit_bias")
            for v in ({True: 1.0}, {1.0: 1.0}, 5, "1=2", [(1, 2, 3)], [(1, 1.0)] * 2, None)
        ),
        ({"tempreature": 0.5}, "unknown option 'tempreature'; known: .*temperature"),
        ({"n": 5}, "unknown option 'n'"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_a_request_option_out_of_range(llm, options, words):
    for call in (llm.complete, lambda prompt, **kw: llm.chat([{"role": "user", "content": prompt}], **kw), llm.stream):
        with pytest.raises(BadRequestError, match=words) as caught:
            call("hi", **options)
        assert one_line(caught.value)


@pytest.mark.parametrize(
    "prompt",
    [
        "", (), [], None, 5, 1.5, b"ab", bytearray(b"ab"), {"role": "user", "content": "x"}, {1, 2}, iter([80]),
        [-1], [512], [80, 512], [2**40], [80, True], [80, 1.0], [80, "a"], [None], np.array([80, 81]),
        [[{"role": "user", "content": "x"}]],
    ],
    ids=lambda value: repr(value)[:40],
)  # fmt: skip
def test_a_prompt_that_is_none(llm, prompt):
    for call in (llm.complete, llm.stream, llm.encode):
        with pytest.raises(BadRequestError) as caught:
            call(prompt)
        assert one_line(caught.value)


def test_a_token_id_out_of_range_is_named_with_the_range(llm):
    with pytest.raises(BadRequestError, match="token id 512 is not in the vocabulary; ids run from 0 to 511"):
        llm.complete([80, 512])
    for tokens in ([512], [-1], [2**40]):
        with pytest.raises(BadRequestError):
            llm.detokenize(tokens)


@pytest.mark.parametrize(
    "messages",
    [
        (), [], None, 5, "hi", b"hi", {"role": "user", "content": "x"}, [80, 81], ["hi"], [None], [[]], [{}],
        [{"role": "user"}], [{"content": "x"}], [{"role": "robot", "content": "x"}], [{"role": 1, "content": "x"}],
        [{"role": "user", "content": None}], [{"role": "user", "content": 5}], [{"role": "user", "content": b"x"}],
        [{"role": "user", "content": [{"type": "image_url"}]}], [{"role": "user", "content": ["x"]}],
        [{"role": "user", "content": "x", "name": "n"}], [{"role": "user", "content": "x"}, 5],
        [{"role": ["user"], "content": "x"}],
    ],
    ids=lambda value: repr(value)[:50],
)  # fmt: skip
def test_messages_that_are_none(llm, messages):
    with pytest.raises(BadRequestError) as caught:
        llm.chat(messages)
    assert one_line(caught.value)


def test_a_prompt_that_does_not_fit_gives_both_counts(llm):
    for prompt in ([80] * 512, "k7" * 1000, [80] * 20_000):
        with pytest.raises(ContextFullError, match="shorten the prompt or raise --ctx-size") as caught:
            llm.complete(prompt)
        assert one_line(caught.value)
        assert caught.value.needed == len(llm.encode(prompt))
        assert caught.value.available == 511
        assert f"{caught.value.needed} tokens" in str(caught.value)
    with pytest.raises(ContextFullError):
        llm.chat([{"role": "user", "content": "k7" * 1000}])


@pytest.mark.parametrize("kind", ["bpe", "spm"])
def test_twenty_thousand_repetitions_are_tokenized_or_refused(tiny, kind):
    """llama.cpp's pre-tokenizers recurse once per character: uncut, such a text ends the process."""
    path = tiny(vocab=TinyVocab(kind=kind), chat_template=CHATML_TEMPLATE)
    with edgespec.load(path, **SMALL) as llm:
        for character in ("a", " ", "\n", "7", "(", "é", "語", "🙂", "\x00", "\ud800", "a ", "\t\n", "<|im_start|>"):
            text = character * 20_000
            shown = llm.detokenize(llm.tokenize(text)).removeprefix(" " * llm.target.vocab.add_space_prefix)
            assert shown.replace("\N{REPLACEMENT CHARACTER}", "\ud800") == text
            with pytest.raises(ContextFullError):
                llm.chat([{"role": "user", "content": "x" + text + "x"}])
        assert llm.complete("x", max_tokens=1).tokens


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\ud83d\ude42", "a\x00b", "\x00", "\x1b[31m\x07"], ids=ascii)
def test_odd_characters_are_text(llm, text):
    assert llm.complete(text, max_tokens=3).finish_reason == "length"
    reply = llm.chat([{"role": "system", "content": text}, {"role": "user", "content": text}], max_tokens=3)
    assert len(reply.tokens) == 3
    expected = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    assert llm.detokenize(llm.tokenize(text)) == expected
