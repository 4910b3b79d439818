"""A conversation outside of the database, as exports and imports have it: its whole tree, numbered from 0."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from . import conversations, tree
from .checking import wrong
from .details import Event, events
from .records import Params


@dataclass(frozen=True, slots=True)
class MessageDocument:
    """A message. parent, active: places in the list of messages; parent comes before.  created: ms since 1970.

    finish_reason: as in Message.  events: tokens and rounds in their order.  result: as in ReplyDetails.
    """

    parent: int | None
    role: str
    text: str
    model: str
    created: int
    finish_reason: str | None
    active: int | None
    events: tuple[Event, ...] = ()
    result: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ConversationDocument:
    """A conversation with all its branches. active: place of the first message in use; None without messages."""

    title: str
    model: str
    system: str
    params: Params
    raw: bool
    created: int
    updated: int
    active: int | None
    messages: tuple[MessageDocument, ...]

    def leading_to(self, place: int | None) -> ConversationDocument:
        """The same, with the branch through the message at `place` in use; None changes nothing."""
        messages = list(self.messages)
        child = place
        while child is not None and (parent := messages[child].parent) is not None:
            messages[parent] = replace(messages[parent], active=child)
            child = parent
        return self if child is None else replace(self, active=child, messages=tuple(messages))


def in_use(document: ConversationDocument, where: str) -> ConversationDocument:
    """The document, with the branch in use checked; where none is said, it is the last one."""
    children: dict[int | None, list[int]] = {}
    for i, message in enumerate(document.messages):
        children.setdefault(message.parent, []).append(i)

    def chosen(active: int | None, place: int | None, at: str) -> int | None:
        mine = children.get(place, [])
        if active is not None and active not in mine:
            raise wrong(f"{at}.active", "is not the place of a message that follows")
        return mine[-1] if active is None and mine else active

    return replace(
        document,
        active=chosen(document.active, None, where),
        messages=tuple(
            replace(message, active=chosen(message.active, i, f"{where}.messages[{i}]"))
            for i, message in enumerate(document.messages)
        ),
    )


def take_out(connection: sqlite3.Connection, conversation: int) -> ConversationDocument:
    """The document of a conversation."""
    head = conversations.get(connection, conversation)
    active, created, updated = connection.execute(
        "SELECT active, created, updated FROM conversation WHERE id = ?", (conversation,)
    ).fetchone()
    rows = connection.execute(
        "SELECT id, parent, role, text, model, created, finish_reason, result, active FROM message "
        "WHERE conversation = ? ORDER BY id",
        (conversation,),
    ).fetchall()
    place: dict[int | None, int | None] = {None: None, **{row[0]: i for i, row in enumerate(rows)}}
    messages = tuple(
        MessageDocument(
            parent=place[parent],
            role=role,
            text=tree.saved_text(connection, number) if finish_reason is None else text,
            model=model,
            created=when,
            finish_reason=finish_reason,
            active=place[child],
            events=tuple(events(connection, number)),
            result=None if result is None else json.loads(result),
        )
        for number, parent, role, text, model, when, finish_reason, result, child in rows
    )
    return ConversationDocument(
        title=head.title,
        model=head.model,
        system=head.system,
        params=head.params,
        raw=head.raw,
        created=created,
        updated=updated,
        active=place[active],
        messages=messages,
    )
