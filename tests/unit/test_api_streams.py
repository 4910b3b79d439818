"""Streams of the Python API: closing, cancelling, several at once, threads and asyncio."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import edgespec
from edgespec import LLM, DecodeError, Reply
from edgespec.tiny_gguf import CHATML_TEMPLATE

GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 24}
MESSAGES = [{"role": "user", "content": "Tell me more"}]
PROMPTS = ("and the other", "some people could make", "more of it", "would be there")
LONG_PROMPT = [80, 82] * 8000  # reading it takes several seconds


@pytest.fixture(scope="module")
def chat(tiny: Callable[..., Path]) -> Path:
    return tiny(chat_template=CHATML_TEMPLATE, n_ctx_train=16384)


@pytest.fixture(scope="module")
def draft(tiny: Callable[..., Path]) -> Path:
    return tiny(noise=0.05, n_ctx_train=16384)


@pytest.fixture(scope="module")
def llm(chat: Path, draft: Path) -> Iterator[LLM]:
    """A target with a draft model and lookup."""
    with edgespec.load(chat, draft=draft, ctx_size=512, threads=1) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def long_llm(chat: Path) -> Iterator[LLM]:
    """Room for answers and prompts that take seconds."""
    with edgespec.load(chat, ctx_size=16384, threads=1) as loaded:
        yield loaded


def owned(llm: LLM) -> int:
    """How many caches, the draft's included, a request holds."""
    contexts = [c for c in (llm.target, llm.draft) if c is not None]
    return sum(slot.owner is not None for context in contexts for slot in context._slots)


def test_closing_a_stream_keeps_its_text(llm):
    stream = llm.stream(MESSAGES, temperature=0)
    taken = [next(stream) for _ in range(5)]
    stream.close()
    reply = stream.reply
    assert reply.finish_reason == "cancelled"
    assert reply.tokens[:5] == tuple(e.id for e in taken)
    assert reply.text == llm.detokenize(reply.tokens)
    assert len(reply.logprobs) <= len(reply.tokens)
    assert list(stream) == []
    assert owned(llm) == 0
    stream.close()  # again: nothing
    assert stream.reply == reply
    assert llm.stats is reply.stats


def test_leaving_the_loop_or_failing_in_it_closes_the_stream(llm):
    with llm.stream(MESSAGES, temperature=0) as stream:
        for _ in stream:
            break
    assert owned(llm) == 0
    with suppress(ZeroDivisionError), llm.stream(MESSAGES, temperature=0) as stream:
        for _ in stream:
            raise ZeroDivisionError
    assert (owned(llm), stream.reply.finish_reason) == (0, "cancelled")
    unused = llm.stream(MESSAGES)
    unused.close()
    assert (owned(llm), unused.reply.text) == (0, "")


def test_cancel_from_another_thread_ends_a_long_answer(long_llm):
    stream = long_llm.stream(MESSAGES, temperature=0)
    timer = threading.Timer(0.3, stream.cancel)
    timer.start()
    events = list(stream)
    timer.join()
    assert stream.reply.finish_reason == "cancelled"
    assert 0 < len(events) < 16000
    assert "".join(e.text for e in events) == stream.reply.text


def test_cancel_from_another_thread_ends_a_long_prompt(long_llm):
    stream = long_llm.stream(LONG_PROMPT)
    timer = threading.Timer(0.4, stream.cancel)
    timer.start()
    started = time.perf_counter()
    assert list(stream) == []
    timer.join()
    assert stream.reply.finish_reason == "cancelled"
    assert time.perf_counter() - started < 3
    assert owned(long_llm) == 0
    assert long_llm.chat(MESSAGES, **GREEDY).finish_reason == "length"  # the model is as good as before


def test_a_held_back_start_of_a_stop_string_is_shown_when_cancelled(llm):
    text = llm.chat(MESSAGES, **GREEDY).text
    stop = text[6:9] + "\N{SNOWMAN}"  # its beginning is held back, and never becomes the whole
    stream = llm.stream(MESSAGES, temperature=0, stop=stop)
    shown = ""
    for event in stream:
        shown += event.text
        if len(stream.reply.tokens) >= 10:
            stream.cancel()
    assert shown == stream.reply.text == text[: len(shown)]


