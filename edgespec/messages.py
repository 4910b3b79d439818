"""A chat message: the one type that conversations, prompts and the engine's protocol share."""

from __future__ import annotations

from dataclasses import dataclass

ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation. role: one of ROLES."""

    role: str
    content: str
