"""What a server's stream says, as events of an engine. Nothing in it is trusted: types, sizes and sums are checked."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ..errors import ServerError
from ..reply import Reply
from ..stats import DraftedToken, GenerationStats, RoundEvent, TokenEvent
from .protocol import Reading

DONE = b"[DONE]"
UNTOLD = -1  # id of a token whose server tells texts only
_FOREIGN = "the server does not say how it decodes"

_Count = Annotated[int, Meta(ge=0, lt=1 << 31)]
_Ms = Annotated[float, Meta(ge=0, le=1e12)]
_Share = Annotated[float, Meta(ge=0, le=1.001)]
_Text = Annotated[str, Meta(max_length=1 << 16)]
_Name = Annotated[str, Meta(max_length=200)]
_Source = Annotated[str, Meta(pattern=r"^[a-z0-9_-]{1,40}$")]
_Line = Annotated[str, Meta(max_length=1000)]


class _Token(msgspec.Struct, tag="token"):
    text: _Text
    id: _Count
    source: _Source
    round: _Count
    logprob: Annotated[float, Meta(le=1)] | None = None


class _Drafted(msgspec.Struct):
    id: _Count
    text: _Text
    q: _Share
    accepted: bool
    p: _Share | None = None


class _Round(msgspec.Struct, tag="round"):
    round: _Count
    source: _Source
    drafted: Annotated[list[_Drafted], Meta(max_length=1024)]
    accepted: _Count
    produced: _Count
    emitted: Annotated[list[_Count], Meta(max_length=1025)]
    draft_ms: _Ms
    verify_ms: _Ms
    other_ms: _Ms
    beside: _Count = 0


class _Reading(msgspec.Struct, tag="reading"):
    done: _Count
    total: _Count
    reused: _Count


class _Usage(msgspec.Struct):
    prompt_tokens: _Count = 0
    completion_tokens: _Count = 0


class _Stats(msgspec.Struct):
    prompt_ms: _Ms = 0.0
    why: _Line = ""


class _Reply(msgspec.Struct, tag="reply"):
    finish_reason: Literal["stop", "length", "cancelled"]
    usage: _Usage
    stats: _Stats
    drafter: _Name = ""
    seed: Annotated[int, Meta(ge=0)] | None = None


class _Delta(msgspec.Struct):
    content: _Text | None = None
    reasoning_content: _Text | None = None


class _Choice(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)
    finish_reason: _Name | None = None


class _Timings(msgspec.Struct):
    """Of llama.cpp's server."""

    prompt_ms: _Ms = 0.0
    predicted_ms: _Ms = 0.0


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    edgespec: list[_Token | _Round | _Reading | _Reply] = []
    usage: _Usage | None = None
    timings: _Timings | None = None
    error: msgspec.Raw = msgspec.Raw()


_decode = msgspec.json.Decoder(_Chunk).decode


class ServerAnswer:
    """One answer: take() each piece of data, then reply(). ended: all of it has come.  error: of the server, as JSON.

    edgespec: the server tells its engine's events. The others tell texts, of which each counts as a token.
    """

    def __init__(self, model: str, shown: str, *, edgespec: bool) -> None:
        """shown: the server, for errors."""
        self.ended = False
        self.error = b""
        self._model, self._shown, self._edgespec = model, shown, edgespec
        self._texts: list[str] = []
        self._ids: list[int] = []
        self._logprobs: list[float] = []
        self._stats = GenerationStats(why="" if edgespec else _FOREIGN)
        self._end: _Reply | None = None
        self._reason = ""
        self._thinks = False
        self._first = 0.0

    def take(self, data: bytes) -> Iterator[TokenEvent | RoundEvent | Reading]:
        """Raises ServerError for what is no part of an answer."""
        if data == DONE:
            self.ended = True
            return
        try:
            chunk = _decode(data)
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            raise ServerError(f"the server at {self._shown} sent what is no part of an answer: {error}") from None
        if bytes(chunk.error) not in (b"", b"null"):
            self.error = bytes(chunk.error)
            return
        if chunk.usage is not None:
            self._count(chunk.usage)
        if not self._edgespec:
            yield from self._told(chunk)
        for one in chunk.edgespec if self._edgespec else ():
            match one:
                case _Token():
                    yield self._token(one)
                case _Round():
                    yield self._round(one)
                case _Reading():
                    yield Reading(one.done, one.total, one.reused)
                case _Reply():
                    self._end, self._reason = one, one.finish_reason
                    self._count(one.usage)
                    self._stats.prompt_ms, self._stats.why = one.stats.prompt_ms, one.stats.why

    @property
    def whole(self) -> bool:
        """It was said why the answer ended."""
        return bool(self._reason)

    def reply(self, finish_reason: str = "") -> Reply:
        """What has come. finish_reason: in place of the server's."""
        stats = self._stats
        reason = finish_reason or (self._reason if self._reason in ("stop", "length", "cancelled") else "stop")
        stats.completion_tokens = stats.completion_tokens or len(self._ids)
        made = min(stats.completion_tokens, len(self._ids)) if self._edgespec else len(self._ids)
        if not self._edgespec and not stats.decode_ms and self._first:
            stats.decode_ms = 1000 * (time.monotonic() - self._first)
        return Reply(
            text="".join(self._texts),
            tokens=tuple(self._ids[:made]),
            logprobs=tuple(self._logprobs[:made]),
            finish_reason=reason,
            model=self._model,
            drafter="" if self._end is None else self._end.drafter,
            stats=stats,
            seed=None if self._end is None else self._end.seed,
        )

    def _count(self, usage: _Usage) -> None:
        self._stats.prompt_tokens, self._stats.completion_tokens = usage.prompt_tokens, usage.completion_tokens

    def _token(self, one: _Token) -> TokenEvent:
        logprob = -math.inf if one.logprob is None else one.logprob
        return self._said(TokenEvent(one.text, one.id, one.source, logprob, one.round))

    def _said(self, event: TokenEvent) -> TokenEvent:
        self._texts.append(event.text)
        self._ids.append(event.id)
        self._logprobs.append(event.logprob)
        return event

    def _round(self, one: _Round) -> RoundEvent:
        k = len(one.drafted)
        if one.accepted > k or one.produced > k + 1 or len(one.emitted) > one.produced:
            raise ServerError(f"the server at {self._shown} tells of a round whose counts cannot be")
        event = RoundEvent(
            round=one.round,
            source=one.source,
            k=k,
            drafted=tuple(DraftedToken(d.id, d.text, d.q, d.p, d.accepted) for d in one.drafted),
            accepted=one.accepted,
            produced=one.produced,
            emitted=tuple(one.emitted),
            draft_ms=one.draft_ms,
            verify_ms=one.verify_ms,
            other_ms=one.other_ms,
            beside=one.beside,
        )
        self._stats.record(event)
        return event

    def _told(self, chunk: _Chunk) -> Iterator[TokenEvent]:
        """Of a server that is not ours. Thoughts lie between the usual marks."""
        if chunk.timings is not None:
            self._stats.prompt_ms, self._stats.decode_ms = chunk.timings.prompt_ms, chunk.timings.predicted_ms
        for choice in chunk.choices[:1]:
            thought, text = choice.delta.reasoning_content or "", choice.delta.content or ""
            if thought and not self._thinks:
                self._thinks, thought = True, f"<think>\n{thought}"
            if text and self._thinks:
                self._thinks, text = False, f"\n</think>\n\n{text}"
            self._reason = choice.finish_reason or self._reason
            if thought or text:
                self._first = self._first or time.monotonic()
                yield self._said(TokenEvent(thought + text, UNTOLD, "target", -math.inf, 0))
