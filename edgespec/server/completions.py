"""POST /v1/completions: a raw text goes on, without a chat template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..reply import Reply
from . import sse
from .errors import ApiError
from .forms import FINGERPRINT, Heading
from .pieces import Piece, timings, usage
from .schema import COMPLETION_TOKENS, COMPLETIONS, Wanted, read_fields, required


def read_completion(body: Mapping[str, Any]) -> Wanted:
    """Raises ApiError."""
    options, values = read_fields(COMPLETIONS, body)
    return Wanted(
        prompt=required(values, "prompt"),
        options={"max_tokens": COMPLETION_TOKENS, **options},
        model=values.get("model"),
        stream=values.get("stream", False),
        logprobs="top_logprobs" in options,
        usage=values.get("stream_options", False),
        events=values.get("events", False),
        given=frozenset(body),
    )


class CompletionForm:
    """Implements Form."""

    def __init__(self, wanted: Wanted, heading: Heading) -> None:
        self._wanted = wanted
        self._at = 0  # characters told
        self._head = {
            "id": f"cmpl-{heading.id}",
            "object": "text_completion",
            "created": heading.created,
            "model": heading.model,
            "system_fingerprint": FINGERPRINT,
        }

    def whole(self, reply: Reply, pieces: list[Piece], reused: int) -> dict[str, Any]:
        choice = self._choice(reply.text, pieces, reply.finish_reason)
        return {**self._head, "choices": [choice], "usage": usage(reply, reused), "timings": timings(reply, reused)}

    def begin(self) -> list[bytes]:
        return []

    def more(self, piece: Piece) -> list[bytes]:
        return [self._chunk([self._choice(piece.text, [piece], None)])]

    def end(self, reply: Reply, reused: int) -> list[bytes]:
        frames = [self._chunk([self._choice("", [], reply.finish_reason)], timings=timings(reply, reused))]
        if self._wanted.usage:
            frames.append(self._chunk([], usage=usage(reply, reused)))
        return [*frames, sse.DONE]

    def events(self, told: list[dict[str, Any]]) -> list[bytes]:
        return [self._chunk([], edgespec=told)]

    def failed(self, error: ApiError) -> list[bytes]:
        return [sse.frame(error.body)]

    def _chunk(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        empty = {"usage": None} if self._wanted.usage else {}
        return sse.frame({**self._head, "choices": choices, **empty, **more})

    def _choice(self, text: str, pieces: list[Piece], finish_reason: str | None) -> dict[str, Any]:
        logprobs = self._logprobs(pieces) if self._wanted.logprobs else None
        return {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}

    def _logprobs(self, pieces: list[Piece]) -> dict[str, Any]:
        """text_offset counts from the beginning of the completion."""
        tokens, logprobs, offsets = [], [], []
        top = []
        for piece in pieces:
            if piece.logprob is not None:
                tokens.append(piece.text)
                logprobs.append(piece.logprob)
                offsets.append(self._at)
                top.append({t.text: t.logprob for t in reversed(piece.top)})  # of one text the likeliest
            self._at += len(piece.text)
        return {"tokens": tokens, "token_logprobs": logprobs, "top_logprobs": top, "text_offset": offsets}
