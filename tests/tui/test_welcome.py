"""The first screen: what is here, what can be fetched, and three keys to an answer."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chats import Chat, opened, run
from textual.widgets import OptionList

from edgespec.engine.local import LocalEngine
from edgespec.history import History
from edgespec.loading import load_for_engine
from edgespec.tiny_gguf import CHATML_TEMPLATE
from edgespec.tui import fetching
from edgespec.tui.welcome import WelcomeScreen


async def listed(chat: Chat) -> OptionList:
    """The list of models, once it is there."""
    await chat.until(lambda: isinstance(chat.app.screen, WelcomeScreen) and chat.app.screen.query("#models"))
    models = chat.app.screen.query_one("#models", OptionList)
    await chat.until(lambda: models.highlighted is not None)
    return models


@pytest.fixture
def here(probed: Path, tiny: Callable[..., Path]) -> Path:
    """A model that can chat, and nothing else on the disk."""
    (probed / "models").mkdir()
    source = tiny(chat_template=CHATML_TEMPLATE, n_ctx_train=512)
    return Path(shutil.copy(source, probed / "models" / "tiny-chat.gguf"))


def test_from_an_empty_home_to_an_answer_in_three_keys(here: Path, history: Path) -> None:
    engine = LocalEngine(load_for_engine)

    async def test() -> None:
        async with opened(history, engine=engine, options={"max_tokens": 8, "draft_max": 0}) as chat:
            await listed(chat)
            assert "On this machine" in chat.shown
            assert "tiny-chat" in chat.shown
            await chat.press("enter")
            await chat.until(lambda: chat.app.screen.query("Composer"))
            await chat.type("hi")
            await chat.press("enter")
            await chat.until(lambda: len(chat.texts) == 2 and not chat.screen.busy)
            assert chat.screen.session.messages[-1].finish_reason == "length"

    try:
        run(test())
    finally:
        engine.close()


def test_nothing_here_still_offers_models_with_reasons(history: Path) -> None:
    async def test() -> None:
        async with opened(history, size=(110, 30)) as chat:
            await listed(chat)
            assert "Can be fetched" in chat.shown
            assert (
                "Nothing is fetched before you press Enter" in chat.shown.replace("\n", " ") or "license" in chat.shown
            )
            assert "On this machine" not in chat.shown

    run(test())


def test_a_fetch_shows_how_far_it_is_and_can_be_stopped(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = threading.Event()

    def slow(item: Any, progress: Any) -> Path:
        try:
            for done in range(1, 10_000):
                progress("download", done * 1_000_000, 10_000_000_000)
                threading.Event().wait(0.01)
        except BaseException:
            stopped.set()
            raise
        return Path("never")

    monkeypatch.setattr(fetching, "fetch", slow)

    async def test() -> None:
        async with opened(history, size=(110, 30)) as chat:
            await listed(chat)
            await chat.press("enter")
            await chat.until(lambda: "of 10.0 GB" in chat.shown)
            await chat.press("escape")
            await chat.until(lambda: "what has arrived is kept" in chat.shown)

    run(test())
    assert stopped.is_set()


def test_the_latest_conversation_is_offered_first(history: Path) -> None:
    with History(history) as saved:
        number = saved.new_conversation(model="scripted:echo", title="Old talk")
        saved.add_message(number, None, "user", "what was said")

    async def test() -> None:
        async with opened(history) as chat:
            await listed(chat)
            assert "Go on: Old talk" in chat.shown
            await chat.press("enter")
            await chat.until(lambda: chat.app.screen.query("Composer"))
            await chat.until(lambda: chat.texts == ["what was said"])
            await chat.until(lambda: chat.screen.session.loaded is not None)

    run(test())


def test_a_model_that_cannot_be_loaded_says_why_and_another_can_be_chosen(history: Path, tmp_path: Path) -> None:
    from edgespec.engine.protocol import LoadSpec

    async def test() -> None:
        async with opened(history, spec=LoadSpec(model="scripted:nonesuch")) as chat:
            await chat.until(lambda: "there is no file nonesuch" in chat.shown)
            await chat.press("ctrl+o")
            await listed(chat)
            await chat.press("escape")
            await chat.until(lambda: not isinstance(chat.app.screen, WelcomeScreen))

    run(test())
