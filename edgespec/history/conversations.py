"""Conversations as rows: make, list, change, delete and bring back."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from ..errors import BadRequestError
from ..text import replace_surrogates
from .records import Conversation, Params

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PREVIEW = 120  # characters of the first message

_COLUMNS = f"""
    c.id, c.title,
    (SELECT substr(text, 1, {_PREVIEW}) FROM message WHERE conversation = c.id AND parent IS NULL ORDER BY id LIMIT 1),
    c.model, c.system, c.params, c.raw,
    (SELECT count(*) FROM message WHERE conversation = c.id),
    c.created, c.updated, c.deleted
"""
_TOUCHED = "(SELECT coalesce(max(touched), 0) + 1 FROM conversation)"


def create(connection: sqlite3.Connection, fields: Mapping[str, Any], now: int) -> int:
    """A new conversation; fields: title, model, system, params, raw, and for imports created, updated, imported."""
    row = {"created": now, "updated": now, "imported": None, **fields, "params": dump(fields["params"])}
    names = ("title", "model", "system", "params", "raw", "created", "updated", "imported")
    values = [replace_surrogates(v) if isinstance(v, str) else v for v in (row[name] for name in names)]
    made = connection.execute(
        f"INSERT INTO conversation ({', '.join(names)}, touched) VALUES ({', '.join('?' * len(names))}, {_TOUCHED})",
        values,
    ).lastrowid
    assert made is not None
    return made


def get(connection: sqlite3.Connection, conversation: int) -> Conversation:
    """Raises BadRequestError where there is none, or it is deleted."""
    found = connection.execute(f"SELECT {_COLUMNS} FROM conversation c WHERE c.id = ?", (conversation,)).fetchone()
    if found is None or found[-1]:
        raise BadRequestError(missing(conversation, deleted=found is not None))
    return _conversation(found)


def listed(connection: sqlite3.Connection, limit: int | None, offset: int, *, deleted: bool) -> list[Conversation]:
    """The latest changed first."""
    found = connection.execute(
        f"SELECT {_COLUMNS} FROM conversation c WHERE c.deleted = ? ORDER BY c.touched DESC LIMIT ? OFFSET ?",
        (deleted, -1 if limit is None else limit, offset),
    )
    return [_conversation(row) for row in found]


def latest(connection: sqlite3.Connection) -> Conversation | None:
    """The one that was changed last and has turns to go on with."""
    found = connection.execute(
        f"SELECT {_COLUMNS} FROM conversation c WHERE NOT c.deleted AND NOT c.raw "
        "AND EXISTS (SELECT 1 FROM message WHERE conversation = c.id) ORDER BY c.touched DESC LIMIT 1"
    ).fetchone()
    return None if found is None else _conversation(found)


def change(connection: sqlite3.Connection, conversation: int, fields: Mapping[str, Any]) -> None:
    """Set columns of a conversation: title, model, system, params. Its place in the list stays."""
    require(connection, conversation)
    values = {name: dump(v) if name == "params" else replace_surrogates(v) for name, v in fields.items()}
    if values:
        names = ", ".join(f"{name} = ?" for name in values)
        connection.execute(f"UPDATE conversation SET {names} WHERE id = ?", (*values.values(), conversation))


def touch(connection: sqlite3.Connection, conversation: int, now: int) -> None:
    """It was changed just now."""
    connection.execute(f"UPDATE conversation SET updated = ?, touched = {_TOUCHED} WHERE id = ?", (now, conversation))


def mark(connection: sqlite3.Connection, conversation: int, *, deleted: bool) -> None:
    """Delete so that it can be undone, or undo that. Raises BadRequestError where there is nothing to do."""
    require(connection, conversation, deleted=not deleted)
    connection.execute("UPDATE conversation SET deleted = ? WHERE id = ?", (deleted, conversation))


def purge(connection: sqlite3.Connection, chosen: Sequence[int]) -> int:
    """Remove deleted conversations for good; none chosen: all of them. Returns how many."""
    for conversation in chosen:
        require(connection, conversation, deleted=True)
    gone = list(dict.fromkeys(chosen)) or [
        n for (n,) in connection.execute("SELECT id FROM conversation WHERE deleted")
    ]
    for number in gone:
        for table in ("partial", "detail"):
            connection.execute(
                f"DELETE FROM {table} WHERE message IN (SELECT id FROM message WHERE conversation = ?)", (number,)
            )
        connection.execute("DELETE FROM message WHERE conversation = ?", (number,))
        connection.execute("DELETE FROM conversation WHERE id = ?", (number,))
    return len(gone)


def require(connection: sqlite3.Connection, conversation: int, *, deleted: bool = False) -> None:
    """Raises BadRequestError where there is no such conversation, deleted or not as asked."""
    found = connection.execute("SELECT deleted FROM conversation WHERE id = ?", (conversation,)).fetchone()
    if found is None or (found[0] and not deleted):
        raise BadRequestError(missing(conversation, deleted=found is not None))
    if deleted and not found[0]:
        raise BadRequestError(f"conversation {conversation} is not deleted; delete it first")


def missing(conversation: int, *, deleted: bool) -> str:
    """Why a number means nothing."""
    if deleted:
        return f"conversation {conversation} is deleted; `edgespec history rm --undo {conversation}` brings it back"
    return f"there is no conversation {conversation}; `edgespec history ls` lists them"


def dump(params: Params) -> str:
    """Parameters as kept. Raises BadRequestError for what is no plain value."""
    for name, value in params.items():
        plain = value is None or isinstance(value, str | int | float)  # bool is an int
        if not isinstance(name, str) or not plain or (isinstance(value, float) and not math.isfinite(value)):
            raise BadRequestError(f"parameter {name!r} of a conversation is {value!r}; give text, a number or a switch")
    return json.dumps(dict(params))


def moment(milliseconds: int) -> datetime:
    """Milliseconds since 1970 as a time."""
    return EPOCH + timedelta(milliseconds=milliseconds)


def _conversation(row: tuple[Any, ...]) -> Conversation:
    number, title, preview, model, system, params, raw, messages, created, updated, deleted = row
    return Conversation(
        id=number,
        title=title,
        preview=" ".join((preview or "").split()),
        model=model,
        system=system,
        params=json.loads(params),
        raw=bool(raw),
        messages=messages,
        created=moment(created),
        updated=moment(updated),
        deleted=bool(deleted),
    )
