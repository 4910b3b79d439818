"""What front ends ask of an engine and what it answers: specs and events, the same for every kind of engine.

Plain data with its types checked when it is read; how it travels to an engine in another process: wire.py.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec

from .. import errors
from ..dialect import Dialect
from ..errors import EdgeSpecError, EngineError
from ..messages import Message
from ..reply import Reply
from ..stats import RoundEvent, TokenEvent
from ..text import replace_surrogates

MAX_INPUTS = 1024  # of one request for embeddings


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Plain data, checked field by field when it is read."""


class Tagged(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """One of several types; the name of the type goes along."""


# What is asked ---------------------------------------------------------------------------------------------------


class LoadSpec(_Record, frozen=True):
    """Which model, and how: the arguments of edgespec.load(), paths as text.

    at_once: requests that are answered at the same time, in shared rounds; the others wait.
    """

    model: str | None = None
    draft: str = "auto"
    drafter: str = "auto"
    heads: str = "auto"
    ctx_size: int | None = None
    n_batch: int = 512
    threads: int | None = None
    gpu_layers: int | None = None
    draft_gpu_layers: int | None = None
    kv_type: str = "f16"
    buffers: Literal["auto", "repack", "none"] | None = None
    flash_attn: Literal["auto", "on", "off"] = "auto"
    parallel: int = 4
    at_once: int = 1
    max_width: int = 32
    split_cache: bool = False
    suffix_history: bool = False
    tuned: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.at_once <= self.parallel:
            raise errors.BadRequestError(
                f"{self.at_once} requests at once are asked for; give 1 to {self.parallel}, the sequences that are held"
            )


class GenerateSpec(_Record, frozen=True):
    """One request: `messages` through the model's chat template, or else a raw `prompt` (text or token ids).

    options: the keywords of LLM.stream (fields of SamplingParams and Options); they are checked where it runs.
    conversation: names the conversation; where given, the state of the model after the request may be kept on
    disk, so that the next turn need not read the text again, even after a restart. None: nothing is written.
    deadline_s: seconds from now in which it must be finished; None: no limit.
    """

    messages: tuple[Message, ...] = ()
    prompt: str | tuple[int, ...] | None = None
    options: dict[str, Any] = {}
    conversation: str | None = None
    deadline_s: float | None = None

    def __post_init__(self) -> None:
        if bool(self.messages) == (self.prompt is not None):
            raise errors.BadRequestError("give messages or a prompt, one of the two")
        clean = tuple(m.mapped(replace_surrogates) for m in self.messages)
        msgspec.structs.force_setattr(self, "messages", clean)
        if isinstance(self.prompt, str):
            msgspec.structs.force_setattr(self, "prompt", replace_surrogates(self.prompt))
        limit = self.deadline_s
        if limit is not None and not 0 < limit < math.inf:
            raise errors.BadRequestError(f"the deadline is {limit!r}; it must be a number of seconds above 0")

    @property
    def input(self) -> Any:
        """The prompt as LLM.stream takes it."""
        return self.messages if self.prompt is None else self.prompt


class EmbedSpec(_Record, frozen=True):
    """Texts, or token ids, of which embeddings are wanted. deadline_s: as of GenerateSpec."""

    inputs: tuple[str | tuple[int, ...], ...]
    deadline_s: float | None = None

    def __post_init__(self) -> None:
        if not self.inputs or len(self.inputs) > MAX_INPUTS:
            raise errors.BadRequestError(f"give 1 to {MAX_INPUTS} inputs")
        clean = tuple(replace_surrogates(one) if isinstance(one, str) else one for one in self.inputs)
        msgspec.structs.force_setattr(self, "inputs", clean)


# What comes back -------------------------------------------------------------------------------------------------


class Queued(Tagged, frozen=True):
    """Requests before this one, the running one included. Told again each time it moves up."""

    position: int


class Loading(Tagged, frozen=True):
    """The model is being loaded. line: what is done; with a fraction, the name of the file that was read so far."""

    line: str
    fraction: float | None = None


class Reading(Tagged, frozen=True):
    """The prompt is being read: `done` of `total` tokens are in the cache; `reused` of them were there before."""

    done: int
    total: int
    reused: int


class Loaded(Tagged, frozen=True, kw_only=True):
    """The model is ready.

    name: of the file.  n_ctx: tokens of context.  draft: file name of the draft model.  drafter: sources in use.
    sources: those that can be used without loading again.  more: those that it would be loaded again for.  why: one
    sentence where speculation is off.  notes: lines for the user.  template: it can chat.  widths, ms: time of a decode
    by its rows, as measured; empty where it was not.  draft_ms: of one step of the draft model.  weight_bytes,
    kv_bytes: memory.  dialect: of its chat template.  embedding: numbers of an embedding; 0: it makes none, and
    why_not_embedding says why.  generates: it can generate text.  server: the address of the server that has it; empty
    where it is this machine's engine.
    """

    name: str
    path: str
    n_ctx: int
    draft: str | None
    drafter: str
    sources: tuple[str, ...]
    why: str
    notes: tuple[str, ...]
    template: bool
    widths: tuple[int, ...]
    ms: tuple[float, ...]
    draft_ms: float | None
    threads: int
    weight_bytes: int
    kv_bytes: int
    dialect: Dialect = Dialect()
    embedding: int = 0
    why_not_embedding: str = ""
    generates: bool = True
    server: str = ""
    more: tuple[str, ...] = ()


class Finished(Tagged, frozen=True):
    """The request has ended. It has the whole reply, also of a cancelled request."""

    reply: Reply


class Failed(Tagged, frozen=True):
    """The request has ended with an error. kind: name of its class."""

    kind: str
    message: str
    needed: int = 0
    available: int = 0


class Totals(_Record, frozen=True):
    """Since the engine's process began."""

    requests: int = 0
    prompt_tokens: int = 0
    reused_tokens: int = 0
    completion_tokens: int = 0
    failures: int = 0


class EngineState(Tagged, frozen=True, kw_only=True):
    """What the engine does now.

    loading: the latest line about that.  queued: requests that wait.  running: those that do not.  busy: one runs.
    """

    pid: int
    loaded: Loaded | None
    loading: str | None
    queued: int
    busy: bool
    running: int
    clients: int
    rss_bytes: int
    totals: Totals


class Done(Tagged, frozen=True):
    """A request without a result has been carried out."""


class Texts(Tagged, frozen=True):
    """Result of Translate: ids of the input, and their text."""

    ids: tuple[int, ...]
    text: str


class Embedded(Tagged, frozen=True):
    """Result of Embed: an embedding for each input, as float32 in this machine's order; and the tokens read."""

    vectors: tuple[bytes, ...]
    tokens: int


GenerateEvent = Queued | Loading | Reading | TokenEvent | RoundEvent | Finished
Event = GenerateEvent | Loaded | Failed | EngineState | Done | Texts | Embedded

ENDS = (Finished, Loaded, Failed, EngineState, Done, Texts, Embedded)  # the last event of a request is one of these


# Errors as events ------------------------------------------------------------------------------------------------

_KINDS = {
    kind.__name__: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, EdgeSpecError) and kind.__init__ is Exception.__init__
}


def failure(error: BaseException) -> Failed:
    """An error as a message. One that EdgeSpec does not raise on purpose becomes an EngineError."""
    message = " ".join(str(error).split())
    if isinstance(error, errors.ContextFullError):
        return Failed("ContextFullError", message, error.needed, error.available)
    kind = next((base.__name__ for base in type(error).__mro__ if base.__name__ in _KINDS), None)
    if kind is None:
        return Failed("EngineError", f"the engine failed on this request ({type(error).__name__}: {message})")
    return Failed(kind, message)


def raised(failed: Failed) -> EdgeSpecError:
    """The error that a message stands for."""
    if failed.kind == "ContextFullError":
        return errors.ContextFullError(failed.message, needed=failed.needed, available=failed.available)
    return _KINDS.get(failed.kind, EngineError)(failed.message)
