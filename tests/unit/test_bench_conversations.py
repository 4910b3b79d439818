"""Prompts of a benchmark as token ids: later turns stand behind the model's own replies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import edgespec
from edgespec.bench.conversations import check, encoded
from edgespec.bench.prompts import BenchPrompt, Workload
from edgespec.errors import BadRequestError, ContextFullError
from edgespec.tiny_gguf import CHATML_TEMPLATE

FIRST = BenchPrompt("mine-1", ({"role": "user", "content": "One"},), "One")
SECOND = BenchPrompt("mine-1.2", ({"role": "user", "content": "Two"},), follows=True)
THIRD = BenchPrompt("mine-1.3", ({"role": "user", "content": "Three"},), follows=True)
OTHER = BenchPrompt("mine-2", ({"role": "user", "content": "Four"},), "Four")
MINE = Workload("mine", (FIRST, SECOND, THIRD, OTHER))


@pytest.fixture
def llm(tiny: Callable[..., Path]) -> Iterator[edgespec.LLM]:
    with edgespec.load(tiny(chat_template=CHATML_TEMPLATE), ctx_size=256, threads=1, buffers="none") as loaded:
        yield loaded


def test_each_turn_stands_behind_the_models_greedy_replies(llm: edgespec.LLM) -> None:
    said: list[dict[str, str]] = []
    for prompt, ids in encoded(llm, MINE, raw=False, max_tokens=6):
        if prompt is OTHER:
            said = []
        said.append(dict(prompt.messages[0]))
        assert ids == llm.encode(said)
        reply = llm.chat(said, temperature=0, max_tokens=6, draft_max=0)
        assert len(reply.tokens) == 6
        said.append({"role": "assistant", "content": reply.text})


def test_a_reply_is_made_when_its_turn_is_due(llm: edgespec.LLM) -> None:
    prompts = encoded(llm, MINE, raw=False, max_tokens=6)
    next(prompts)
    assert llm.stats is None  # nothing has been generated yet
    next(prompts)
    assert llm.stats is not None
    assert llm.stats.completion_tokens == 6


def test_first_turns_are_checked_ahead_of_time(llm: edgespec.LLM) -> None:
    assert check(llm, [MINE], raw=False) == llm.encode(FIRST.messages)
    long = BenchPrompt("long-1", ({"role": "user", "content": "x" * 400},), "x" * 400)
    with pytest.raises(ContextFullError, match=r"prompt long-1 has 4.. tokens and the context holds 256"):
        check(llm, [MINE, Workload("long", (long,))], raw=False)


def test_what_a_template_refuses_is_named(tiny: Callable[..., Path]) -> None:
    strict = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + CHATML_TEMPLATE
    prompt = BenchPrompt("mine-7", ({"role": "system", "content": "Be brief."}, *FIRST.messages))
    with (
        edgespec.load(tiny(chat_template=strict), ctx_size=256, threads=1, buffers="none") as loaded,
        pytest.raises(BadRequestError, match=r"prompt mine-7: .*no system"),
    ):
        check(loaded, [Workload("mine", (prompt,))], raw=False)


def test_without_a_template_there_is_no_second_turn(llm: edgespec.LLM) -> None:
    assert check(llm, [Workload("mine", (FIRST, OTHER))], raw=True) == llm.encode("One")
    with pytest.raises(BadRequestError, match=r"prompt mine-1.2 is a conversation; --raw takes"):
        check(llm, [MINE], raw=True)


def test_a_later_turn_may_not_fit(llm: edgespec.LLM) -> None:
    long = BenchPrompt("mine-1.2", ({"role": "user", "content": "x" * 400},), follows=True)
    workload = Workload("mine", (FIRST, long))
    check(llm, [workload], raw=False)
    prompts = encoded(llm, workload, raw=False, max_tokens=6)
    assert next(prompts)[0] is FIRST
    with pytest.raises(ContextFullError, match=r"prompt mine-1.2 has"):
        next(prompts)
