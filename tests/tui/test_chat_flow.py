"""Asking, stopping, asking again, branches: through the keyboard."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from chats import PATIENCE_S, chatting, run

from edgespec.engine.scripted import ScriptedModel
from edgespec.history import History
from edgespec.scoring import Rows, ScoreRequest

SLOW = "scripted:count?decodes_per_s=40"


def test_a_question_is_answered_and_saved(history: Path) -> None:
    async def test() -> None:
        async with chatting(history) as chat:
            await chat.type("hello there")
            await chat.press("enter")
            await chat.until(lambda: chat.texts == ["hello there", "hello there"] and not chat.screen.busy)
            assert chat.shown.count("hello there") >= 2
            assert chat.composer.text == ""

    run(test())
    with History(history) as saved:
        (conversation,) = saved.conversations()
        assert [m.finish_reason for m in saved.path(conversation.id)] == ["", "stop"]


def test_escape_stops_at_once_and_keeps_the_text(history: Path) -> None:
    async def test() -> None:
        async with chatting(history, model=SLOW) as chat:
            await chat.type("count")
            await chat.press("enter")
            await chat.until(lambda: chat.screen.answer_view is not None and "3" in chat.screen.answer_view.text)
            begin = time.monotonic()
            await chat.press("escape")
            await chat.until(lambda: not chat.screen.busy)
            assert time.monotonic() - begin < 1.0  # 0.2 s on an idle machine
            last = chat.screen.session.messages[-1]
            assert last.finish_reason == "cancelled"
            assert last.text.startswith("1 2 3")
            assert "stopped" in chat.shown

    run(test())


def test_escape_stops_while_the_prompt_is_read(history: Path) -> None:
    async def test() -> None:
        async with chatting(history, model="scripted:echo?reads_per_s=20") as chat:
            chat.composer.text = "a long question " * 40
            await chat.press("enter")
            await chat.until(lambda: chat.screen.busy)
            await chat.press("escape")
            await chat.until(lambda: not chat.screen.busy)
            assert [m.role for m in chat.screen.session.messages] == ["user"]

    run(test())


def test_the_next_message_waits_and_is_sent(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decode, may_decode = ScriptedModel.score, threading.Event()

    def held(model: ScriptedModel, requests: Sequence[ScoreRequest]) -> list[Rows]:
        may_decode.wait(PATIENCE_S)
        return decode(model, requests)

    monkeypatch.setattr(ScriptedModel, "score", held)

    async def test() -> None:
        async with chatting(history) as chat:
            chat.composer.text = "first"
            await chat.press("enter")
            await chat.until(lambda: chat.screen.busy)
            chat.composer.text = "second"
            await chat.press("enter")
            await chat.until(lambda: "next: second" in chat.shown)
            may_decode.set()
            await chat.until(lambda: len(chat.texts) == 4 and not chat.screen.busy)
            assert chat.texts[2:] == ["second", "second"]

    run(test())


def test_what_waits_comes_back_when_the_answer_is_stopped(history: Path) -> None:
    async def test() -> None:
        async with chatting(history, model=SLOW) as chat:
            await chat.type("count")
            await chat.press("enter")
            await chat.until(lambda: chat.screen.answer_view is not None and chat.screen.answer_view.text)
            chat.composer.text = "and then"
            await chat.press("enter", "escape")
            await chat.until(lambda: chat.composer.text == "and then")

    run(test())


def test_answers_made_again_are_branches(history: Path) -> None:
    async def test() -> None:
        async with chatting(history) as chat:
            await chat.ask("one")
            await chat.press("ctrl+r")
            await chat.until(lambda: chat.screen.session.messages[-1].branches == 2 and not chat.screen.busy)
            assert "‹ 2/2 ›" in chat.shown
            await chat.press("shift+tab", "left")
            await chat.until(lambda: "‹ 1/2 ›" in chat.shown)
            await chat.press("right")
            await chat.until(lambda: "‹ 2/2 ›" in chat.shown)

    run(test())


def test_an_edited_message_is_a_branch_and_nothing_is_lost(history: Path) -> None:
    async def test() -> None:
        async with chatting(history) as chat:
            await chat.ask("red")
            await chat.ask("green")
            await chat.press("shift+tab", "up", "e")
            await chat.until(lambda: chat.composer.text == "green")
            chat.composer.text = "blue"
            await chat.press("enter")
            await chat.until(lambda: chat.texts == ["red", "red", "blue", "blue"] and not chat.screen.busy)
            await chat.type("/branch 1")
            await chat.press("enter")
            await chat.until(lambda: chat.texts[2:] != ["blue", "blue"])

    run(test())
    with History(history) as saved:
        exported = json.loads(saved.export_json())["conversations"][0]
        assert {message["text"] for message in exported["messages"]} == {"red", "green", "blue"}


def test_a_stopped_answer_goes_on(history: Path) -> None:
    async def test() -> None:
        async with chatting(history, model=SLOW) as chat:
            await chat.type("count")
            await chat.press("enter")
            await chat.until(lambda: chat.screen.answer_view is not None and "5" in chat.screen.answer_view.text)
            await chat.press("escape")
            await chat.until(lambda: not chat.screen.busy)
            before = chat.texts[-1]
            await chat.type("/continue")
            await chat.press("enter")
            await chat.until(lambda: chat.screen.busy and len(chat.screen.answer_view.text) > len(before) + 8)
            await chat.press("escape")
            await chat.until(lambda: not chat.screen.busy)
            assert chat.texts[-1].startswith(before)
            assert chat.screen.answer_view.text == chat.texts[-1]

    run(test())


def test_a_full_context_says_what_to_do(history: Path) -> None:
    async def test() -> None:
        async with chatting(history, model="scripted:echo?n_ctx=64") as chat:
            chat.composer.text = "many words " * 20
            await chat.press("enter")
            await chat.until(lambda: "The context is full" in chat.shown)
            assert "/new" in chat.shown
            await chat.idle()
            assert chat.texts[0].startswith("many words")

    run(test())
