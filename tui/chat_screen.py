"""The chat: messages, the place where they are written, and the answer that is being written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from textual import on
from textual.binding import BindingType
from textual.widgets import TextArea

from ..chat_commands import APP, parse
from ..chat_commands import message as as_message
from ..chat_session import ChatSession
from ..engine.protocol import Loading
from ..errors import EdgeSpecError
from .actions import ACTIONS
from .answering import EMPTY, Answering
from .attachments import Attachment, with_attachments
from .background import in_thread
from .completion import completed
from .composer import Composer
from .keys import screen_bindings
from .labels import line
from .message_view import MessageView
from .sidebar import Sidebar
from .speculation_panel import DrafterChosen
from .token_view import TokenView
from .welcome import WelcomeScreen

_TICK_S = 0.2  # between two lines on how far loading is
_WIDE, _WIDER = 100, 140  # columns from which on the list, and the panel beside it, are shown unasked


class ChatScreen(Answering):
    """Over one ChatSession. What is slow happens in threads; commands run beside the screen, not in its queue."""

    BINDINGS: ClassVar[list[BindingType]] = screen_bindings()

    def __init__(self, session: ChatSession, *, attached: tuple[Attachment, ...] = ()) -> None:
        super().__init__(session, attached)
        self.deleted: list[int] = []

    async def on_mount(self) -> None:
        self.sidebar.display = self.app.size.width >= _WIDE
        self.panel.display = self.app.size.width >= _WIDER
        self.inspector.display = False
        self.warn("")
        self.composer.focus()
        self.above()
        self.begin(self.reopen(), "command")
        self.begin(self.load(), "load")

    # Loading

    async def load(self, **fields: str) -> bool:
        """Have the model ready, after a change of its fields; False where it cannot be loaded, which is said."""
        await self.settle()
        self._loading = "loading the model"
        self.meter.activity(self._loading)
        ticking = self.set_interval(_TICK_S, lambda: self.meter.activity(self._loading))
        try:
            loaded = await in_thread(lambda: self.session.use(self._told, **fields))
        except EdgeSpecError as error:
            known = self.session.loaded or self.session.server
            self.warn(f"{error}" if known else f"{error}  (Ctrl+O chooses a model)")
            if self.session.loaded is not None:  # its switch shows what still is
                self.panel.show_loaded(self.session.loaded, self.session.spec.drafter)
            return False
        finally:
            ticking.stop()
            self._loading = ""
            self.meter.activity("")
        self.warn("")
        self.panel.show_loaded(loaded, self.session.spec.drafter)
        await self.measure()
        self.head()
        for note in loaded.notes:
            self.say(note)
        self.begin(self._next(), "command")
        return True

    async def choose_model(self) -> str:
        """Let the user choose; empty where they do not."""
        chosen = await self.app.push_screen_wait(WelcomeScreen(picking=True))
        return "" if chosen is None else chosen.model

    def _told(self, event: Loading) -> None:
        """In the thread that loads."""
        share = "" if event.fraction is None else f" {event.fraction:.0%}"
        self._loading = f"{line(event.line, 100)}{share}"

    # Sending

    @on(TextArea.Changed)
    def _typed(self, event: TextArea.Changed) -> None:
        event.stop()
        self.above()

    @on(Composer.Completing)
    def _complete(self, event: Composer.Completing) -> None:
        event.stop()
        self.composer.put(completed(event.text))

    @on(Composer.Submitted)
    def _submitted(self, event: Composer.Submitted) -> None:
        event.stop()
        try:
            invocation = parse(event.text, APP)
        except EdgeSpecError as error:
            self.say(str(error), wrong=True)
            return
        if invocation is None and not event.text.strip() and not self.attached:
            return
        self.composer.remember(event.text)
        self.composer.text = ""
        if invocation is not None:
            self.command(invocation.command.name, invocation.argument)
            return
        text = with_attachments(as_message(event.text), self.attached)
        self.attached = ()
        self._queue.append(text)
        self.above()
        if not self.busy and not self._loading:
            self.begin(self._next(), "command")

    # The conversation

    async def reopen(self) -> None:
        """Show the session's conversation from the beginning."""
        self.editing = None
        self.above()
        await self.transcript.show((), empty="")
        await self.transcript.show(self.session.messages, empty=EMPTY)
        self.transcript.anchor()
        self.composer.sent = [message.text for message in self.session.messages if message.role == "user"]
        await self.measure()
        self.head()
        self.sidebar.relist()

    async def measure(self) -> None:
        """How full the context is after the latest answer of the branch in use."""
        last = next((m for m in reversed(self.session.messages) if m.role == "assistant"), None)
        usage: Mapping[str, Any] = {}
        if last is not None:
            number = last.id
            details = await in_thread(lambda: self.session.history.details(number))  # slow for a long answer
            usage = (details.result or {}).get("usage", {})
            self.panel.show_details(details)
        used = int(usage.get("prompt_tokens", 0)) + int(usage.get("completion_tokens", 0))
        self.meter.context(used, self.session.loaded.n_ctx if self.session.loaded else 0)

    # Commands and keys

    def action_command(self, name: str) -> None:
        self.command(name, "")

    def command(self, name: str, argument: str) -> None:
        """Run a command by its name."""
        self.run_worker(self._command(name, argument), group="command")

    async def _command(self, name: str, argument: str) -> None:
        action = ACTIONS[name]
        try:
            if not action.idle:
                await action.run(self, argument)
                return
            async with self._alone:
                await self.settle()
                await action.run(self, argument)
        except EdgeSpecError as error:
            self.say(str(error), wrong=True)

    @on(MessageView.Command)
    def _message_command(self, event: MessageView.Command) -> None:
        event.stop()
        self.command(event.name, "")

    @on(Composer.Paged)
    async def _paged(self, event: Composer.Paged) -> None:
        event.stop()
        await self.transcript.page(event.by)

    @on(TokenView.Selected)
    def _token(self, event: TokenView.Selected) -> None:
        event.stop()
        self.inspector.display = event.facts is not None
        self.inspector.show(event.facts, event.view)

    @on(DrafterChosen)
    def _drafter(self, event: DrafterChosen) -> None:
        event.stop()
        self.command("drafter", event.drafter)

    @on(Sidebar.Opened)
    def _opened(self, event: Sidebar.Opened) -> None:
        event.stop()
        self.command("open", f"{event.conversation} {event.message or ''}".strip())

    @on(Sidebar.Deleted)
    def _delete(self, event: Sidebar.Deleted) -> None:
        event.stop()
        self.command("delete", str(event.conversation))

    @on(Sidebar.Left)
    def _left(self, event: Sidebar.Left) -> None:
        event.stop()
        self.make_room()
        self.command("stop", "")
