"""POST /v1/responses: text in, text out. Nothing is stored, so a response cannot be asked for again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..messages import Message
from ..reply import Reply
from . import sse
from .errors import ApiError
from .forms import Heading
from .pieces import Piece, entries, timings
from .schema import RESPONSES, Wanted, read_fields, required

_TOLD_BACK = ("instructions", "max_output_tokens", "metadata", "temperature", "top_p", "text", "user")


def read_response(body: Mapping[str, Any]) -> Wanted:
    """Raises ApiError."""
    options, values = read_fields(RESPONSES, body)
    instructions = values.get("instructions")
    before = () if instructions is None else (Message("system", instructions),)
    return Wanted(
        messages=(*before, *required(values, "input")),
        options=options,
        model=values.get("model"),
        stream=values.get("stream", False),
        logprobs=values.get("include", False) or options.get("top_logprobs", 0) > 0,
        usage=True,
        events=values.get("events", False),
        given=frozenset(body),
        told_back={name: body[name] for name in _TOLD_BACK if body.get(name) is not None},
    )


class ResponseForm:
    """Implements Form."""

    def __init__(self, wanted: Wanted, heading: Heading) -> None:
        self._wanted, self._heading = wanted, heading
        self._item = f"msg_{heading.id}"
        self._number = 0
        self._pieces: list[Piece] = []  # told, where their logprobs are wanted

    def whole(self, reply: Reply, pieces: list[Piece], reused: int) -> dict[str, Any]:
        full = reply.finish_reason == "length"
        return self._response(
            "incomplete" if full else "completed",
            incomplete_details={"reason": "max_output_tokens"} if full else None,
            output=[self._message(reply.text, pieces, "incomplete" if full else "completed")],
            usage={
                "input_tokens": reply.stats.prompt_tokens,
                "input_tokens_details": {"cached_tokens": reused},
                "output_tokens": reply.stats.completion_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": reply.stats.prompt_tokens + reply.stats.completion_tokens,
            },
            timings=timings(reply, reused),
        )

    def begin(self) -> list[bytes]:
        message = {"id": self._item, "type": "message", "status": "in_progress", "role": "assistant", "content": []}
        return [
            self._event("response.created", response=self._response("in_progress")),
            self._event("response.in_progress", response=self._response("in_progress")),
            self._event("response.output_item.added", output_index=0, item=message),
            self._event("response.content_part.added", **self._place(), part=self._part("", [])),
        ]

    def more(self, piece: Piece) -> list[bytes]:
        if self._wanted.logprobs:
            self._pieces.append(piece)
        delta = {"delta": piece.text, "logprobs": self._logprobs([piece])}
        return [self._event("response.output_text.delta", **self._place(), **delta)]

    def end(self, reply: Reply, reused: int) -> list[bytes]:
        whole = self.whole(reply, self._pieces, reused)
        item = whole["output"][0]
        done = {"text": reply.text, "logprobs": self._logprobs(self._pieces)}
        return [
            self._event("response.output_text.done", **self._place(), **done),
            self._event("response.content_part.done", **self._place(), part=item["content"][0]),
            self._event("response.output_item.done", output_index=0, item=item),
            self._event(f"response.{whole['status']}", response=whole),
        ]

    def events(self, told: list[dict[str, Any]]) -> list[bytes]:
        return [self._event("edgespec.events", edgespec=told)]

    def failed(self, error: ApiError) -> list[bytes]:
        return [self._event("error", code=error.code, message=error.message, param=error.param)]

    def _event(self, type: str, **data: Any) -> bytes:
        self._number += 1
        return sse.frame({"type": type, "sequence_number": self._number - 1, **data}, type)

    def _place(self) -> dict[str, Any]:
        return {"item_id": self._item, "output_index": 0, "content_index": 0}

    def _logprobs(self, pieces: list[Piece]) -> list[dict[str, Any]]:
        return entries(pieces) if self._wanted.logprobs else []

    def _part(self, text: str, pieces: list[Piece]) -> dict[str, Any]:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": self._logprobs(pieces)}

    def _message(self, text: str, pieces: list[Piece], status: str) -> dict[str, Any]:
        content = [self._part(text, pieces)]
        return {"id": self._item, "type": "message", "status": status, "role": "assistant", "content": content}

    def _response(self, status: str, **more: Any) -> dict[str, Any]:
        return {
            "id": f"resp_{self._heading.id}",
            "object": "response",
            "created_at": self._heading.created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "max_output_tokens": None,
            "metadata": {},
            "model": self._heading.model,
            "output": [],
            "parallel_tool_calls": False,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "store": False,
            "temperature": None,
            "text": {"format": {"type": "text"}},
            "tool_choice": "none",
            "tools": [],
            "top_p": None,
            "truncation": "disabled",
            "usage": None,
            "user": None,
            **self._wanted.told_back,
            **more,
        }
