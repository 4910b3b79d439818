"""A reply on its way into the history: at most a second of it is lost, whatever happens to the program."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import BadRequestError, HistoryError
from ..stats import RoundEvent, TokenEvent
from ..text import replace_surrogates
from . import conversations, tree
from .database import Database
from .details import Event, pack
from .records import FINISH_REASONS, Message

CHECKPOINT_S = 0.75  # age of the oldest event that is not saved; the rest of the second is for a busy machine


class ReplyWriter:
    """Takes the events of one reply and saves them: in the background while they come, and whole at finish().

    id: of the message.  error: why the latest background save failed; it is tried again until finish().
    """

    def __init__(
        self,
        database: Database,
        message: int,
        *,
        now: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """now: milliseconds since 1970.  clock: seconds, never set back."""
        self.id = message
        self.error: HistoryError | None = None
        self._database, self._now, self._clock = database, now, clock
        self._changed = threading.Condition()
        self._saving = threading.Lock()  # one save at a time
        self._events: list[Event] = []  # not saved
        self._oldest = 0.0  # when the first of them came
        self._texts: list[str] = []
        self._saves = 0
        self._finished = False
        self._thread: threading.Thread | None = None

    @property
    def text(self) -> str:
        """The reply so far."""
        with self._changed:
            return "".join(self._texts)

    def append(self, event: TokenEvent | RoundEvent) -> None:
        """Take one more event. Never waits for the disk."""
        with self._changed:
            if self._finished:
                raise BadRequestError(f"reply {self.id} is finished; begin a new one")
            if self._thread is None:
                self._thread = threading.Thread(target=self._save_in_time, name=f"history-{self.id}", daemon=True)
                self._thread.start()
            if not self._events:
                self._oldest = self._clock()
                self._changed.notify()
            self._events.append(event)
            if isinstance(event, TokenEvent):
                self._texts.append(event.text)

    def due_s(self) -> float | None:
        """Seconds until the next save, 0 or less where it should have begun; None where all is saved."""
        with self._changed:
            return self._oldest + CHECKPOINT_S - self._clock() if self._events else None

    def checkpoint(self) -> None:
        """Save what is new. Raises HistoryError; nothing is lost by that, the next save has it too."""
        with self._saving:
            with self._changed:
                events, taken = list(self._events), self._clock()
            if not events:
                return
            text = "".join(event.text for event in events if isinstance(event, TokenEvent))
            with self._database.write() as connection:
                self._put(connection, events)
                tree.save_text(connection, self.id, self._saves, text)
            self._saves += 1
            with self._changed:
                del self._events[: len(events)]
                self._oldest = taken  # what came meanwhile came later than that

    def finish(
        self, finish_reason: str, *, text: str | None = None, result: Mapping[str, Any] | None = None
    ) -> Message | None:
        """Save the whole and end. A second call does nothing.

        text: the whole reply, where it is not what the tokens join to.  result: as in ReplyDetails.  Returns the
        message, or None: a reply that was cancelled or failed without a word leaves no message.  Raises HistoryError;
        the call may then be repeated.
        """
        if finish_reason not in FINISH_REASONS:
            raise BadRequestError(f"finish reason is {finish_reason!r}; choose one of {', '.join(FINISH_REASONS)}")
        with self._saving:
            if self._finished:
                return None
            whole = self.text if text is None else text
            with self._database.write() as connection:
                kept = bool(whole) or finish_reason in ("stop", "length")
                if kept:
                    self._end(connection, finish_reason, whole, result)
                    self._put(connection, self._events)
                    message = tree.get(connection, self.id)
                else:
                    tree.drop(connection, self.id)
            with self._changed:
                self._finished = True
                self._events.clear()
                self._changed.notify()
        return message if kept else None

    def _put(self, connection: sqlite3.Connection, events: list[Event]) -> None:
        if events:
            connection.execute("INSERT INTO detail VALUES (?, ?, ?)", (self.id, self._saves, pack(events)))

    def _end(
        self, connection: sqlite3.Connection, finish_reason: str, text: str, result: Mapping[str, Any] | None
    ) -> None:
        connection.execute("DELETE FROM partial WHERE message = ?", (self.id,))
        done = connection.execute(
            "UPDATE message SET text = ?, finish_reason = ?, result = ? WHERE id = ? RETURNING conversation",
            (replace_surrogates(text), finish_reason, None if result is None else json.dumps(result), self.id),
        ).fetchone()
        if done is None:
            raise HistoryError(f"reply {self.id} is no longer in the history: its conversation was removed")
        conversations.touch(connection, done[0], self._now())

    def _save_in_time(self) -> None:
        """What the background thread does."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._finished or self._events)
                if not self._finished and (due := self.due_s()) is not None and due > 0:
                    self._changed.wait_for(lambda: self._finished, timeout=due)
                if self._finished:
                    return
            try:
                self.checkpoint()
                self.error = None
            except HistoryError as error:
                self.error = error
                if self._database.closed:
                    return
                with self._changed:  # not again at once: the disk is full, or another program is busy
                    self._changed.wait_for(lambda: self._finished, timeout=CHECKPOINT_S)
