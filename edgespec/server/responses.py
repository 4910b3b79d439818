"""POST /v1/responses: text in, text, thoughts and calls out. Nothing is stored: no response can be asked for again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import BadRequestError
from ..messages import Message
from ..reply import Reply
from . import sse
from .errors import ApiError
from .forms import Heading
from .output_items import CallItem, Item, TextItem, ThoughtItem
from .pieces import Piece, timings
from .reading import Called, Part, Reader, Said, Thought
from .schema import RESPONSES, Wanted, read_fields, required
from .tools import checked_choice

_TOLD_BACK = (
    "instructions", "max_output_tokens", "metadata", "temperature", "top_p", "text", "user", "tools", "tool_choice",
    "parallel_tool_calls",
)  # fmt: skip


def read_response(body: Mapping[str, Any]) -> Wanted:
    """Raises ApiError."""
    options, values = read_fields(RESPONSES, body)
    instructions = values.get("instructions")
    before = () if instructions is None else (Message("system", instructions),)
    tools = values.get("tools", ())
    try:
        choice = checked_choice("tool_choice", values.get("tool_choice"), tools)
    except BadRequestError as error:
        raise ApiError(400, str(error), param="tool_choice", code="invalid_value") from None
    logprobs = values.get("include", False) or options.get("top_logprobs", 0) > 0
    if logprobs and choice.kind != "none":
        field = "include" if values.get("include") else "top_logprobs"
        raise ApiError(
            400, f"{field}: logprobs beside tools are for /v1/chat/completions", param=field, code="invalid_value"
        )
    return Wanted(
        messages=(*before, *required(values, "input")),
        options=options,
        model=values.get("model"),
        stream=values.get("stream", False),
        logprobs=logprobs,
        usage=True,
        events=values.get("events", False),
        given=frozenset(body),
        told_back={name: body[name] for name in _TOLD_BACK if body.get(name) is not None},
        tools=tools,
        choice=choice,
        several=values.get("parallel_tool_calls", False),
        apart=values.get("reasoning_format", True) and not logprobs,
        effort=values.get("reasoning"),
        variables=values.get("chat_template_kwargs", {}),
    )


class ResponseForm:
    """Implements Form."""

    def __init__(self, wanted: Wanted, heading: Heading) -> None:
        self._wanted, self._heading = wanted, heading
        self._plain = wanted.reading.plain
        self._reader = Reader(wanted.reading)
        self._number = 0
        self._items: list[Item] = []
        self._open: TextItem | None = None  # the last item, while its text comes

    def whole(self, reply: Reply, pieces: list[Piece], reused: int) -> dict[str, Any]:
        for piece in pieces:
            self._take(piece)
        self._finish(reply)
        return self._result(reply, reused)

    def begin(self) -> list[bytes]:
        response = self._response("in_progress")
        frames = [self._event(f"response.{what}", response=response) for what in ("created", "in_progress")]
        return frames + (self._begin(TextItem) if self._plain else [])

    def more(self, piece: Piece) -> list[bytes]:
        return self._take(piece)

    def end(self, reply: Reply, reused: int) -> list[bytes]:
        frames = self._finish(reply)
        response = self._result(reply, reused)
        return [*frames, self._event(f"response.{response['status']}", response=response)]

    def events(self, told: list[dict[str, Any]]) -> list[bytes]:
        return [self._event("edgespec.events", edgespec=told)]

    def failed(self, error: ApiError) -> list[bytes]:
        return [self._event("error", code=error.code, message=error.message, param=error.param)]

    # Items, and the events that tell of them

    def _take(self, piece: Piece) -> list[bytes]:
        if not self._plain:
            return self._tell(self._reader.push(piece.text))
        return self._say(TextItem, piece)

    def _finish(self, reply: Reply) -> list[bytes]:
        """The answer has ended."""
        frames = [] if self._plain else self._tell(self._reader.finish())
        if not self._items:  # nothing was said at all
            frames += self._begin(TextItem)
        if self._plain and self._open is not None:
            self._open.text = reply.text  # with what came with no token
        return frames + self._end("incomplete" if reply.finish_reason == "length" else "completed")

    def _tell(self, parts: list[Part]) -> list[bytes]:
        frames: list[bytes] = []
        for part in parts:
            match part:
                case Called(call):
                    frames += self._end("completed")
                    item = CallItem(f"fc_{self._heading.id}_{len(self._items)}", len(self._items), call)
                    self._items.append(item)
                    frames += [self._event(type, **data) for type, data in item.told()]
                case Said(text):
                    frames += self._say(TextItem, Piece(text, None))
                case Thought(text):
                    frames += self._say(ThoughtItem, Piece(text, None))
        return frames

    def _say(self, kind: type[TextItem], piece: Piece) -> list[bytes]:
        """More of the last item, if it is of this kind, else of a new one."""
        frames = [] if type(self._open) is kind else self._begin(kind)
        assert self._open is not None
        type_, data = self._open.more(piece)
        return [*frames, self._event(type_, **data)]

    def _begin(self, kind: type[TextItem]) -> list[bytes]:
        frames = self._end("completed")
        number = f"_{len(self._items)}" if self._items else ""
        prefix = "msg" if kind is TextItem else "rs"
        self._open = kind(f"{prefix}_{self._heading.id}{number}", len(self._items), logprobs=self._wanted.logprobs)
        self._items.append(self._open)
        return frames + [self._event(type, **data) for type, data in self._open.begun()]

    def _end(self, status: str) -> list[bytes]:
        item, self._open = self._open, None
        if item is None:
            return []
        item.status = status
        return [self._event(type, **data) for type, data in item.ended()]

    def _event(self, type: str, **data: Any) -> bytes:
        self._number += 1
        return sse.frame({"type": type, "sequence_number": self._number - 1, **data}, type)

    def _result(self, reply: Reply, reused: int) -> dict[str, Any]:
        full = reply.finish_reason == "length"
        return self._response(
            "incomplete" if full else "completed",
            incomplete_details={"reason": "max_output_tokens"} if full else None,
            output=[item.to_json() for item in self._items],
            usage={
                "input_tokens": reply.stats.prompt_tokens,
                "input_tokens_details": {"cached_tokens": reused},
                "output_tokens": reply.stats.completion_tokens,
                "output_tokens_details": {
                    "reasoning_tokens": min(self._reader.thought_tokens, reply.stats.completion_tokens)
                },
                "total_tokens": reply.stats.prompt_tokens + reply.stats.completion_tokens,
            },
            timings=timings(reply, reused),
        )

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
            "reasoning": {"effort": self._wanted.effort, "summary": None},
            "store": False,
            "temperature": None,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto" if self._wanted.tools else "none",
            "tools": [],
            "top_p": None,
            "truncation": "disabled",
            "usage": None,
            "user": None,
            **self._wanted.told_back,
            **more,
        }
