"""One answer on its way: events of the engine, saved in the history as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from .engine.interface import Generating
from .engine.protocol import Event, Finished
from .errors import EdgeSpecError, HistoryError
from .history import Message, ReplyDetails, ReplyWriter
from .reply import Reply
from .stats import RoundEvent, TokenEvent


class Turn(Iterator[Event]):
    """The events of an answer. One thread iterates; any thread may cancel.

    question: the message that is answered.  reply_id: the answer's, in the history.  reply: the whole of it, once it
    has finished.  What the engine raises is raised here, after what had come was saved as a failed answer.
    """

    def __init__(
        self,
        start: Callable[[], Generating],
        writer: ReplyWriter,
        question: Message | None,
        begun: Begun | None = None,
    ) -> None:
        """start: asks the engine.  begun: an earlier answer that goes on; its events are not told again."""
        self.question, self.reply_id = question, writer.id
        self.reply: Reply | None = None
        self._writer = writer
        self._begun = begun or Begun()
        for event in self._begun.events:
            writer.append(event)
        self._unsaved: HistoryError | None = None
        try:
            self._generating = start()
        except BaseException:
            writer.finish("error")
            raise

    def __next__(self) -> Event:
        if self._unsaved is not None:
            error, self._unsaved = self._unsaved, None
            raise error
        try:
            event = next(self._generating)
        except StopIteration:
            raise
        except BaseException as error:
            self._fail(error)
            raise
        if isinstance(event, TokenEvent | RoundEvent):
            if self._begun.rounds:
                event = replace(event, round=event.round + self._begun.rounds)
            self._writer.append(event)
        elif isinstance(event, Finished):
            self._finish(event.reply)
        return event

    def cancel(self) -> None:
        """Stop soon and keep what was said; the iteration ends by itself."""
        self._generating.cancel()

    def close(self) -> None:
        """Stop, wait for nothing more, and save what has come."""
        self._generating.close()
        if self.reply is None:
            self._writer.finish("cancelled")

    @property
    def text(self) -> str:
        """The answer so far, from its very beginning."""
        return self._writer.text

    def _finish(self, reply: Reply) -> None:
        self.reply = reply
        result = reply.to_json()
        text = self._begun.text + result.pop("text")
        result["usage"]["completion_tokens"] += len(self._begun.ids)
        try:
            self._writer.finish(reply.finish_reason, text=text, result=result)
        except HistoryError as error:
            self._unsaved = error  # raised next: the answer itself is whole

    def _fail(self, error: BaseException) -> None:
        reason = "error" if isinstance(error, EdgeSpecError) else "cancelled"
        try:
            self._writer.finish(reason)
        except HistoryError as second:
            error.add_note(str(second))


class Begun:
    """What an answer begins with that was stopped before. ids: its tokens.  rounds: the number of its first new one."""

    def __init__(self, details: ReplyDetails | None = None) -> None:
        details = details or ReplyDetails()
        usage = (details.result or {}).get("usage", {})
        tokens = _whole(details.tokens, int(usage.get("completion_tokens", len(details.tokens))))
        self.events = _in_order(tokens, details.rounds)
        self.ids = tuple(token.id for token in tokens)
        self.text = "".join(token.text for token in tokens)
        self.rounds = max((event.round for event in self.events), default=-1) + 1


def _whole(tokens: Sequence[TokenEvent], count: int) -> list[TokenEvent]:
    """The `count` tokens of an answer; text that came in an event of its own, at the end, goes to the last of them."""
    kept, rest = list(tokens[:count]), "".join(token.text for token in tokens[count:])
    if kept and rest:
        kept[-1] = replace(kept[-1], text=kept[-1].text + rest)
    return kept


def _in_order(tokens: Iterable[TokenEvent], rounds: Iterable[RoundEvent]) -> list[TokenEvent | RoundEvent]:
    """A round after its tokens."""
    return sorted([*tokens, *rounds], key=lambda event: (event.round, isinstance(event, RoundEvent)))
