"""Tokens and rounds of a reply as small blobs: JSON without names, compressed. Each blob can be read by itself."""

from __future__ import annotations

import json
import math
import sqlite3
import zlib
from collections.abc import Iterable
from typing import Any

from ..stats import DraftedToken, RoundEvent, TokenEvent
from ..text import replace_surrogates
from . import tree
from .records import ReplyDetails

Event = TokenEvent | RoundEvent

_LEVEL = 6


def pack(events: Iterable[Event]) -> bytes:
    """Events in their order, numbers rounded to five decimals."""
    rows = [_token_row(e) if isinstance(e, TokenEvent) else _round_row(e) for e in events]
    return zlib.compress(json.dumps(rows, ensure_ascii=False, separators=(",", ":")).encode(), _LEVEL)


def unpack(blob: bytes) -> list[Event]:
    """What pack() was given."""
    return [_event(row) for row in json.loads(zlib.decompress(blob))]


def details(connection: sqlite3.Connection, message: int) -> ReplyDetails:
    """How a reply came about; empty for other messages."""
    tree.get(connection, message)
    found = events(connection, message)
    result = connection.execute("SELECT result FROM message WHERE id = ?", (message,)).fetchone()[0]
    return ReplyDetails(
        tokens=tuple(event for event in found if isinstance(event, TokenEvent)),
        rounds=tuple(event for event in found if isinstance(event, RoundEvent)),
        result=None if result is None else json.loads(result),
    )


def events(connection: sqlite3.Connection, message: int) -> list[Event]:
    """Tokens and rounds of a reply in their order."""
    blobs = connection.execute("SELECT data FROM detail WHERE message = ? ORDER BY number", (message,))
    return [event for (blob,) in blobs for event in unpack(blob)]


def _token_row(event: TokenEvent) -> list[Any]:
    return [
        0,
        replace_surrogates(event.text),
        event.id,
        replace_surrogates(event.source),
        _number(event.logprob),
        event.round,
    ]


def _round_row(event: RoundEvent) -> list[Any]:
    drafted = [
        [d.id, replace_surrogates(d.text), _number(d.q), None if d.p is None else _number(d.p), int(d.accepted)]
        for d in event.drafted
    ]
    times = [_number(t) for t in (event.draft_ms, event.verify_ms, event.other_ms)]
    return [
        1,
        event.round,
        replace_surrogates(event.source),
        drafted,
        event.accepted,
        event.produced,
        list(event.emitted),
        *times,
    ]


def _event(row: list[Any]) -> Event:
    if row[0] == 0:
        _, text, token, source, logprob, number = row
        return TokenEvent(text, token, source, -math.inf if logprob is None else logprob, number)
    _, number, source, drafted, accepted, produced, emitted, draft_ms, verify_ms, other_ms = row
    return RoundEvent(
        round=number,
        source=source,
        k=len(drafted),
        drafted=tuple(DraftedToken(token, text, q, p, bool(taken)) for token, text, q, p, taken in drafted),
        accepted=accepted,
        produced=produced,
        emitted=tuple(emitted),
        draft_ms=draft_ms,
        verify_ms=verify_ms,
        other_ms=other_ms,
    )


def _number(value: float) -> float | None:
    """JSON knows no infinity: the log of a probability of 0 becomes null."""
    return round(float(value), 5) if math.isfinite(value) else None
