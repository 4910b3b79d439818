"""The app: a welcome, a chat, and what they share."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from textual.app import App, SystemCommand
from textual.screen import Screen

from ..chat_commands import APP, COMMANDS
from ..chat_session import ChatSession
from ..engine.interface import Engine
from ..engine.protocol import LoadSpec
from ..errors import EdgeSpecError
from ..history import History
from .attachments import Attachment
from .browser_driver import BrowserDriver
from .chat_screen import ChatScreen
from .hangup import part, watch_terminal
from .labels import line
from .welcome import Chosen, WelcomeScreen

_COLOURLESS = bool(os.environ.get("NO_COLOR"))
DEFAULT_THEME = "ansi-dark" if _COLOURLESS else "textual-dark"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppSettings:
    """What the command line and the configuration say.

    spec: the model; without a name in it, and without a conversation, the user is asked.  options: of requests.
    conversation: the one to go on with.  attached: what goes with the first message.  keys: by name, what config.toml
    has in place of the defaults.  saved: False where `history` ends with the program.
    """

    spec: LoadSpec = field(default_factory=LoadSpec)
    options: Mapping[str, Any] = field(default_factory=dict)
    system: str = ""
    conversation: int | None = None
    attached: tuple[Attachment, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)
    theme: str = DEFAULT_THEME
    saved: bool = True


class ChatApp(App[None]):
    """Everything slow is done by the engine, or in threads."""

    TITLE = "EdgeSpec"
    ENABLE_COMMAND_PALETTE = True

    def __init__(self, engine: Engine, history: History, settings: AppSettings) -> None:
        super().__init__(ansi_color=True if _COLOURLESS else None)  # else it would draw in greys
        self._engine, self._history, self._settings = engine, history, settings
        self._kept: History | None = None
        self.own_keys = settings.keys
        self.animation_level = "none"

    def on_mount(self) -> None:
        self.theme = self._settings.theme if self._settings.theme in self.available_themes else DEFAULT_THEME
        self.set_keymap({name: keys or f"unbound_{name}" for name, keys in self.own_keys.items()})
        for name in ("SIGTERM", "SIGHUP"):
            if hasattr(signal, name):
                with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                    asyncio.get_running_loop().add_signal_handler(getattr(signal, name), self.leave)
        if sys.__stdin__ is not None and not self.is_headless:
            loop = asyncio.get_running_loop()
            gone = (lambda: loop.call_soon_threadsafe(self.leave), self._last_words)
            watch_terminal(sys.__stdin__.fileno(), *gone)
            if isinstance(self._driver, BrowserDriver):
                self._driver.on_quit, self._driver.on_parted = self.leave, lambda: part(*gone)
        settings = self._settings
        if settings.spec.model is not None or settings.conversation is not None:
            self._open(Chosen(conversation=settings.conversation))
        else:
            self.push_screen(WelcomeScreen(self._latest()), self._open)

    def _latest(self) -> Any:
        try:
            return self._history.latest()
        except EdgeSpecError as error:
            self.notify(line(str(error)), severity="error", markup=False)
            return None

    def _open(self, chosen: Chosen | None) -> None:
        if chosen is None:
            self.exit()
            return
        settings = self._settings
        session = ChatSession(
            self._engine,
            self._history,
            settings.spec,
            options=settings.options,
            system=settings.system,
            saved=settings.saved,
        )
        if chosen.conversation is not None:
            conversation = session.open(chosen.conversation)
            if settings.spec.model is None and conversation.model:
                session.spec = _with_model(session.spec, conversation.model)
        elif chosen.model:
            session.spec = _with_model(session.spec, chosen.model)
        self.push_screen(ChatScreen(session, attached=settings.attached))

    def shows(self, session: ChatSession) -> None:
        """Told where the conversation may be another one: a page that is loaded again goes on with it."""
        if isinstance(self._driver, BrowserDriver):
            self._driver.tell_conversation((session.id or 0) if session.saved else 0)

    def saving_history(self) -> History:
        """The history that lasts, for a conversation that so far does not. Raises HistoryError."""
        if self._kept is None:
            self._kept = History()
        return self._kept

    def leave(self) -> None:
        """End; what is being written is saved as far as it came."""
        self.run_worker(self._leave(), group="leave", exclusive=True)

    async def _leave(self) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, ChatScreen):
                with contextlib.suppress(EdgeSpecError):
                    await screen.close_chat()
        if self._kept is not None:
            self._kept.close()
        self.exit()

    def _last_words(self) -> None:
        """Save what has come of a reply; in any thread."""
        for history in (self._history, self._kept):
            if history is not None:
                with contextlib.suppress(EdgeSpecError):
                    history.close()
        self._engine.close()

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The palette: the commands of the chat."""
        if not isinstance(screen, ChatScreen):
            return
        for row in COMMANDS.values():
            if APP in row.front_ends:
                yield SystemCommand(row.name.capitalize(), row.help, _run(screen, row.name, typed=row.needs_argument))

    def note(self, text: str) -> None:
        """Show a line; from any thread."""
        self.call_later(lambda: self.notify(line(text, 400), severity="warning", markup=False))

    async def action_quit(self) -> None:
        self.leave()

    def action_help_quit(self) -> None:
        """Ctrl+C without a selection."""
        self.notify("Ctrl+Q quits. Esc stops an answer. Ctrl+C copies what is marked.", markup=False)


def _run(screen: ChatScreen, name: str, *, typed: bool) -> Callable[[], None]:
    """Run a command, or begin to write one that needs more."""

    def run() -> None:
        if typed:
            screen.composer.put(f"/{name} ")
            screen.composer.focus()
        else:
            screen.command(name, "")

    return run


def _with_model(spec: LoadSpec, model: str) -> LoadSpec:
    import msgspec

    return msgspec.structs.replace(spec, model=model)