def test_two_streams_taken_in_turns_are_what_they_are_alone(llm):
    alone = [llm.complete(p, **GREEDY).text for p in PROMPTS[:2]]
    streams = [llm.stream(p, **GREEDY) for p in PROMPTS[:2]]
    texts = ["", ""]
    running = {0, 1}
    while running:
        for i in sorted(running):
            event = next(streams[i], None)
            if event is None:
                running.discard(i)
            else:
                texts[i] += event.text
    assert texts == alone
    assert [s.reply.text for s in streams] == alone


def test_more_streams_than_caches_take_turns(chat):
    with edgespec.load(chat, ctx_size=128, threads=1, parallel=2) as small:
        alone = [small.complete(p, **GREEDY).text for p in PROMPTS]
        streams = [small.stream(p, **GREEDY) for p in PROMPTS]
        for _ in range(24):
            for stream in streams:
                next(stream, None)
        assert [s.reply.text for s in streams] == alone
        for stream in streams:
            stream.close()
        assert owned(small) == 0


def test_threads_do_not_disturb_each_other(llm):
    alone = [llm.complete(p, **GREEDY).text for p in PROMPTS[:2]]
    got: dict[int, list[str]] = {0: [], 1: []}

    def work(i: int) -> None:
        got[i] += [llm.complete(PROMPTS[i], **GREEDY).text for _ in range(4)]

    workers = [threading.Thread(target=work, args=(i,)) for i in got]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert got == {0: [alone[0]] * 4, 1: [alone[1]] * 4}


def test_a_stream_may_be_closed_while_another_thread_waits_for_it(long_llm):
    stream = long_llm.stream(LONG_PROMPT)
    got: list[object] = []
    reader = threading.Thread(target=lambda: got.extend(stream))
    reader.start()
    time.sleep(0.3)
    stream.close()
    reader.join(10)
    assert not reader.is_alive()
    assert (got, stream.reply.finish_reason, owned(long_llm)) == ([], "cancelled", 0)


def test_the_async_twins_give_the_same(llm):
    async def gather() -> tuple[Reply, Reply, str]:
        chat, complete = await asyncio.gather(llm.achat(MESSAGES, **GREEDY), llm.acomplete(PROMPTS[0], **GREEDY))
        streamed = [event.text async for event in llm.astream(MESSAGES, **GREEDY)]
        return chat, complete, "".join(streamed)

    chat, complete, streamed = asyncio.run(gather())
    assert chat.text == streamed == llm.chat(MESSAGES, **GREEDY).text
    assert complete.text == llm.complete(PROMPTS[0], **GREEDY).text


def test_an_async_stream_closed_early_frees_its_cache(llm):
    async def first() -> str:
        events = llm.astream(MESSAGES, temperature=0)
        async for event in events:
            await events.aclose()
            return event.text
        return ""

    assert llm.chat(MESSAGES, **GREEDY).text.startswith(asyncio.run(first()))
    assert owned(llm) == 0
    assert llm.stats.completion_tokens < 100


@pytest.mark.parametrize("how", ["acomplete", "astream"])
def test_cancelling_the_task_cancels_the_request(long_llm, how):
    """Also while a prompt is being read, when the stream is in use in another thread."""

    async def consume() -> None:
        async for _ in long_llm.astream(LONG_PROMPT):
            pass

    async def run() -> None:
        task = asyncio.ensure_future(consume() if how == "astream" else long_llm.acomplete(LONG_PROMPT))
        await asyncio.sleep(0.4)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    started = time.perf_counter()
    asyncio.run(run())
    assert time.perf_counter() - started < 3
    assert owned(long_llm) == 0


def test_nothing_works_after_close(chat, draft):
    with edgespec.load(chat, draft=draft, ctx_size=64, threads=1) as loaded:
        stream = loaded.stream(MESSAGES)
        next(stream)
    with pytest.raises(DecodeError, match="closed"):
        list(stream)
    stream.close()
    assert stream.reply.finish_reason == "cancelled"
    for call in (
        lambda: loaded.complete("x"),
        lambda: loaded.chat(MESSAGES),
        lambda: loaded.stream([80]),
        lambda: loaded.tokenize("x"),
    ):
        with pytest.raises(DecodeError, match="closed"):
            call()
    loaded.close()
