"""Answers: what waits to be sent, the one that is being written, and its end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

from ..chat_session import ChatSession
from ..chat_turn import Turn
from ..errors import BadRequestError, EdgeSpecError, EngineError
from ..history import Message
from ..stats import RoundEvent
from .attachments import Attachment
from .chat_layout import ChatLayout
from .collecting import no_full_collections
from .labels import trouble
from .message_view import MessageView
from .pace import Pace
from .reply_feed import ReplyFeed, Update

EMPTY = "Write a message below and press Enter. F1 lists the keys, / the commands."

_HURRY_S = 0.02
_LEAVE_S = 2.0  # so long the end of the program may take
_SETTLE_S = 5.0  # an answer that was stopped has ended by then, or the engine hangs


class Answering(ChatLayout):
    """One answer at a time; what is sent meanwhile waits for its end."""

    def __init__(self, session: ChatSession, attached: tuple[Attachment, ...]) -> None:
        super().__init__(session, attached)
        self._feed: ReplyFeed | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopping = asyncio.Event()
        self._loading = ""  # how far it is, while the model is being loaded
        self._alone = asyncio.Lock()  # one command at a time of those that change the conversation

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
        await self.transcript.show(path, empty=EMPTY)
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
