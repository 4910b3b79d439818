"""The Python API over an engine in a process of its own: what kills the model raises EngineDied, and no more.

edgespec.load(..., isolated=True) gives an IsolatedLLM. It has the methods of LLM for generating text. Whatever of LLM
reaches into the model itself (its contexts, its costs) stays in the other process.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from ..asking import Asking, Messages, Prompt
from ..errors import BadRequestError, EdgeSpecError
from ..message_fields import parse_messages
from ..messages import Message
from ..reply import Reply
from ..stats import GenerationStats, RoundEvent, TokenEvent
from .interface import Engine, Generating
from .protocol import Finished, GenerateSpec, Loaded

_CLOSE_S = 5.0  # a cancelled request ends well before


class IsolatedStream(Iterator[TokenEvent]):
    """TokenEvents of a request that runs in the engine's process; closing it cancels."""

    def __init__(self, llm: IsolatedLLM, generating: Generating) -> None:
        self._llm, self._generating = llm, generating
        self._tokens: list[TokenEvent] = []
        self._stats = GenerationStats()

    def events(self) -> Iterator[TokenEvent | RoundEvent]:
        """Token and round events in the order they happen. Use either this or iteration."""
        for event in self._generating:
            match event:
                case TokenEvent():
                    self._tokens.append(event)
                    yield event
                case RoundEvent():
                    self._stats.record(event)
                    yield event
                case Finished(reply):
                    self._llm.stats = reply.stats

    def __next__(self) -> TokenEvent:
        for event in self.events():
            if isinstance(event, TokenEvent):
                return event
        raise StopIteration

    def cancel(self) -> None:
        """Stop soon, from any thread or a signal handler; the iteration ends by itself."""
        self._generating.cancel()

    def close(self) -> None:
        """Stop now. The text so far stays in `reply`."""
        self._generating.cancel()
        end = time.monotonic() + _CLOSE_S
        try:
            while not self._generating.finished and (left := end - time.monotonic()) > 0:
                for event in self._generating.take(left):
                    if isinstance(event, TokenEvent):
                        self._tokens.append(event)
                    elif isinstance(event, Finished):
                        self._llm.stats = event.reply.stats
        except EdgeSpecError:
            pass  # it has ended, too; whoever iterates gets errors raised

    @property
    def reply(self) -> Reply:
        """The reply so far; finish_reason is "cancelled" until the request has ended by itself."""
        if self._generating.reply is not None:
            return self._generating.reply
        self._stats.completion_tokens = len(self._tokens)
        return Reply(
            text="".join(event.text for event in self._tokens),
            tokens=tuple(event.id for event in self._tokens),
            logprobs=tuple(event.logprob for event in self._tokens),
            finish_reason="cancelled",
            model=self._llm.name,
            drafter=self._llm.drafter,
            stats=self._stats,
        )

    def __enter__(self) -> IsolatedStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class IsolatedLLM(Asking):
    """A model in a process of its own. Safe to use from several threads: requests are served in order."""

    def __init__(self, engine: Engine, loaded: Loaded) -> None:
        """engine: has this model loaded, and is closed with it."""
        self._engine, self.loaded = engine, loaded
        self.stats: GenerationStats | None = None  # of the latest request that ended

    @property
    def name(self) -> str:
        """The target's file name."""
        return self.loaded.name

    @property
    def drafter(self) -> str:
        """The sources in use, comma-separated, or "none"."""
        return self.loaded.drafter

    @property
    def why(self) -> str:
        """One sentence on why nothing can draft, or nothing."""
        return self.loaded.why

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines for the user about what was loaded."""
        return self.loaded.notes

    def encode(self, prompt: Prompt | Messages) -> tuple[int, ...]:
        """Ids of a prompt: a raw text, ids, or chat messages (through the model's template)."""
        return self._engine.translate(_spec(prompt, {})).ids

    def tokenize(self, text: str) -> tuple[int, ...]:
        """Ids of a raw text, with BOS where the model wants one."""
        return self.encode(text)

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Visible text of ids."""
        return self._engine.translate(_spec(tuple(tokens), {})).text if tokens else ""

    def stream(self, prompt: Prompt | Messages, **options: Any) -> IsolatedStream:
        """Start a request; its errors are raised by iterating. One more option: deadline_s, seconds it may take."""
        return IsolatedStream(self, self._engine.generate(_spec(prompt, options)))

    def close(self) -> None:
        """End the process. Running streams end with an error."""
        self._engine.close()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"an isolated model has no {name!r}: the model is in another process; load it without isolated=True"
        )


def _spec(prompt: Prompt | Messages, options: Mapping[str, Any]) -> GenerateSpec:
    """A request of the engine. Raises BadRequestError."""
    more = dict(options)
    deadline = more.pop("deadline_s", None)
    if not isinstance(prompt, str | Sequence) or isinstance(prompt, bytes | bytearray):
        raise BadRequestError(f"the prompt is a {type(prompt).__name__}; give text, token ids, or a list of messages")
    if not prompt:
        raise BadRequestError("the prompt is empty; give some text")
    if isinstance(prompt, str):
        return GenerateSpec(prompt=prompt, options=more, deadline_s=deadline)
    if any(isinstance(item, Mapping | Message) for item in prompt):
        return GenerateSpec(messages=parse_messages(prompt), options=more, deadline_s=deadline)  # type: ignore[arg-type]
    if not all(type(item) is int for item in prompt):
        raise BadRequestError("the prompt has something else than token ids in it; give whole numbers")
    return GenerateSpec(prompt=tuple(prompt), options=more, deadline_s=deadline)  # type: ignore[arg-type]  # as checked
