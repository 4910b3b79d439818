"""A chat message: the one type that conversations, prompts and the engine's protocol share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function that the model wants called. arguments: a JSON object, as text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation. role: one of ROLES.

    reasoning, calls: of an assistant: what it thought before the content, and what it wants called.
    call_id, name: of a tool: the call that the content is the result of, and the function's name.
    """

    role: str
    content: str
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    name: str = ""

    def mapped(self, change: Callable[[str], str]) -> Message:
        """With every text in it changed, but for the role and the arguments of calls, whose JSON is another matter."""
        calls = tuple(replace(call, id=change(call.id), name=change(call.name)) for call in self.calls)
        return Message(
            self.role, change(self.content), change(self.reasoning), calls, change(self.call_id), change(self.name)
        )
