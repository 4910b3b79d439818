"""The items that a response puts out, and the events that a stream tells of each: (type, data)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..messages import ToolCall
from .pieces import Piece, entries

Event = tuple[str, dict[str, Any]]


@dataclass(slots=True)
class TextItem:
    """A message. index: among the items.  logprobs: of its tokens are wanted."""

    id: str
    index: int
    logprobs: bool
    text: str = ""
    pieces: list[Piece] = field(default_factory=list)
    status: str = "in_progress"

    def begun(self) -> list[Event]:
        item = {"id": self.id, "type": "message", "status": "in_progress", "role": "assistant", "content": []}
        return [
            ("response.output_item.added", {"output_index": self.index, "item": item}),
            ("response.content_part.added", {**self._place(), "part": self._part()}),
        ]

    def more(self, piece: Piece) -> Event:
        self.text += piece.text
        if self.logprobs:
            self.pieces.append(piece)
        told = entries([piece]) if self.logprobs else []
        return "response.output_text.delta", {**self._place(), "delta": piece.text, "logprobs": told}

    def ended(self) -> list[Event]:
        part = self._part()
        return [
            ("response.output_text.done", {**self._place(), "text": self.text, "logprobs": part["logprobs"]}),
            ("response.content_part.done", {**self._place(), "part": part}),
            ("response.output_item.done", {"output_index": self.index, "item": self.to_json()}),
        ]

    def to_json(self) -> dict[str, Any]:
        head = {"id": self.id, "type": "message", "status": self.status, "role": "assistant"}
        return {**head, "content": [self._part()]}

    def _part(self) -> dict[str, Any]:
        return {"type": "output_text", "text": self.text, "annotations": [], "logprobs": entries(self.pieces)}

    def _place(self) -> dict[str, Any]:
        return {"item_id": self.id, "output_index": self.index, "content_index": 0}


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
