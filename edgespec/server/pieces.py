"""What a stream shows of each token, and what an answer says about tokens and times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..reply import Reply
from ..stats import TokenEvent, TopToken

_LEAST = -9999.0  # as OpenAI tells what is all but impossible; JSON has no infinity


@dataclass(frozen=True, slots=True)
class Piece:
    """A token's share of the text. logprob: None where the text belongs to no token of the answer.  top: the likeliest
    tokens at its place."""

    text: str
    logprob: float | None
    top: tuple[TopToken, ...] = ()

    @staticmethod
    def of(event: TokenEvent) -> Piece:
        return Piece(event.text, event.logprob, event.top)

    def to_json(self) -> dict[str, Any]:
        """As OpenAI has it. A character of several tokens comes whole with the last of them."""
        return {**_entry(self.text, self.logprob), "top_logprobs": [_entry(t.text, t.logprob) for t in self.top]}


class Pieces:
    """Tokens to pieces, one token late: only the end tells whether the last event was a token of the answer, or what
    was held back when the model ended."""

    def __init__(self) -> None:
        self._latest: TokenEvent | None = None
        self._seen = 0

    def push(self, event: TokenEvent) -> Iterator[Piece]:
        before, self._latest = self._latest, event
        self._seen += 1
        if before is not None:
            yield Piece.of(before)

    def finish(self, reply: Reply) -> Iterator[Piece]:
        if self._latest is not None:
            yield Piece.of(self._latest) if self._seen <= len(reply.tokens) else Piece(self._latest.text, None)


def entries(pieces: list[Piece]) -> list[dict[str, Any]]:
    """`logprobs.content` of these pieces."""
    return [piece.to_json() for piece in pieces if piece.logprob is not None]


def usage(reply: Reply, reused: int) -> dict[str, Any]:
    """As chat and completions have it. reused: tokens of the prompt that were in the cache."""
    read, made = reply.stats.prompt_tokens, reply.stats.completion_tokens
    return {
        "prompt_tokens": read,
        "completion_tokens": made,
        "total_tokens": read + made,
        "prompt_tokens_details": {"cached_tokens": reused},
    }


def timings(reply: Reply, reused: int) -> dict[str, Any]:
    """As llama.cpp's server has them, and why nothing was drafted where that is so."""
    stats = reply.stats
    read, made = stats.prompt_tokens - reused, max(0, stats.completion_tokens - 1)  # the first is the prompt's
    return {
        "cache_n": reused,
        "prompt_n": read,
        "prompt_ms": stats.prompt_ms,
        "prompt_per_token_ms": _per(stats.prompt_ms, read),
        "prompt_per_second": _per(1000 * read, stats.prompt_ms),
        "predicted_n": stats.completion_tokens,
        "predicted_ms": stats.decode_ms,
        "predicted_per_token_ms": _per(stats.decode_ms, made),
        "predicted_per_second": _per(1000 * made, stats.decode_ms),
        "draft_n": stats.drafted,
        "draft_n_accepted": stats.accepted,
        "speedup_vs_plain": stats.speedup_vs_plain,
        "why": stats.why,
    }


def _entry(text: str, logprob: float | None) -> dict[str, Any]:
    told = None if logprob is None else max(logprob, _LEAST)
    return {"token": text, "logprob": told, "bytes": list(text.encode())}


def _per(amount: float, parts: float) -> float:
    return amount / parts if parts > 0 else 0.0
