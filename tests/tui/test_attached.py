"""The app over a running server, with ServerEngine in place of its own engine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from chats import Chat, opened, run

from edgespec.engine.server_engine import ServerEngine
from edgespec.tui.token_inspector import TokenInspector
from foreign_server import OURS, foreign, frames, said, token, told
from running_server import MODEL, Running, running

NARROW = (90, 30)  # nothing beside the banner


@pytest.fixture(scope="module")
def count() -> Iterator[Running]:
    with running("scripted:count?decodes_per_s=100&sure=0.5", parallel=1) as server:
        yield server


@pytest.fixture(scope="module")
def echo() -> Iterator[Running]:
    with running("scripted:echo", parallel=1) as server:
        yield server


def attached(url: str, history: Path, **settings: object):  # type: ignore[no-untyped-def]
    engine = ServerEngine(url)
    return opened(history, engine=engine, spec=engine.spec, **settings)


async def loaded(chat: Chat) -> None:
    await chat.until(lambda: chat.screen.session.loaded is not None)


def test_a_chat_with_a_server(echo: Running, history: Path) -> None:
    async def test() -> None:
        async with attached(echo.base, history, size=(160, 40)) as chat:
            await loaded(chat)
            await chat.until(lambda: f"{MODEL} + scripted-echo  at http://127.0.0.1:{echo.port}" in chat.shown)
            await chat.ask("a robin, a robin, a robin, a robin")
            assert chat.texts == ["a robin, a robin, a robin, a robin"] * 2
            details = chat.history.details(chat.screen.session.messages[-1].id)
            assert "".join(event.text for event in details.tokens) == chat.texts[1]
            assert details.rounds
            assert sum(r.accepted for r in details.rounds) > 0
            await chat.until(lambda: "tokens were guessed right" in chat.shown)
            await chat.press("ctrl+r")
            await chat.until(lambda: len(chat.screen.session.branches(chat.screen.session.messages[-1].id)) == 2)
            await chat.idle()

    run(test())


def test_the_model_is_the_servers(echo: Running, history: Path) -> None:
    async def test() -> None:
        async with attached(echo.base, history, size=NARROW) as chat:
            await loaded(chat)
            for command in ("/model other", "/model", "/drafter none", "/draft other"):
                chat.screen.warn("")
                chat.composer.text = command
                await chat.press("enter")
                await chat.until(lambda: "this chat is attached to" in chat.shown)
            assert chat.screen.panel.query_one("#switch").disabled
            await chat.ask("still here")
            assert chat.texts == ["still here"] * 2
            chat.composer.text = "/continue"
            await chat.press("enter")
            await chat.until(lambda: "cannot go on through a server" in " ".join(chat.shown.split()))

    run(test())


def test_esc_stops_and_frees_the_place(count: Running, history: Path) -> None:
    async def test() -> None:
        async with attached(count.base, history) as chat:
            await loaded(chat)
            chat.composer.text = "count"
            await chat.press("enter")
            await chat.until(lambda: "3 4 5" in chat.shown)
            await chat.press("escape")
            await chat.idle()
            last = chat.screen.session.messages[-1]
            assert last.finish_reason == "cancelled"
            assert last.text.startswith("1 2 3 4 5")
        count.reaches("requests_running", 0, within_s=20)

    run(test())


def test_a_server_that_dies_in_the_middle(history: Path) -> None:
    async def test() -> None:
        with foreign(models=OURS, stream=frames(told(token("It begins ")), told(token("well")), done=False)) as server:
            async with attached(server.url, history, size=NARROW) as chat:
                await loaded(chat)
                await chat.ask("hello")
                await chat.until(lambda: "in the middle of the answer" in " ".join(chat.shown.split()))
                last = chat.screen.session.messages[-1]
                assert (last.text, last.finish_reason) == ("It begins well", "error")
                server.stream = frames(said("never seen"), told(token("well")), done=False)
                await chat.press("ctrl+r")
                await chat.until(lambda: len(server.asked) == 2)
                await chat.idle()

    run(test())


def test_nobody_there_until_there_is(history: Path) -> None:
    async def test() -> None:
        with foreign() as server:
            url = server.url
        async with attached(url, history) as chat:
            await chat.until(lambda: "no server answers at" in chat.shown)
            assert "chooses a model" not in chat.shown
            chat.composer.text = "anybody?"
            await chat.press("enter")
            await chat.until(lambda: not chat.screen.busy and "no server answers at" in chat.shown)

    run(test())


def test_another_server_has_no_speculation_to_show(history: Path) -> None:
    async def test() -> None:
        evil = "\x1b]0;title\x07[bold]hi[/bold]\x9b31m"
        hold = threading.Event()
        with foreign(stream=frames(said(evil), said(" there", finish_reason="stop")), hold=hold) as server:
            server.models = {"data": [{"id": "\x1b[31mred\nname" + "x" * 300}]}
            async with attached(server.url, history, size=(160, 40)) as chat:
                await loaded(chat)
                await chat.ask("hello")
                assert "\x1b" not in chat.shown
                assert "hi" in chat.shown
                assert "is not EdgeSpec's" in " ".join(chat.shown.split()) or "does not say" in chat.shown
                await chat.press("escape")
                chat.screen.inspector.display = True
                assert chat.screen.query_one(TokenInspector).display
                hold.set()

    run(test())


def test_closing_an_app_over_a_server(count: Running, history: Path) -> None:
    async def test() -> None:
        engine = ServerEngine(count.base)
        with closing(engine):
            async with opened(history, engine=engine, spec=engine.spec) as chat:
                await loaded(chat)
                chat.composer.text = "count"
                await chat.press("enter")
                await chat.until(lambda: "3 4 5" in chat.shown)
                await chat.press("ctrl+q")
                await chat.until(lambda: not chat.app.is_running)
        count.reaches("requests_running", 0, within_s=20)

    run(test())
