"""Full-text search: parts of words, in any language, with the query taken as plain text."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator

from ..errors import BadRequestError
from ..text import replace_surrogates
from . import conversations, tree
from .records import Hit

LONGEST = 1000  # characters of a query: what SQLite can work on in one go
_TRIGRAM = 3  # characters: shorter terms are not in the index
_BEFORE, _AFTER = 40, 100  # characters of an excerpt
_TERMS = re.compile(r'"([^"]+)"|(\S+)')


def find(connection: sqlite3.Connection, query: str, limit: int) -> tuple[Hit, ...]:
    """Titles, then messages that hold every term of `query`, the latest first.

    Terms are words, or phrases in double quotes; case does not matter. No character of them is an operator. Raises
    BadRequestError for a query of more than LONGEST characters.
    """
    if len(query) > LONGEST:
        raise BadRequestError(f"the search has {len(query)} characters, and may have {LONGEST}; give fewer words")
    terms = [t for a, b in _TERMS.findall(replace_surrogates(query)) if (t := (a or b).replace("\0", ""))]
    if not terms:
        return ()
    hits: list[Hit] = []
    for found in (_titles(connection, terms, limit), _messages(connection, terms, limit)):
        hits += found
    return tuple(hits[:limit])


def _titles(connection: sqlite3.Connection, terms: list[str], limit: int) -> Iterator[Hit]:
    like, patterns = _like("title", terms)
    rows = connection.execute(
        f"SELECT id, title, updated FROM conversation WHERE NOT deleted AND {like} ORDER BY touched DESC LIMIT ?",
        (*patterns, limit),
    )
    for conversation, title, updated in rows:
        yield Hit(conversation, title, None, "", conversations.moment(updated), *_excerpt(title, terms))


def _messages(connection: sqlite3.Connection, terms: list[str], limit: int) -> Iterator[Hit]:
    """From the index, and of replies that are not finished from what has been saved of them."""
    found = [*_indexed(connection, terms, limit), *_unfinished(connection, terms)]
    for number, text in sorted(found, reverse=True)[:limit]:
        message = tree.get(connection, number)
        label = conversations.get(connection, message.conversation).label
        yield Hit(message.conversation, label, number, message.role, message.created, *_excerpt(text, terms))


def _indexed(connection: sqlite3.Connection, terms: list[str], limit: int) -> list[tuple[int, str]]:
    long = [term for term in terms if len(term) >= _TRIGRAM]
    short = [term for term in terms if len(term) < _TRIGRAM]
    like, patterns = _like("m.text", short)
    match = " AND ".join('"' + term.replace('"', '""') + '"' for term in long)
    source = "search s CROSS JOIN message m ON m.id = s.rowid" if long else "message m"
    condition = "s.search MATCH ? AND " if long else ""
    return connection.execute(
        f"SELECT m.id, m.text FROM {source} JOIN conversation c ON c.id = m.conversation "
        f"WHERE {condition}{like} AND NOT c.deleted ORDER BY {'s.rowid' if long else 'm.id'} DESC LIMIT ?",
        (*([match] if long else []), *patterns, limit),
    ).fetchall()


def _unfinished(connection: sqlite3.Connection, terms: list[str]) -> list[tuple[int, str]]:
    rows = connection.execute(
        "SELECT DISTINCT m.id FROM partial p JOIN message m ON m.id = p.message "
        "JOIN conversation c ON c.id = m.conversation WHERE NOT c.deleted"
    ).fetchall()
    texts = [(number, tree.saved_text(connection, number)) for (number,) in rows]
    return [(number, text) for number, text in texts if all(_place(text, term) for term in terms)]


def _like(column: str, terms: Iterable[str]) -> tuple[str, list[str]]:
    """A condition that each term is a part of the column, and its arguments."""
    patterns = ["%" + re.sub(r"([%_\\])", r"\\\1", term) + "%" for term in terms]
    return " AND ".join([rf"{column} LIKE ? ESCAPE '\'"] * len(patterns)) or "1", patterns


def _place(text: str, term: str) -> re.Match[str] | None:
    return re.search(re.escape(term), text, re.IGNORECASE)


def _excerpt(text: str, terms: list[str]) -> tuple[str, str, str]:
    """Before, match and after of the first term that is found, on one line."""
    place = next((m for term in terms if (m := _place(text, term))), None)
    start, end = place.span() if place else (0, 0)
    before = _line(text[max(0, start - _BEFORE) : start])
    return ("…" if start > _BEFORE else "") + before, _line(text[start:end]), _line(text[end : end + _AFTER])


def _line(text: str) -> str:
    return re.sub(r"\s+", " ", text)
