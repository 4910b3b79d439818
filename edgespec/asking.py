"""The ways to ask a model for text, wherever it runs: all of them come down to stream()."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from .message_fields import parse_messages
from .messages import Message
from .reply import Reply
from .stats import TokenEvent

Prompt = str | Sequence[int]
Messages = Sequence[Mapping[str, Any] | Message]


class Running(Protocol):
    """A request that runs: an iterator of TokenEvents; closing it, or leaving its `with` block, cancels."""

    @property
    def reply(self) -> Reply:
        """The reply so far; finish_reason is "cancelled" until the request has ended by itself."""
        ...

    def __next__(self) -> TokenEvent: ...
    def __iter__(self) -> Any: ...

    def cancel(self) -> None:
        """Stop soon, from any thread; the iteration ends by itself."""
        ...

    def close(self) -> None:
        """Stop now. The text so far stays in `reply`."""
        ...


class Asking(ABC):
    """Something that answers. Leaving its `with` block closes it."""

    @abstractmethod
    def stream(self, prompt: Prompt | Messages, **options: Any) -> Running:
        """Start a request. prompt: raw text, ids, or a list of {"role", "content"} messages.

        options: fields of SamplingParams and of options.Options, by name. Raises BadRequestError for what cannot be
        asked (an unknown option, a value out of range, an empty prompt, messages without a template), ContextFullError
        where the prompt does not fit; iterating raises DecodeError, EngineDied.
        """

    @abstractmethod
    def close(self) -> None:
        """Free what it holds."""

    def complete(self, prompt: Prompt, **options: Any) -> Reply:
        """Continue a raw text or ids. Returns when finished. options, errors: as for stream()."""
        return _finish(self.stream(prompt, **options))

    def chat(self, messages: Messages, **options: Any) -> Reply:
        """Answer chat messages through the template. Returns when finished. options, errors: as for stream()."""
        return _finish(self.stream(parse_messages(messages), **options))

    async def astream(self, prompt: Prompt | Messages, **options: Any) -> AsyncIterator[TokenEvent]:
        """stream() for asyncio: decoding happens in a thread. Leaving the iteration cancels the generation."""
        stream = self.stream(prompt, **options)
        try:
            while (event := await asyncio.to_thread(next, stream, None)) is not None:
                yield event
        finally:
            stream.close()

    async def acomplete(self, prompt: Prompt, **options: Any) -> Reply:
        """complete() for asyncio; cancelling the task cancels the generation."""
        return await _afinish(self.stream(prompt, **options))

    async def achat(self, messages: Messages, **options: Any) -> Reply:
        """chat() for asyncio; cancelling the task cancels the generation."""
        return await _afinish(self.stream(parse_messages(messages), **options))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _finish(stream: Running) -> Reply:
    try:
        for _ in stream:
            pass
    finally:
        stream.close()
    return stream.reply


async def _afinish(stream: Running) -> Reply:
    try:
        return await asyncio.to_thread(_finish, stream)
    except asyncio.CancelledError:
        stream.cancel()
        raise
