"""The site behind a page, with small programs in place of the app."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import aiohttp
import psutil
import pytest
from aiohttp import web

from edgespec.browser import site as site_module
from edgespec.browser import visitor as visitor_module
from edgespec.browser.site import Site
from edgespec.errors import EngineError

PATIENCE_S = 30.0
SAYS = "import signal, sys, time; say = lambda text: (sys.stdout.write(text), sys.stdout.flush()); "
SLEEPS = "; time.sleep(600)"
SPEAKS = SAYS + "say('__GANGLION__\\n' + 'D\\0\\0\\0\\5hello')" + SLEEPS
STUBBORN = (
    SAYS + "signal.signal(signal.SIGTERM, signal.SIG_IGN); say('__GANGLION__\\n' + 'D\\0\\0\\0\\5hello')" + SLEEPS
)
NOISE = SAYS + "say('__GANGLION__\\n' + 'M\\0\\0\\0\\5[1,2]' * 3)" + SLEEPS
FAILS = SAYS + "sys.exit('edgespec: \\x1b[31mno luck')"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of these programs ends by itself."""
    monkeypatch.setattr(visitor_module, "_LEAVE_S", 0.05)
    monkeypatch.setattr(visitor_module, "_TERM_S", 0.05)


@asynccontextmanager
async def visited(program: str, attach: object = None) -> AsyncIterator[tuple[Site, aiohttp.ClientWebSocketResponse]]:
    """(site, the socket of a page of it)"""

    def command(conversation: int | None) -> Sequence[str]:
        return [sys.executable, "-c", program]

    site = Site(0, command, attach if callable(attach) else lambda: None)
    runner = web.AppRunner(site.app(), shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        base = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as client:
            async with client.get(f"{base}/?key={site.key}") as answer:
                page = await answer.text()
            found = re.search(r'"(ws://[^"]+)"', page)
            assert found
            async with client.ws_connect(found[1]) as socket:
                yield site, socket
    finally:
        await site.close()
        await runner.cleanup()


def apps(program: str) -> list[psutil.Process]:
    """Those that run."""
    return [child for child in psutil.Process().children() if program in child.cmdline()]


async def drawn(socket: aiohttp.ClientWebSocketResponse) -> str:
    """All that the page is sent until the other side closes it."""
    async with asyncio.timeout(PATIENCE_S):
        return b"".join([message.data async for message in socket]).decode()


def test_what_an_app_says_that_does_not_start_is_shown() -> None:
    async def work() -> None:
        async with visited(FAILS) as (_, socket):
            assert (await drawn(socket)).split("\r\n") == ["", "edgespec: no luck"]

    asyncio.run(work())


def test_an_app_that_says_nonsense_ends_its_page_alone() -> None:
    async def work() -> None:
        async with visited(NOISE) as (_, socket):
            assert await drawn(socket) == ""

    asyncio.run(work())


@pytest.mark.parametrize("program", [SPEAKS, STUBBORN], ids=["told by a signal", "killed"])
def test_an_app_that_does_not_listen_is_ended(program: str) -> None:
    async def work() -> None:
        async with visited(program) as (site, socket):
            assert (await socket.receive(PATIENCE_S)).data == b"hello"
            (app,) = apps(program)
            async with asyncio.timeout(PATIENCE_S):
                await site.close()
            assert not app.is_running()

    asyncio.run(work())


def test_an_app_that_has_not_begun_is_ended_at_once() -> None:
    async def work() -> None:
        program = SAYS.rstrip("; ") + SLEEPS
        async with visited(program) as (site, _):
            async with asyncio.timeout(PATIENCE_S):
                while not (started := apps(program)):
                    await asyncio.sleep(0.01)
            (app,) = started
            await site.close()
            assert not app.is_running()

    asyncio.run(work())


def test_too_many_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_module, "MOST_VISITORS", 0)

    async def work() -> None:
        async with visited(SPEAKS) as (_, socket):
            assert "pages are open" in await drawn(socket)

    asyncio.run(work())


def test_an_engine_that_does_not_start_is_said() -> None:
    def attach() -> None:
        raise EngineError("the engine is \x1b[31mtired")

    async def work() -> None:
        async with visited(SPEAKS, attach) as (_, socket):
            assert await drawn(socket) == "the engine is tired\r\n"

    asyncio.run(work())


def test_nonsense_from_a_page_is_passed_over() -> None:
    async def work() -> None:
        async with visited(SPEAKS) as (_, socket):
            assert (await socket.receive(PATIENCE_S)).data == b"hello"
            sizes = ({"width": "wide", "height": None}, {"width": 10**12, "height": -5}, [])
            for text in ("", "{}", "[]", "[1]", '["stdin"]', '["stdin", 1]', '["unknown", {}]', "[" * 2000):
                await socket.send_str(text)
            for size in sizes:
                await socket.send_json(["resize", size])
            await socket.send_bytes(b"\0" * 100)
            await socket.send_json(["ping", "17"])
            async with asyncio.timeout(PATIENCE_S):
                assert await socket.receive_json() == ["pong", "17"]

    asyncio.run(work())
