"""The engine's process is killed during chats: the screen lives, and nothing that was saved is lost."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest
from chats import chatting, run

from edgespec.engine.client import WorkerEngine

LOADER = "edgespec.engine.scripted:load"
_TURNS = 40  # of one conversation, so that its context does not fill


async def _killed(history: Path, times: int, seed: int) -> None:
    chance = random.Random(seed)
    engine = WorkerEngine(shared=False, loader=LOADER)
    try:
        async with chatting(history, model="scripted:count?decodes_per_s=200", engine=engine) as chat:
            for number in range(times):
                if number and not number % _TURNS:
                    await chat.press("ctrl+n")
                    await chat.until(lambda: not chat.texts)
                kept = list(chat.texts)
                chat.composer.text = "count"
                await chat.press("enter")
                await chat.until(lambda: chat.screen.busy)
                seen = chance.randrange(0, 40)
                await chat.until(
                    lambda seen=seen: chat.screen.answer_view is not None and len(chat.screen.answer_view.text) >= seen
                )
                assert engine.pid is not None
                os.kill(engine.pid, signal.SIGKILL)
                await chat.until(lambda: not chat.screen.busy)
                await chat.until(lambda: "Your chat is saved" in chat.banner)
                assert chat.texts[: len(kept)] == kept
                await chat.press("ctrl+r")
                await chat.until(
                    lambda: chat.screen.busy and chat.screen.answer_view is not None and chat.screen.answer_view.text
                )
                await chat.press("escape")
                await chat.until(lambda: not chat.screen.busy)
                assert chat.texts[-1].startswith("1 2")
                assert "Your chat is saved" not in chat.banner
    finally:
        engine.close()


def test_a_killed_engine_is_started_again(history: Path) -> None:
    run(_killed(history, 2, 1))


@pytest.mark.soak
def test_it_is_killed_two_hundred_times(history: Path) -> None:
    run(_killed(history, 200, 2))
