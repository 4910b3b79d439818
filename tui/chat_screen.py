"""The chat: messages, the place where they are written, and the answer that is being written."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ClassVar

from textual import on
from textual.binding import BindingType
from textual.widgets import TextArea

from ..chat_commands import APP, parse
from ..chat_commands import message as as_message
from ..chat_session import ChatSession
from ..chat_turn import Turn
from ..engine.protocol import Loading
from ..errors import BadRequestError, EdgeSpecError, EngineError
from ..history import Message
from ..stats import RoundEvent
from .actions import ACTIONS
from .attachments import Attachment, with_attachments
from .background import in_thread
from .chat_layout import ChatLayout
from .collecting import no_full_collections
from .completion import completed
from .composer import Composer
from .keys import screen_bindings
from .labels import line, trouble
from .message_view import MessageView
from .pace import Pace
from .reply_feed import ReplyFeed, Update
from .sidebar import Sidebar
from .speculation_panel import DrafterChosen
from .token_view import TokenView
from .welcome import WelcomeScreen

_HURRY_S = 0.02
_TICK_S = 0.2  # between two lines on how far loading is
_LEAVE_S = 2.0  # so long the end of the program may take
_SETTLE_S = 5.0  # an answer that was stopped has ended by then, or the engine hangs
_WIDE, _WIDER = 100, 140  # columns from which on the list, and the panel beside it, are shown unasked
_EMPTY = "Write a message below and press Enter. F1 lists the keys, / the commands."


class ChatScreen(ChatLayout):
    """Over one ChatSession. What is slow happens in threads; commands run beside the screen, not in its queue."""

    BINDINGS: ClassVar[list[BindingType]] = screen_bindings()

    def __init__(self, session: ChatSession, *, attached: tuple[Attachment, ...] = ()) -> None:
        super().__init__(session, attached)
        self.deleted: list[int] = []
        self._feed: ReplyFeed | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopping = asyncio.Event()
        self._loading = ""
        self._alone = asyncio.Lock()  # one command at a time of those that change the conversation

    async def on_mount(self) -> None:
        self.sidebar.display = self.app.size.width >= _WIDE
        self.panel.display = self.app.size.width >= _WIDER
        self.inspector.display = False
        self.warn("")
        self.composer.focus()
        self.above()
        self.begin(self.reopen(), "command")
        self.begin(self.load(), "load")

    @property
    def busy(self) -> bool:
        """An answer is being written."""
        return not self._idle.is_set()

    def begin(self, work: Coroutine[Any, Any, object], group: str) -> None:
        """Do something beside the screen's own queue; what goes wrong is said."""
        self.run_worker(self._guarded(work), group=group)

    async def _guarded(self, work: Coroutine[Any, Any, object]) -> None:
        try:
            await work
        except EdgeSpecError as error:
            self.warn(trouble(error))

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

    async def _next(self) -> None:
        """Send what waits, if nothing is in its way."""
        async with self._alone:
            if self.busy or self._loading or not self._queue:
                return
            text, editing = self._queue.pop(0), self.editing
            self.editing = None
            self.above()
            if editing is not None:
                await self.answer(lambda: self.session.edit(text, editing.id), cut=editing, question=text)
            else:
                await self.answer(lambda: self.session.ask(text), question=text)

    async def answer(
        self, begin: Callable[[], Turn], *, cut: Message | None = None, question: str | None = None
    ) -> None:
        """Have an answer written. cut: the message from which on the screen is cleared.  question: what is said."""
        if self._loading:
            raise BadRequestError("the model is still being loaded; try again in a moment")
        self._idle.clear()
        self._stopping.clear()
        self.warn("")
        await self.transcript.cut(cut)
        asked = None
        if question is not None:
            asked = await self.transcript.add(MessageView("user", text=question))
        loaded = self.session.loaded
        view = await self.transcript.add(MessageView("assistant", model=loaded.name if loaded else ""))
        self.panel.reset()
        self._feed = ReplyFeed(begin)
        self._feed.start()
        self.begin(self._follow(self._feed, view, asked, question or ""), "reply")

    async def _follow(self, feed: ReplyFeed, view: MessageView, asked: MessageView | None, question: str) -> None:
        """Show an answer as it comes."""
        try:
            with no_full_collections():
                update = await self._shown(feed, view, asked)
            await view.finish()
            await self._ended(update, view)
            path = self.session.messages
            if update.error is not None and question and not (path and question in (m.text for m in path[-2:])):
                self._queue.insert(0, question)  # it could not be saved: give it back
        finally:
            self._feed = None
            self._idle.set()
        if update.error is None and (update.reply is None or update.reply.finish_reason != "cancelled"):
            await self._next()
        else:
            self.unqueue()

    async def _shown(self, feed: ReplyFeed, view: MessageView, asked: MessageView | None) -> Update:
        """Show all of an answer; returns the last of it."""
        pace = Pace()
        while True:
            await self._look(pace)
            update = feed.take()
            if asked is not None and update.turn is not None and update.turn.question is not None:
                asked.know(update.turn.question)
                self.app.shows(self.session)  # type: ignore[attr-defined]  # ChatApp has it
            await self._show(update, view)
            if update.ended:
                return update

    async def _look(self, pace: Pace) -> None:
        """Wait for the next look at the answer; one that was stopped is looked at soon."""
        if self._stopping.is_set():
            await asyncio.sleep(_HURRY_S)
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), pace.wait())

    async def _show(self, update: Update, view: MessageView) -> None:
        await view.write(update.text, update.events)
        view.note(update.status)
        for event in update.events:
            if isinstance(event, RoundEvent):
                self.panel.update_round(event)
        rate = "" if update.rate is None else f", {update.rate:.1f} tokens/s"
        self.meter.activity(f"Esc stops  {update.tokens} tokens{rate}" if update.tokens else update.status)

    async def _ended(self, update: Update, view: MessageView) -> None:
        path = self.session.messages
        if update.turn is not None:
            mine = next((message for message in path if message.id == update.turn.reply_id), None)
            if mine is not None:
                view.know(mine)
        await self.transcript.show(path, empty=_EMPTY)
        if update.reply is not None:
            self.panel.finish(update.reply)
            stats = update.reply.stats
            if self.session.loaded is not None:
                self.meter.context(stats.prompt_tokens + stats.completion_tokens, self.session.loaded.n_ctx)
            speed = stats.tokens_per_s
            self.meter.activity("" if speed is None else f"{speed:.1f} tokens/s")
        else:
            self.meter.activity("")
        if update.error is not None:
            self.warn(trouble(update.error))
        self.head()
        self.sidebar.relist()

    def stop(self) -> None:
        """End the answer that is being written; its text stays."""
        if self._feed is not None:
            self._feed.stop()
            self._stopping.set()
            self.meter.activity("stopping")

    async def settle(self, patience_s: float = _SETTLE_S) -> None:
        """Stop, and wait until the answer has ended. Raises EngineError where it does not."""
        self.stop()
        try:
            await asyncio.wait_for(self._idle.wait(), patience_s)
        except TimeoutError:
            raise EngineError("the engine does not stop; wait, or quit with Ctrl+Q: the chat is saved") from None

    async def close_chat(self) -> None:
        """The program ends: what is being written is saved as far as it came."""
        try:
            await self.settle(_LEAVE_S)
        except EngineError:
            if self._feed is not None:
                self._feed.close()

    def unqueue(self) -> None:
        """Give back what waited to be sent."""
        if self._queue:
            self.composer.put("\n\n".join([*self._queue, self.composer.text]).rstrip())
            self._queue.clear()
            self.above()

    # The conversation

    async def reopen(self) -> None:
        """Show the session's conversation from the beginning."""
        self.editing = None
        self.above()
        await self.transcript.show((), empty="")
        await self.transcript.show(self.session.messages, empty=_EMPTY)
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
