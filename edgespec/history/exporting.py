"""Conversations for other programs and for people: JSON with everything, Markdown with the branch in use."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any

from ..stats import RoundEvent, TokenEvent
from .conversations import moment
from .document import ConversationDocument, MessageDocument
from .records import Conversation, Message

FORMAT, VERSION = "edgespec-history", 1


def to_json(documents: Iterable[ConversationDocument]) -> dict[str, Any]:
    """The object that importing.parse() reads."""
    return {"format": FORMAT, "version": VERSION, "conversations": [_conversation(one) for one in documents]}


def markdown(conversation: Conversation, path: Sequence[Message]) -> str:
    """A branch as text. Messages stand as they are: they are Markdown, as a rule."""
    title = " ".join(conversation.label.split())
    lines = [f"# {title}", "", f"{conversation.created:%Y-%m-%d %H:%M} UTC", ""]
    if conversation.raw:
        return "\n".join([*lines, "".join(message.text for message in path), ""])
    if conversation.system:
        lines += ["## System", "", conversation.system, ""]
    for message in path:
        lines += [f"## {_speaker(message)}", "", message.text, ""]
        if message.finish_reason not in ("", "stop"):
            lines += [f"*({message.finish_reason or 'interrupted'})*", ""]
    others = conversation.messages - len(path)
    if others:
        lines += [f"*({others} message{'' if others == 1 else 's'} on other branches; the JSON export has them)*", ""]
    return "\n".join(lines)


def _speaker(message: Message) -> str:
    if message.role == "assistant":
        return f"Assistant ({PurePath(message.model).name})" if message.model else "Assistant"
    return {"user": "You", "system": "System", "tool": "Tool"}[message.role]


def _conversation(one: ConversationDocument) -> dict[str, Any]:
    return {
        "title": one.title,
        "model": one.model,
        "system": one.system,
        "params": dict(one.params),
        "raw": one.raw,
        "created": _time(one.created),
        "updated": _time(one.updated),
        "active": one.active,
        "messages": [_message(message) for message in one.messages],
    }


def _message(message: MessageDocument) -> dict[str, Any]:
    return {
        "parent": message.parent,
        "role": message.role,
        "text": message.text,
        "model": message.model,
        "created": _time(message.created),
        "finish_reason": message.finish_reason,
        "active": message.active,
        "events": [_event(event) for event in message.events],
        "result": message.result,
    }


def _event(event: TokenEvent | RoundEvent) -> dict[str, Any]:
    found = event.to_json()
    if isinstance(event, TokenEvent) and not math.isfinite(event.logprob):
        found["logprob"] = None  # JSON has no infinity
    return found


def _time(milliseconds: int) -> str:
    return moment(milliseconds).isoformat(timespec="milliseconds")
