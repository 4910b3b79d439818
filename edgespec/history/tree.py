"""Messages as a tree: an edit and a second reply are new branches, and each message knows its child in use."""

from __future__ import annotations

import sqlite3
from typing import Any

from ..errors import BadRequestError
from ..text import replace_surrogates
from .conversations import moment, require, touch
from .records import FINISH_REASONS, ROLES, Message

_NONE = "there is no message {} in the history"
_COLUMNS = """
    m.id, m.conversation, m.parent, m.role, m.text, m.model, m.created, m.finish_reason,
    (SELECT count(*) FROM message s WHERE s.conversation = m.conversation AND s.parent IS m.parent AND s.id < m.id),
    (SELECT count(*) FROM message s WHERE s.conversation = m.conversation AND s.parent IS m.parent)
"""
_PATH = """
    WITH RECURSIVE branch (id, depth) AS (
        SELECT active, 0 FROM conversation WHERE id = ?
        UNION ALL
        SELECT m.active, branch.depth + 1 FROM branch JOIN message m ON m.id = branch.id WHERE m.active IS NOT NULL
    )
"""
_UP = """
    WITH RECURSIVE up (child, parent) AS (
        SELECT id, parent FROM message WHERE id = ?
        UNION ALL
        SELECT m.id, m.parent FROM up JOIN message m ON m.id = up.parent
    )
    SELECT up.child, up.parent FROM up LEFT JOIN message p ON p.id = up.parent
"""


def add(
    connection: sqlite3.Connection,
    conversation: int,
    parent: int | None,
    role: str,
    text: str,
    *,
    model: str,
    finish_reason: str | None,
    created: int,
) -> int:
    """A new message, on the branch in use from now on; that of `parent`, and so on up, becomes the one in use too."""
    if role not in ROLES:
        raise BadRequestError(f"the role of a message is {role!r}; choose one of {', '.join(ROLES)}")
    if finish_reason not in (None, "", *FINISH_REASONS):
        raise BadRequestError(f"finish reason is {finish_reason!r}; choose one of {', '.join(FINISH_REASONS)}")
    require(connection, conversation)
    if parent is not None and _place(connection, parent)[0] != conversation:
        raise BadRequestError(f"message {parent} is not one of conversation {conversation}; answer one that is")
    made = connection.execute(
        "INSERT INTO message (conversation, parent, role, text, model, created, finish_reason) VALUES (?,?,?,?,?,?,?)",
        (conversation, parent, role, replace_surrogates(text), replace_surrogates(model), created, finish_reason),
    ).lastrowid
    assert made is not None
    switch(connection, made)
    touch(connection, conversation, created)
    return made


def switch(connection: sqlite3.Connection, message: int) -> None:
    """Make the branch through `message` the one in use; what follows it stays as it was last used."""
    conversation, _ = _place(connection, message)
    stale = connection.execute(f"{_UP} WHERE p.id IS NOT NULL AND p.active IS NOT up.child", (message,)).fetchall()
    connection.executemany("UPDATE message SET active = ? WHERE id = ?", stale)
    first = connection.execute(f"{_UP} WHERE p.id IS NULL", (message,)).fetchone()[0]
    connection.execute("UPDATE conversation SET active = ? WHERE id = ?", (first, conversation))


def get(connection: sqlite3.Connection, message: int) -> Message:
    """Raises BadRequestError where there is none."""
    return _message(connection, _row(connection, message))


def path(connection: sqlite3.Connection, conversation: int) -> tuple[Message, ...]:
    """The branch in use, from the first message on."""
    require(connection, conversation)
    rows = connection.execute(
        f"{_PATH} SELECT {_COLUMNS} FROM branch JOIN message m ON m.id = branch.id ORDER BY branch.depth",
        (conversation,),
    ).fetchall()
    return tuple(_message(connection, row) for row in rows)


def branches(connection: sqlite3.Connection, message: int) -> tuple[Message, ...]:
    """All messages with the parent that `message` has, itself included, the oldest first."""
    conversation, parent = _place(connection, message)
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM message m WHERE m.conversation = ? AND m.parent IS ? ORDER BY m.id",
        (conversation, parent),
    ).fetchall()
    return tuple(_message(connection, row) for row in rows)


def drop(connection: sqlite3.Connection, message: int) -> None:
    """Remove a message that has no children; its youngest sibling is in use then."""
    conversation, parent = _place(connection, message)
    for table in ("partial", "detail"):
        connection.execute(f"DELETE FROM {table} WHERE message = ?", (message,))
    last = connection.execute(
        "SELECT max(id) FROM message WHERE conversation = ? AND parent IS ? AND id <> ?",
        (conversation, parent, message),
    ).fetchone()[0]
    holder, key = ("conversation", conversation) if parent is None else ("message", parent)
    connection.execute(f"UPDATE {holder} SET active = ? WHERE id = ? AND active = ?", (last, key, message))
    connection.execute("DELETE FROM message WHERE id = ?", (message,))


def save_text(connection: sqlite3.Connection, message: int, number: int, text: str) -> None:
    """Save more of a reply that is not finished. number: of this piece, from 0."""
    connection.execute("INSERT INTO partial VALUES (?, ?, ?)", (message, number, replace_surrogates(text)))


def saved_text(connection: sqlite3.Connection, message: int) -> str:
    """What has been saved of a reply that is not finished."""
    rows = connection.execute("SELECT text FROM partial WHERE message = ? ORDER BY number", (message,))
    return "".join(text for (text,) in rows)


def _place(connection: sqlite3.Connection, message: int) -> tuple[int, int | None]:
    """Conversation and parent."""
    found: tuple[int, int | None] | None = connection.execute(
        "SELECT conversation, parent FROM message WHERE id = ?", (message,)
    ).fetchone()
    if found is None:
        raise BadRequestError(_NONE.format(message))
    return found


def _row(connection: sqlite3.Connection, message: int) -> tuple[Any, ...]:
    found: tuple[Any, ...] | None = connection.execute(
        f"SELECT {_COLUMNS} FROM message m WHERE m.id = ?", (message,)
    ).fetchone()
    if found is None:
        raise BadRequestError(_NONE.format(message))
    return found


def _message(connection: sqlite3.Connection, row: tuple[Any, ...]) -> Message:
    number, conversation, parent, role, text, model, created, finish_reason, branch, branches = row
    return Message(
        id=number,
        conversation=conversation,
        parent=parent,
        role=role,
        text=saved_text(connection, number) if finish_reason is None else text,
        model=model,
        created=moment(created),
        finish_reason=finish_reason,
        branch=branch,
        branches=branches,
    )
