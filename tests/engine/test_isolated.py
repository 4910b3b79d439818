"""edgespec.load(..., isolated=True): the Python API over a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import edgespec
from edgespec.engine.isolated import IsolatedLLM
from edgespec.errors import BadRequestError, EngineDied, ModelNotFoundError
from edgespec.stats import RoundEvent
from edgespec.tiny_gguf import CHATML_TEMPLATE

SETTINGS: dict[str, Any] = {"draft": "none", "ctx_size": 256, "threads": 1, "buffers": "none"}
MESSAGES = [{"role": "user", "content": "Name three rivers."}]

ASKED: list[Callable[[Any], Any]] = [
    lambda llm: llm.complete("One two", max_tokens=12, seed=3),
    lambda llm: llm.chat(MESSAGES, max_tokens=12, seed=4),
]


@pytest.fixture(scope="module")
def path(tiny: Callable[..., Path]) -> Path:
    return tiny(chat_template=CHATML_TEMPLATE)


@pytest.fixture(scope="module")
def llm(path: Path) -> Iterator[Any]:
    with edgespec.load(path, isolated=True, **SETTINGS) as made:
        yield made


def test_it_answers_what_the_model_in_this_process_answers(llm: Any, path: Path) -> None:
    assert isinstance(llm, IsolatedLLM)
    with edgespec.load(path, **SETTINGS) as here:
        for ask in ASKED:
            mine, theirs = ask(here), ask(llm)
            assert (mine.text, mine.tokens, mine.finish_reason, mine.seed) == (
                theirs.text,
                theirs.tokens,
                theirs.finish_reason,
                theirs.seed,
            )
        assert llm.encode(MESSAGES) == here.encode(MESSAGES)
        assert llm.tokenize("One two") == here.tokenize("One two")
        assert llm.detokenize(here.tokenize("One two")) == "One two"
        assert (llm.name, llm.drafter, llm.why, llm.notes) == (here.name, here.drafter, here.why, here.notes)


def test_streams_are_iterated_cancelled_and_closed(llm: Any) -> None:
    with llm.stream("One two", max_tokens=20, seed=1) as stream:
        events = list(stream.events())
    assert any(isinstance(event, RoundEvent) for event in events)
    assert llm.stats == stream.reply.stats
    with llm.stream("One two", max_tokens=200) as stream:
        first = next(stream)
    assert stream.reply.finish_reason == "cancelled"
    assert stream.reply.text.startswith(first.text)


def test_asyncio_twins(llm: Any) -> None:
    async def ask() -> tuple[str, str, str]:
        streamed = "".join([event.text async for event in llm.astream("One two", max_tokens=8, seed=2)])
        reply = await llm.acomplete("One two", max_tokens=8, seed=2)
        chat = await llm.achat(MESSAGES, max_tokens=4, seed=2)
        return streamed, reply.text, chat.finish_reason

    streamed, whole, reason = asyncio.run(ask())
    assert streamed == whole
    assert reason in ("stop", "length")


def test_what_is_wrong_is_said_as_in_this_process(llm: Any) -> None:
    for act in (
        lambda: llm.complete("x", temprature=1),
        lambda: llm.complete("x", temperature=-1),
        lambda: llm.complete(""),
        lambda: llm.complete(5),
        lambda: llm.complete([1, "x"]),
        lambda: llm.complete([10**9]),
        lambda: llm.chat("text"),
        lambda: llm.chat([]),
        lambda: llm.complete("x", deadline_s=-1),
    ):
        with pytest.raises(BadRequestError):
            act()
    with pytest.raises(AttributeError, match="in another process; load it without isolated=True"):
        _ = llm.target
    with pytest.raises(ModelNotFoundError):
        edgespec.load("/nowhere/model.gguf", isolated=True)


def test_a_kill_ends_the_request_and_the_next_is_answered(path: Path) -> None:
    with edgespec.load(path, isolated=True, **SETTINGS) as llm:
        stream = llm.stream("One two", max_tokens=200)
        token = next(stream)
        os.kill(llm._engine.pid, signal.SIGKILL)  # type: ignore[attr-defined]
        with pytest.raises(EngineDied):
            list(stream)
        stream.close()
        assert stream.reply.text.startswith(token.text)
        assert llm.complete("One two", max_tokens=4).tokens
