"""The app in a terminal that is not there, over a scripted model: press keys, wait for what follows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from textual.pilot import Pilot
from textual.widgets import Static

from edgespec.engine import scripted
from edgespec.engine.interface import Engine
from edgespec.engine.local import LocalEngine
from edgespec.engine.protocol import LoadSpec
from edgespec.history import History
from edgespec.tui.app import AppSettings, ChatApp
from edgespec.tui.chat_screen import ChatScreen
from edgespec.tui.composer import Composer

PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Chat:
    """A running app. history: where it saves."""

    app: ChatApp
    pilot: Pilot[None]
    history: History

    @property
    def screen(self) -> ChatScreen:
        screen = next(screen for screen in self.app.screen_stack if isinstance(screen, ChatScreen))
        assert isinstance(screen, ChatScreen)
        return screen

    @property
    def composer(self) -> Composer:
        return self.screen.composer

    @property
    def texts(self) -> list[str]:
        """Of the branch in use, as the history has them."""
        return [message.text for message in self.screen.session.messages]

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def type(self, text: str) -> None:
        """Key by key; a newline is Ctrl+J."""
        await self.pilot.press(*("ctrl+j" if c == "\n" else "space" if c == " " else c for c in text))

    async def until(self, condition: Callable[[], Any]) -> None:
        """Let the app work until something is so."""
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, "it did not come to be"
            await self.pilot.pause(0.02)

    async def idle(self) -> None:
        """No answer is being written, and what follows one is on the screen."""
        await self.until(lambda: not self.screen.busy)
        await self.pilot.pause()

    async def ask(self, text: str) -> None:
        """Send a message, and wait for the whole answer."""
        count = len(self.texts)
        self.composer.text = text
        await self.press("enter")
        await self.until(lambda: not self.screen.busy and len(self.texts) >= count + 2)
        await self.pilot.pause()

    @property
    def said(self) -> str:
        """The lines that go away by themselves."""
        return "\n".join(notification.message for notification in self.app._notifications)

    @property
    def banner(self) -> str:
        """The line above the message being written, if it is shown; on the screen it may take several."""
        banner = self.screen.query_one("#banner", Static)
        return str(banner.content) if banner.display else ""

    @property
    def shown(self) -> str:
        """Everything that is on the screen, as text."""
        lines = [strip.text for strip in self.app.screen._compositor.render_strips()]
        return "\n".join(lines)


@asynccontextmanager
async def chatting(
    history: Path,
    *,
    model: str = "scripted:echo",
    size: tuple[int, int] = (100, 30),
    engine: Engine | None = None,
    **settings: Any,
) -> AsyncIterator[Chat]:
    """The app with its model loaded."""
    async with opened(history, size=size, engine=engine, spec=LoadSpec(model=model, **_DRAFT), **settings) as chat:
        await chat.until(lambda: chat.screen.session.loaded is not None)
        yield chat


@asynccontextmanager
async def opened(
    history: Path, *, size: tuple[int, int] = (100, 30), engine: Engine | None = None, **settings: Any
) -> AsyncIterator[Chat]:
    """The app as it begins."""
    used = engine or LocalEngine(scripted.load)
    with History(history) as saved:
        app = ChatApp(used, saved, AppSettings(**settings))
        try:
            async with app.run_test(size=size, notifications=True) as pilot:
                await pilot.pause()
                yield Chat(app, pilot, saved)
        finally:
            if engine is None:
                used.close()


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


_DRAFT = {"draft": "scripted", "drafter": "model"}
