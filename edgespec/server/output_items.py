"""The items that a response puts out, and the events that a stream tells of each: (type, data)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..messages import ToolCall
from .pieces import Piece, entries

Event = tuple[str, dict[str, Any]]


@dataclass(slots=True)
class TextItem:
    """A message. index: among the items.  logprobs: of its tokens are wanted."""

    id: str
    index: int
    logprobs: bool = False
    text: str = ""
    pieces: list[Piece] = field(default_factory=list)
    status: str = "in_progress"

    def begun(self) -> list[Event]:
        return [
            ("response.output_item.added", {"output_index": self.index, "item": self._item([])}),
            ("response.content_part.added", {**self._place(), "part": self._part()}),
        ]

    def more(self, piece: Piece) -> Event:
        self.text += piece.text
        if self.logprobs:
            self.pieces.append(piece)
        told = {"logprobs": entries([piece]) if self.logprobs else []}
        return f"response.{self._kind}.delta", {**self._place(), "delta": piece.text, **self._beside(told)}

    def ended(self) -> list[Event]:
        told = {"logprobs": entries(self.pieces)}
        return [
            (f"response.{self._kind}.done", {**self._place(), "text": self.text, **self._beside(told)}),
            ("response.content_part.done", {**self._place(), "part": self._part()}),
            ("response.output_item.done", {"output_index": self.index, "item": self.to_json()}),
        ]

    def to_json(self) -> dict[str, Any]:
        return self._item([self._part()])

    _kind: ClassVar[str] = "output_text"

    def _item(self, content: list[dict[str, Any]]) -> dict[str, Any]:
        head = {"id": self.id, "type": "message", "status": self.status, "role": "assistant"}
        return {**head, "content": content}

    def _part(self) -> dict[str, Any]:
        told = {"annotations": [], "logprobs": entries(self.pieces)}
        return {"type": self._kind, "text": self.text, **self._beside(told)}

    def _beside(self, told: dict[str, Any]) -> dict[str, Any]:
        """What stands beside the text itself."""
        return told

    def _place(self) -> dict[str, Any]:
        return {"item_id": self.id, "output_index": self.index, "content_index": 0}


class ThoughtItem(TextItem):
    """What the model thinks before it says something."""

    _kind = "reasoning_text"

    def _item(self, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self.id, "type": "reasoning", "status": self.status, "summary": [], "content": content}

    def _beside(self, told: dict[str, Any]) -> dict[str, Any]:
        return {}


@dataclass(frozen=True, slots=True)
class CallItem:
    """A call, which is told once it is whole."""

    id: str
    index: int
    call: ToolCall

    def told(self) -> list[Event]:
        place = {"item_id": self.id, "output_index": self.index}
        begun = {**self.to_json(), "arguments": "", "status": "in_progress"}
        arguments = self.call.arguments
        return [
            ("response.output_item.added", {"output_index": self.index, "item": begun}),
            ("response.function_call_arguments.delta", {**place, "delta": arguments}),
            ("response.function_call_arguments.done", {**place, "name": self.call.name, "arguments": arguments}),
            ("response.output_item.done", {"output_index": self.index, "item": self.to_json()}),
        ]

    def to_json(self) -> dict[str, Any]:
        call = self.call
        head = {"id": self.id, "type": "function_call", "status": "completed"}
        return {**head, "call_id": call.id, "name": call.name, "arguments": call.arguments}


Item = TextItem | CallItem
