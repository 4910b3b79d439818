"""Between the thread that takes an answer from the engine and the screen, which looks ten times a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from ..chat_turn import Turn
from ..engine.protocol import Loading, Queued, Reading
from ..errors import EdgeSpecError
from ..reply import Reply
from ..stats import RoundEvent, TokenEvent
from ..text import Sanitizer
from .labels import line


@dataclass(frozen=True, slots=True)
class Update:
    """What has come since the last look. text: sanitised.  status: what the engine does before the first token.

    turn: None until the question is saved.  tokens, seconds: so far, from the first token on.  error: what ended it;
    it may be an answer that is whole and could not be saved, then there is a reply too.
    """

    text: str
    events: tuple[TokenEvent | RoundEvent, ...]
    status: str
    turn: Turn | None
    tokens: int
    seconds: float
    ended: bool
    reply: Reply | None
    error: BaseException | None

    @property
    def rate(self) -> float | None:
        """Tokens a second."""
        return (self.tokens - 1) / self.seconds if self.tokens > 1 and self.seconds > 0 else None


class ReplyFeed:
    """One answer on its way."""

    def __init__(self, begin: Callable[[], Turn]) -> None:
        """begin: asks; it may take a while."""
        self._begin = begin
        self._lock = threading.Lock()
        self._stopped = False
        self._texts: list[str] = []
        self._events: list[TokenEvent | RoundEvent] = []
        self._status = "waiting for the engine"
        self._turn: Turn | None = None
        self._tokens, self._first, self._latest = 0, 0.0, 0.0
        self._ended = False
        self._error: BaseException | None = None
        self._sanitizer = Sanitizer()

    def start(self) -> None:
        """Ask, in a thread of its own."""
        threading.Thread(target=self._run, name="edgespec-reply", daemon=True).start()

    def stop(self) -> None:
        """End the answer soon, and keep what was said."""
        with self._lock:
            self._stopped = True
            turn = self._turn
        if turn is not None:
            turn.cancel()

    def close(self) -> None:
        """The program ends, whatever the engine does: save what there is."""
        with self._lock:
            turn = self._turn
        if turn is not None:
            turn.close()

    def take(self) -> Update:
        """What is new."""
        with self._lock:
            text, events = "".join(self._texts), tuple(self._events)
            self._texts.clear()
            self._events.clear()
            return Update(
                text=text,
                events=events,
                status=self._status,
                turn=self._turn,
                tokens=self._tokens,
                seconds=self._latest - self._first,
                ended=self._ended,
                reply=None if self._turn is None else self._turn.reply,
                error=self._error,
            )

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            turn = self._begin()
            before = turn.text  # of an answer that goes on
            with self._lock:
                self._turn = turn
                self._texts.append(self._sanitizer.push(before))
                stopped = self._stopped
            if stopped:
                turn.cancel()
            for event in turn:
                self._took(event)
        except (EdgeSpecError, OSError) as raised:
            error = raised
        except Exception as raised:
            error = EdgeSpecError(f"{type(raised).__name__}: {raised}; this is a fault of EdgeSpec, the chat goes on")
        with self._lock:
            self._error, self._ended = error, True

    def _took(self, event: object) -> None:
        with self._lock:
            match event:
                case TokenEvent():
                    self._latest = time.monotonic()
                    self._first = self._first or self._latest
                    self._tokens += 1
                    self._status = ""
                    self._texts.append(self._sanitizer.push(event.text))
                    self._events.append(event)
                case RoundEvent():
                    self._events.append(event)
                case Queued(position) if position:
                    self._status = f"waiting: {position} before this one"
                case Loading(told):
                    self._status = line(told)
                case Reading(done, total):
                    self._status = f"reading {done:,} of {total:,} tokens"
