"""POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import BadRequestError
from ..reply import Reply
from . import sse
from .errors import ApiError
from .forms import FINGERPRINT, Heading
from .pieces import Piece, entries, timings, usage
from .reading import Called, Part, Reader, Said, Thought
from .schema import CHAT, Wanted, read_fields, required
from .tools import checked_choice


def read_chat(body: Mapping[str, Any]) -> Wanted:
    """Raises ApiError."""
    options, values = read_fields(CHAT, body)
    if options.get("top_logprobs") and not values.get("logprobs"):
        raise ApiError(400, "top_logprobs needs logprobs: true", param="top_logprobs", code="invalid_value")
    tools = values.get("tools", ())
    try:
        choice = checked_choice("tool_choice", values.get("tool_choice"), tools)
    except BadRequestError as error:
        raise ApiError(400, str(error), param="tool_choice", code="invalid_value") from None
    return Wanted(
        messages=required(values, "messages"),
        options=options,
        model=values.get("model"),
        stream=values.get("stream", False),
        logprobs=values.get("logprobs", False),
        usage=values.get("stream_options", False),
        events=values.get("events", False),
        given=frozenset(body),
        tools=tools,
        choice=choice,
        several=values.get("parallel_tool_calls", False),
        apart=values.get("reasoning_format", True),
        effort=values.get("reasoning_effort"),
        variables=values.get("chat_template_kwargs", {}),
    )


class ChatForm:
    """Implements Form."""

    def __init__(self, wanted: Wanted, heading: Heading) -> None:
        self._wanted = wanted
        self._reader = Reader(wanted.reading)
        self._called = 0  # calls told
        self._head = {
            "id": f"chatcmpl-{heading.id}",
            "created": heading.created,
            "model": heading.model,
            "system_fingerprint": FINGERPRINT,
        }

    def whole(self, reply: Reply, pieces: list[Piece], reused: int) -> dict[str, Any]:
        message = {"role": "assistant", "content": reply.text, "refusal": None}
        if not self._wanted.reading.plain:
            parts = [part for piece in pieces for part in self._reader.push(piece.text)]
            message |= self._read([*parts, *self._reader.finish(_untold(reply, pieces))])
        choice = {
            "index": 0,
            "message": message,
            "logprobs": {"content": entries(pieces), "refusal": None} if self._wanted.logprobs else None,
            "finish_reason": self._reason(reply),
        }
        taken = {"usage": self._usage(reply, reused), "timings": timings(reply, reused)}
        return {**self._head, "object": "chat.completion", "choices": [choice], **taken}

    def begin(self) -> list[bytes]:
        return [self._chunk({"role": "assistant", "content": ""})]

    def more(self, piece: Piece) -> list[bytes]:
        logprobs = {"content": entries([piece]), "refusal": None} if self._wanted.logprobs else None
        if self._wanted.reading.plain:
            return [self._chunk({"content": piece.text}, logprobs=logprobs)]
        deltas = self._deltas(self._reader.push(piece.text))
        if logprobs is None:
            return [self._chunk(delta) for delta in deltas]
        first, *others = deltas or [{}]
        return [self._chunk(first, logprobs=logprobs), *(self._chunk(delta) for delta in others)]

    def end(self, reply: Reply, reused: int) -> list[bytes]:
        deltas = [] if self._wanted.reading.plain else self._deltas(self._reader.finish())
        last = self._chunk({}, finish_reason=self._reason(reply), timings=timings(reply, reused))
        frames = [*(self._chunk(delta) for delta in deltas), last]
        if self._wanted.usage:
            head = {**self._head, "object": "chat.completion.chunk"}
            frames.append(sse.frame({**head, "choices": [], "usage": self._usage(reply, reused)}))
        return [*frames, sse.DONE]

    def events(self, told: list[dict[str, Any]]) -> list[bytes]:
        empty = {"usage": None} if self._wanted.usage else {}
        return [sse.frame({**self._head, "object": "chat.completion.chunk", "choices": [], "edgespec": told, **empty})]

    def failed(self, error: ApiError) -> list[bytes]:
        return [sse.frame(error.body)]

    def _read(self, parts: list[Part]) -> dict[str, Any]:
        """The fields of a message that these parts make."""
        said = "".join(part.text for part in parts if isinstance(part, Said))
        thought = "".join(part.text for part in parts if isinstance(part, Thought))
        calls = [_call(part) for part in parts if isinstance(part, Called)]
        found: dict[str, Any] = {"content": None if calls and not said else said}
        if thought:
            found["reasoning_content"] = thought
        return {**found, "tool_calls": calls} if calls else found

    def _deltas(self, parts: list[Part]) -> list[dict[str, Any]]:
        deltas: list[dict[str, Any]] = []
        for part in parts:
            match part:
                case Said(text):
                    deltas.append({"content": text})
                case Thought(text):
                    deltas.append({"reasoning_content": text})
                case Called():
                    deltas.append({"tool_calls": [{"index": self._called, **_call(part)}]})
                    self._called += 1
        return deltas

    def _reason(self, reply: Reply) -> str:
        return "tool_calls" if self._reader.calls and reply.finish_reason == "stop" else reply.finish_reason

    def _usage(self, reply: Reply, reused: int) -> dict[str, Any]:
        thought = min(self._reader.thought_tokens, reply.stats.completion_tokens)
        return {**usage(reply, reused), "completion_tokens_details": {"reasoning_tokens": thought}}

    def _chunk(
        self, delta: dict[str, Any], *, finish_reason: str | None = None, logprobs: Any = None, **more: Any
    ) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        if self._wanted.usage:  # OpenAI announces it so
            more["usage"] = None
        return sse.frame({**self._head, "object": "chat.completion.chunk", "choices": [choice], **more})


def _call(part: Called) -> dict[str, Any]:
    call = part.call
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _untold(reply: Reply, pieces: list[Piece]) -> str:
    """What was held back when the answer was ended, and came with no token."""
    return reply.text[sum(len(piece.text) for piece in pieces) :] if reply.finish_reason == "cancelled" else ""
