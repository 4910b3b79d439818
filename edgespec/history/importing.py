"""Conversations from files: our own exports, and those of ChatGPT. All is read before anything is kept."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..stats import DraftedToken, RoundEvent, TokenEvent
from . import chatgpt, conversations, tree
from .checking import Fields, wrong
from .details import Event, pack
from .document import ConversationDocument, MessageDocument, in_use
from .exporting import FORMAT, VERSION
from .records import FINISH_REASONS, ROLES

_CONVERSATION = ("title", "model", "system", "params", "raw", "created", "updated", "active", "messages")
_MESSAGE = ("parent", "role", "text", "model", "created", "finish_reason", "active", "events", "result")


@dataclass(frozen=True, slots=True)
class Found:
    """A conversation of a file. mark: equal where the file says exactly the same of it."""

    document: ConversationDocument
    mark: str


def parse(data: bytes, now: int) -> list[Found]:
    """What a file holds. now: milliseconds since 1970, for what has no time.

    Raises BadRequestError, naming the place.
    """
    try:
        found = json.loads(data, parse_constant=_no_number)
        if isinstance(found, list):
            return _marked(found, chatgpt.parse(found, now))
        file = Fields.of(found, "the file")
        if file.values.get("format") != FORMAT:
            raise wrong("the file", "is neither an export of EdgeSpec nor the conversations.json of a ChatGPT export")
        if file.get("version", int) > VERSION:
            raise wrong("the file", f"is of version {file.get('version', int)}, from a newer EdgeSpec: update this one")
        file.only("format", "version", "conversations")
        ours = file.objects("conversations")
        return _marked([one.values for one in ours], [_conversation(one) for one in ours])
    except ValueError:
        raise wrong("the file", "is not JSON") from None
    except RecursionError:
        raise wrong("the file", "is nested too deeply") from None


def _no_number(name: str) -> None:
    raise ValueError(name)  # NaN and Infinity are no JSON


def put_in(connection: sqlite3.Connection, found: Found, now: int) -> int | None:
    """A new conversation; None where the same was imported before, and is here and not deleted."""
    document = found.document
    if connection.execute("SELECT 1 FROM conversation WHERE imported = ? AND NOT deleted", (found.mark,)).fetchone():
        return None
    names = ("title", "model", "system", "params", "raw", "created", "updated")
    fields = {name: getattr(document, name) for name in names}
    conversation = conversations.create(connection, {**fields, "imported": found.mark}, now)
    numbers: list[int] = []
    for message in document.messages:
        numbers.append(_add(connection, conversation, message, numbers))
    for number, message in zip(numbers, document.messages, strict=True):
        if message.active is not None:
            connection.execute("UPDATE message SET active = ? WHERE id = ?", (numbers[message.active], number))
    first = None if document.active is None else numbers[document.active]
    connection.execute(
        "UPDATE conversation SET active = ?, updated = ? WHERE id = ?", (first, document.updated, conversation)
    )
    return conversation


def _marked(values: Sequence[Any], documents: Sequence[ConversationDocument]) -> list[Found]:
    marks = [hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest() for value in values]
    return [Found(document, mark) for document, mark in zip(documents, marks, strict=True)]


def _add(connection: sqlite3.Connection, conversation: int, message: MessageDocument, numbers: Sequence[int]) -> int:
    number = tree.add(
        connection,
        conversation,
        None if message.parent is None else numbers[message.parent],
        message.role,
        "" if message.finish_reason is None else message.text,
        model=message.model,
        finish_reason=message.finish_reason,
        created=message.created,
    )
    if message.finish_reason is None:
        tree.save_text(connection, number, 0, message.text)
    if message.events:
        connection.execute("INSERT INTO detail VALUES (?, 0, ?)", (number, pack(message.events)))
    if message.result is not None:
        connection.execute("UPDATE message SET result = ? WHERE id = ?", (json.dumps(message.result), number))
    return number


def _conversation(one: Fields) -> ConversationDocument:
    one.only(*_CONVERSATION)
    messages = [_message(message, i) for i, message in enumerate(one.objects("messages"))]
    params = one.get("params", dict)
    for name, value in params.items():
        if not (value is None or isinstance(value, str | int | float | bool)):
            raise wrong(f"{one.where}.params", f"has {name[:40]!r}, which is no plain value")
    return in_use(
        ConversationDocument(
            title=one.get("title", str),
            model=one.get("model", str),
            system=one.get("system", str),
            params=params,
            raw=one.get("raw", bool),
            created=one.milliseconds("created"),
            updated=one.milliseconds("updated"),
            active=one.optional("active", int),
            messages=tuple(messages),
        ),
        one.where,
    )


def _message(one: Fields, place: int) -> MessageDocument:
    one.only(*_MESSAGE)
    parent = one.optional("parent", int)
    if parent is not None and not 0 <= parent < place:
        raise wrong(f"{one.where}.parent", "is not the place of a message before it")
    role = one.choice("role", ROLES)
    reasons = FINISH_REASONS if role == "assistant" else ("",)
    unfinished = role == "assistant" and one.values.get("finish_reason") is None
    return MessageDocument(
        parent=parent,
        role=role,
        text=one.get("text", str),
        model=one.get("model", str),
        created=one.milliseconds("created"),
        finish_reason=None if unfinished else one.choice("finish_reason", reasons),
        active=one.optional("active", int),
        events=tuple(_event(event) for event in one.objects("events")),
        result=one.optional("result", dict),
    )


def _event(one: Fields) -> Event:
    if one.choice("type", ("token", "round")) == "token":
        return TokenEvent(
            text=one.get("text", str),
            id=one.get("id", int),
            source=one.get("source", str),
            logprob=float("-inf") if one.values.get("logprob") is None else one.number("logprob"),
            round=one.get("round", int),
        )
    emitted: list[Any] = one.get("emitted", list)
    if not all(isinstance(token, int) for token in emitted):
        raise wrong(f"{one.where}.emitted", "is not a list of token ids")
    drafted = tuple(_drafted(token) for token in one.objects("drafted"))
    return RoundEvent(
        round=one.get("round", int),
        source=one.get("source", str),
        k=len(drafted),
        drafted=drafted,
        accepted=one.get("accepted", int),
        produced=one.get("produced", int),
        emitted=tuple(emitted),
        draft_ms=one.number("draft_ms"),
        verify_ms=one.number("verify_ms"),
        other_ms=one.number("other_ms"),
    )


def _drafted(one: Fields) -> DraftedToken:
    return DraftedToken(
        id=one.get("id", int),
        text=one.get("text", str),
        q=one.number("q"),
        p=None if one.values.get("p") is None else one.number("p"),
        accepted=one.get("accepted", bool),
    )
