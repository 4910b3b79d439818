"""What the history gives to its callers: conversations, messages, details of replies, hits of a search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..stats import RoundEvent, TokenEvent

ROLES = ("system", "user", "assistant", "tool")
FINISH_REASONS = ("stop", "length", "cancelled", "error")

Params = Mapping[str, str | int | float | bool | None]  # of a conversation: options by name, as Options spells them


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation, without its messages.

    title: what the user called it, "" where that is nothing yet.  preview: the beginning of its first message, on one
    line.  model: name of the file that answers.  raw: a text completed without a chat template, which has no turns.
    messages: how many, those of all branches counted.  created, updated: UTC; for people, the order is that of
    changes.  Every text is data: whoever shows it makes it safe for the screen.
    """

    id: int
    title: str
    preview: str
    model: str
    system: str
    params: Params
    raw: bool
    messages: int
    created: datetime
    updated: datetime
    deleted: bool

    @property
    def label(self) -> str:
        """What stands for it in a list: title, else preview."""
        return self.title or self.preview or "(empty)"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the tree.

    parent: None for a first message.  finish_reason: one of FINISH_REASONS for a reply, "" for other roles, None while
    a reply is being written, or where the program that wrote it was killed: then `text` is what had been saved.
    branch, branches: its place among the messages with the same parent, from 0, and how many these are.
    """

    id: int
    conversation: int
    parent: int | None
    role: str
    text: str
    model: str
    created: datetime
    finish_reason: str | None
    branch: int
    branches: int


@dataclass(frozen=True, slots=True)
class ReplyDetails:
    """How a reply came about. tokens, rounds: as they were reported, numbers rounded to five decimals.

    result: the object of `run --json` without its text; empty where the reply did not end by itself.
    """

    tokens: tuple[TokenEvent, ...] = ()
    rounds: tuple[RoundEvent, ...] = ()
    result: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """A place where a search found something: in a message, or in the title (message None).

    before, match, after: an excerpt on one line around the first hit.
    """

    conversation: int
    label: str
    message: int | None
    role: str
    created: datetime
    before: str
    match: str
    after: str


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did. added: new conversations.  skipped: how many had been imported before, and are here."""

    added: tuple[int, ...]
    skipped: int


def turns(system: str, path: Iterable[Message]) -> list[dict[str, str]]:
    """A branch as chat messages for a model.

    Replies without a word and messages of tools are left out; neighbours of one role become one, since many templates
    want roles to alternate.
    """
    found: list[dict[str, str]] = [{"role": "system", "content": system}] if system else []
    for message in path:
        if message.role == "tool" or not message.text:
            continue
        if found and found[-1]["role"] == message.role:
            found[-1]["content"] += f"\n\n{message.text}"
        else:
            found.append({"role": message.role, "content": message.text})
    return found
