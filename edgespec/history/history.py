"""`History`: all that front ends do with saved conversations, each call a transaction."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType

from ..errors import HistoryError
from . import conversations, details, search, tree
from .database import MEMORY, Database, history_file
from .records import Conversation, Hit, Imported, Message, Params, ReplyDetails
from .reply_writer import ReplyWriter

Now = Callable[[], int]


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000


class History:
    """The saved conversations. Safe to use from several threads; several programs may have them open.

    path: the file, made where it is missing; default: history_file().  now: milliseconds since 1970; it dates what is
    shown and orders nothing.  clock: seconds, for the saving of replies.

    Every call may raise HistoryError (the file cannot be read or written) or HistoryDamagedError (it was damaged and
    lies aside now: open a new History). BadRequestError: there is no such conversation or message.
    """

    def __init__(
        self, path: Path | None = None, *, now: Now = _milliseconds, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._database = Database(history_file() if path is None else path)
        self._now, self._clock = now, clock
        self._running: weakref.WeakSet[ReplyWriter] = weakref.WeakSet()

    @classmethod
    def temporary(cls) -> History:
        """A history in memory alone: nothing of it comes onto a disk, and it ends with close()."""
        return cls(MEMORY)

    @property
    def file(self) -> Path:
        """The file."""
        return self._database.path

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """All changes that this thread makes inside happen at once, or, after an exception, not at all."""
        with self._database.write():
            yield

    # Conversations

    def new_conversation(
        self, *, title: str = "", model: str = "", system: str = "", params: Params | None = None, raw: bool = False
    ) -> int:
        """A conversation without messages. raw: for a text completed without a chat template."""
        fields = {"title": title, "model": model, "system": system, "params": params or {}, "raw": raw}
        with self._database.write() as connection:
            return conversations.create(connection, fields, self._now())

    def conversation(self, conversation: int) -> Conversation:
        """One of them, not a deleted one."""
        with self._database.read() as connection:
            return conversations.get(connection, conversation)

    def conversations(
        self, limit: int | None = None, offset: int = 0, *, deleted: bool = False
    ) -> tuple[Conversation, ...]:
        """The latest changed first. deleted: the deleted ones instead."""
        with self._database.read() as connection:
            return tuple(conversations.listed(connection, limit, offset, deleted=deleted))

    def latest(self) -> Conversation | None:
        """The latest changed one that can be gone on with: it has messages and is no raw text."""
        with self._database.read() as connection:
            return conversations.latest(connection)

    def update(
        self,
        conversation: int,
        *,
        title: str | None = None,
        model: str | None = None,
        system: str | None = None,
        params: Params | None = None,
    ) -> None:
        """Change what is not None."""
        given = {"title": title, "model": model, "system": system, "params": params}
        with self._database.write() as connection:
            conversations.change(connection, conversation, {n: v for n, v in given.items() if v is not None})

    def delete(self, conversation: int) -> None:
        """Take it out of all lists and searches; restore() brings it back."""
        with self._database.write() as connection:
            conversations.mark(connection, conversation, deleted=True)

    def restore(self, conversation: int) -> None:
        """Undo delete()."""
        with self._database.write() as connection:
            conversations.mark(connection, conversation, deleted=False)

    def purge(self, *chosen: int) -> int:
        """Remove deleted conversations, or all of these, for good and from the disk; returns how many."""
        with self._database.write() as connection:
            count = conversations.purge(connection, chosen)
        self._database.tidy()
        return count

    # Messages

    def add_message(self, conversation: int, parent: int | None, role: str, text: str, *, model: str = "") -> int:
        """A whole message after `parent` (None: a first one), on the branch in use from now on; returns its id.

        A second message with the same parent is a new branch: an edited question, or another first message.
        """
        finished = "stop" if role == "assistant" else ""
        with self._database.write() as connection:
            return tree.add(
                connection,
                conversation,
                parent,
                role,
                text,
                model=model,
                finish_reason=finished,
                created=self._now(),
            )

    def begin_reply(self, conversation: int, parent: int | None, *, model: str = "") -> ReplyWriter:
        """A reply to `parent` that is about to be written; a second one is a new branch."""
        with self._database.write() as connection:
            number = tree.add(
                connection,
                conversation,
                parent,
                "assistant",
                "",
                model=model,
                finish_reason=None,
                created=self._now(),
            )
        reply = ReplyWriter(self._database, number, now=self._now, clock=self._clock)
        self._running.add(reply)
        return reply

    def message(self, message: int) -> Message:
        """One message."""
        with self._database.read() as connection:
            return tree.get(connection, message)

    def path(self, conversation: int) -> tuple[Message, ...]:
        """The branch in use, from the first message on."""
        with self._database.read() as connection:
            return tree.path(connection, conversation)

    def branches(self, message: int) -> tuple[Message, ...]:
        """`message` and its siblings, the oldest first."""
        with self._database.read() as connection:
            return tree.branches(connection, message)

    def switch(self, message: int) -> None:
        """Make the branch through `message` the one in use; behind it, the branch that was last in use there."""
        with self._database.write() as connection:
            tree.switch(connection, message)

    def details(self, message: int) -> ReplyDetails:
        """Tokens, rounds and totals of a reply."""
        with self._database.read() as connection:
            return details.details(connection, message)

    def search(self, query: str, limit: int = 50) -> tuple[Hit, ...]:
        """Titles, then messages, with every word (or "quoted phrase") of `query` in them, the latest first."""
        with self._database.read() as connection:
            return search.find(connection, query, limit)

    # In and out

    def export_json(self, chosen: Iterable[int] | None = None) -> str:
        """Conversations with all their branches as one JSON text, which import_() reads; None: all of them."""
        from . import document, exporting  # not for `run`, which only saves

        with self._database.read() as connection:
            documents = [document.take_out(connection, one) for one in _or_all(connection, chosen)]
        return json.dumps(exporting.to_json(documents), ensure_ascii=False)

    def export_markdown(self, chosen: Iterable[int] | None = None) -> str:
        """The branch in use of conversations as Markdown for people; None: all of them."""
        from . import exporting

        with self._database.read() as connection:
            return "\n".join(
                exporting.markdown(conversations.get(connection, one), tree.path(connection, one))
                for one in _or_all(connection, chosen)
            )

    def import_(self, data: bytes) -> Imported:
        """Add what is in a file: an export of our own, or conversations.json of a ChatGPT export.

        The first of them becomes the latest. What was imported before and is still here is skipped. Raises
        BadRequestError where the file is neither; then nothing is added.
        """
        from . import importing

        documents = importing.parse(data, self._now())
        added: list[int] = []
        for one in reversed(documents):
            with self._database.write() as connection:  # one each, so that other programs get their turn
                number = importing.put_in(connection, one, self._now())
            if number is not None:
                added.append(number)
        return Imported(tuple(reversed(added)), skipped=len(documents) - len(added))

    def close(self) -> None:
        """Close the file. Replies that are not finished are saved as far as they have come."""
        for reply in list(self._running):
            with contextlib.suppress(HistoryError):
                reply.checkpoint()
        self._database.close()

    def __enter__(self) -> History:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _or_all(connection: sqlite3.Connection, chosen: Iterable[int] | None) -> Iterable[int]:
    if chosen is not None:
        return chosen
    return [one.id for one in conversations.listed(connection, None, 0, deleted=False)]
