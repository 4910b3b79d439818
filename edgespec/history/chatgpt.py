"""Reads conversations.json of a ChatGPT export: a list of conversations, each a tree of nodes by name.

Left out are nodes that its pages do not show: hidden ones, empty ones, the model's notes to itself. What follows one
follows the message before it. Pictures and files are not in that file; a word in brackets stands for each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .checking import Fields, wrong
from .document import ConversationDocument, MessageDocument, in_use
from .records import ROLES

_UNSEEN = ("user_editable_context", "model_editable_context", "thoughts", "reasoning_recap")  # kinds of content
_REASONS = {"max_tokens": "length", "interrupted": "cancelled"}
_LATEST = 253_402_300_799  # seconds: the end of the year 9999


def parse(found: list[Any], now: int) -> list[ConversationDocument]:
    """The conversations, in the order of the file. Raises BadRequestError, naming the place."""
    return [_conversation(Fields.of(one, f"conversation {i}"), now) for i, one in enumerate(found)]


def _conversation(one: Fields, now: int) -> ConversationDocument:
    created = _time(one.values.get("create_time"), now)
    mapping = Fields.of(one.values.get("mapping"), f"{one.where}.mapping")
    nodes = {name: _node(Fields.of(v, f"{mapping.where}.{name[:40]}"), created) for name, v in mapping.values.items()}
    system = ""
    places: dict[str, int | None] = {}  # of a node: its message, or the one before it
    messages: list[MessageDocument] = []
    for name, before in _in_order(nodes, mapping.where):
        place = None if before is None else places[before]
        message = nodes[name].message
        if message is not None and message.role == "system" and not system and place is None:
            system = message.text
        elif message is not None:
            messages.append(replace(message, parent=place))
            place = len(messages) - 1
        places[name] = place
    document = ConversationDocument(
        title=one.optional("title", str) or "",
        model="",
        system=system,
        params={},
        raw=False,
        created=created,
        updated=_time(one.values.get("update_time"), created),
        active=None,
        messages=tuple(messages),
    )
    return in_use(document.leading_to(places.get(str(one.values.get("current_node")))), one.where)


@dataclass(frozen=True, slots=True)
class _Node:
    """A node of the mapping. message: None where nothing of it is kept; its parent is not known yet."""

    parent: str | None
    children: tuple[str, ...]
    message: MessageDocument | None


def _node(one: Fields, created: int) -> _Node:
    children = [str(child) for child in one.optional("children", list) or []]
    message = one.values.get("message")
    kept = None if message is None else _message(Fields.of(message, f"{one.where}.message"), created)
    return _Node(one.optional("parent", str), tuple(children), kept)


def _in_order(nodes: Mapping[str, _Node], where: str) -> Iterator[tuple[str, str | None]]:
    """Each node with the one it follows: parents first, branches in the order of their parent's list."""
    waiting: list[tuple[str, str | None]] = [
        (name, None) for name, node in reversed(list(nodes.items())) if node.parent not in nodes
    ]
    seen: set[str] = set()
    while waiting:
        name, before = waiting.pop()
        if name in seen:
            raise wrong(f"{where}.{name[:40]}", "follows two other messages")
        seen.add(name)
        yield name, before
        waiting += [(child, name) for child in reversed(nodes[name].children) if child in nodes]
    if len(seen) < len(nodes):
        lost = next(name for name in nodes if name not in seen)
        raise wrong(f"{where}.{lost[:40]}", "follows no first message")


def _message(one: Fields, created: int) -> MessageDocument | None:
    author = Fields.of(one.values.get("author"), f"{one.where}.author")
    metadata = Fields.of(one.values.get("metadata") or {}, f"{one.where}.metadata")
    content = Fields.of(one.values.get("content"), f"{one.where}.content")
    text = _text(content)
    if not text or metadata.values.get("is_visually_hidden_from_conversation") is True:
        return None
    role = author.choice("role", ROLES)
    details = metadata.values.get("finish_details")
    ended = details.get("type") if isinstance(details, dict) else None
    return MessageDocument(
        parent=None,
        role=role,
        text=text,
        model=metadata.optional("model_slug", str) or "",
        created=_time(one.values.get("create_time"), created),
        finish_reason=_REASONS.get(str(ended), "stop") if role == "assistant" else "",
        active=None,
    )


def _text(content: Fields) -> str:
    kind = content.get("content_type", str)
    if kind in _UNSEEN:
        return ""
    parts = content.optional("parts", list)
    text = content.optional("text", str) or "" if parts is None else "\n".join(_part(part) for part in parts)
    if not text.strip():
        return ""
    return f"```{_language(content)}\n{text}\n```" if kind in ("code", "execution_output") else text


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        text = part.get("text")
        return text if isinstance(text, str) else f"[{str(part.get('content_type', 'file')).partition('_')[0]}]"
    return ""


def _language(content: Fields) -> str:
    named = content.values.get("language")
    return named if isinstance(named, str) and named.isalnum() and named != "unknown" else ""


def _time(seconds: Any, otherwise: int) -> int:
    """Milliseconds; `otherwise` where the file has no time, or none of our calendar."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= _LATEST:
        return otherwise
    return math.floor(seconds * 1000)
