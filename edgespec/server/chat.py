"""POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..reply import Reply
from . import sse
from .errors import ApiError
from .forms import FINGERPRINT, Heading
from .pieces import Piece, entries, timings, usage
from .schema import CHAT, Wanted, read_fields, required


def read_chat(body: Mapping[str, Any]) -> Wanted:
    """Raises ApiError."""
    options, values = read_fields(CHAT, body)
    if options.get("top_logprobs") and not values.get("logprobs"):
        raise ApiError(400, "top_logprobs needs logprobs: true", param="top_logprobs", code="invalid_value")
    return Wanted(
        messages=required(values, "messages"),
        options=options,
        model=values.get("model"),
        stream=values.get("stream", False),
        logprobs=values.get("logprobs", False),
        usage=values.get("stream_options", False),
        given=frozenset(body),
    )


class ChatForm:
    """Implements Form."""

    def __init__(self, wanted: Wanted, heading: Heading) -> None:
        self._wanted = wanted
        self._head = {
            "id": f"chatcmpl-{heading.id}",
            "created": heading.created,
            "model": heading.model,
            "system_fingerprint": FINGERPRINT,
        }

    def whole(self, reply: Reply, pieces: list[Piece], reused: int) -> dict[str, Any]:
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": reply.text, "refusal": None},
            "logprobs": {"content": entries(pieces), "refusal": None} if self._wanted.logprobs else None,
            "finish_reason": reply.finish_reason,
        }
        taken = {"usage": usage(reply, reused), "timings": timings(reply, reused)}
        return {**self._head, "object": "chat.completion", "choices": [choice], **taken}

    def begin(self) -> list[bytes]:
        return [self._chunk({"role": "assistant", "content": ""})]

    def more(self, piece: Piece) -> list[bytes]:
        logprobs = {"content": entries([piece]), "refusal": None} if self._wanted.logprobs else None
        return [self._chunk({"content": piece.text}, logprobs=logprobs)]

    def end(self, reply: Reply, reused: int) -> list[bytes]:
        frames = [self._chunk({}, finish_reason=reply.finish_reason, timings=timings(reply, reused))]
        if self._wanted.usage:
            head = {**self._head, "object": "chat.completion.chunk"}
            frames.append(sse.frame({**head, "choices": [], "usage": usage(reply, reused)}))
        return [*frames, sse.DONE]

    def failed(self, error: ApiError) -> list[bytes]:
        return [sse.frame(error.body)]

    def _chunk(
        self, delta: dict[str, Any], *, finish_reason: str | None = None, logprobs: Any = None, **more: Any
    ) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        if self._wanted.usage:  # OpenAI announces it so
            more["usage"] = None
        return sse.frame({**self._head, "object": "chat.completion.chunk", "choices": [choice], **more})
