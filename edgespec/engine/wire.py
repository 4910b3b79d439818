"""How specs and events travel between a front end and the engine's process.

A frame is a list of messages in MessagePack, each tagged with its type. Both ends are of one version of EdgeSpec (the
socket's name has it), so what does not fit these types is garbage: decoding raises ProtocolError. None carries code or
an object of Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from ..errors import BadRequestError, EdgeSpecError, EngineError
from ..stats import RoundEvent, TokenEvent
from .protocol import (
    Done,
    Embedded,
    EmbedSpec,
    EngineState,
    Event,
    Failed,
    Finished,
    GenerateSpec,
    Loaded,
    Loading,
    LoadSpec,
    Queued,
    Reading,
    Tagged,
    Texts,
)

MAX_FRAME = 64 << 20  # bytes: all text that fits a prompt, several times over

T = TypeVar("T")


class ProtocolError(EngineError):
    """Bytes that are none of these messages."""


class Load(Tagged, frozen=True):
    """Have this model loaded. Answer: Queued and Loading events, then Loaded or Failed."""

    id: int
    spec: LoadSpec


class Generate(Tagged, frozen=True):
    """Run a request on this model, loaded before where it is not. Answer: events, then Finished or Failed."""

    id: int
    load: LoadSpec
    spec: GenerateSpec


class Translate(Tagged, frozen=True):
    """Ids and text of a spec's input; nothing is generated. Answer: Texts or Failed."""

    id: int
    load: LoadSpec
    spec: GenerateSpec


class Embed(Tagged, frozen=True):
    """Make embeddings with this model. Answer: Queued and Loading events, then Embedded or Failed."""

    id: int
    load: LoadSpec
    spec: EmbedSpec


class Cancel(Tagged, frozen=True):
    """End request `id` of this connection soon."""

    id: int


class Unload(Tagged, frozen=True):
    """Free the model, when the requests before this one have ended. Answer: Done."""

    id: int


class Forget(Tagged, frozen=True):
    """Delete what is kept on disk of a conversation. Answer: Done."""

    id: int
    conversation: str


class Ask(Tagged, frozen=True):
    """Answer: EngineState, at once."""

    id: int


class Hello(Tagged, frozen=True):
    """First message of the engine."""

    pid: int


class Beat(Tagged, frozen=True):
    """The engine lives: told every second to whoever waits for something."""


class Dying(Tagged, frozen=True):
    """The engine ends now; why."""

    why: str


class Told(Tagged, frozen=True):
    """An event of request `id`."""

    id: int
    event: Queued | Loading | Reading | Loaded | Finished | Failed | EngineState | Done | Texts | Embedded


class Token(Tagged, frozen=True):
    """A TokenEvent of request `id`: apart from Told, since a dataclass carries no tag."""

    id: int
    event: TokenEvent


class Round(Tagged, frozen=True):
    """A RoundEvent of request `id`."""

    id: int
    event: RoundEvent


ToEngine = Load | Generate | Translate | Embed | Cancel | Unload | Forget | Ask
FromEngine = Hello | Beat | Dying | Told | Token | Round

_encoder = msgspec.msgpack.Encoder()
_to_engine = msgspec.msgpack.Decoder(list[ToEngine])
_from_engine = msgspec.msgpack.Decoder(list[FromEngine])


def encode(messages: Sequence[ToEngine] | Sequence[FromEngine]) -> bytes:
    """One frame. Raises BadRequestError where a message holds what is no plain data."""
    try:
        return _encoder.encode(messages)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadRequestError(f"the request cannot be sent to the engine: {error}; give plain data") from None


def decode_to_engine(frame: bytes) -> list[ToEngine]:
    """Messages of a front end's frame. Raises ProtocolError."""
    return _decoded(_to_engine, frame)


def decode_from_engine(frame: bytes) -> list[FromEngine]:
    """Messages of an engine's frame. Raises ProtocolError."""
    return _decoded(_from_engine, frame)


def told(id: int, event: Event) -> FromEngine:
    """The message that carries an event."""
    match event:
        case TokenEvent():
            return Token(id, event)
        case RoundEvent():
            return Round(id, event)
        case _:
            return Told(id, event)


def _decoded(decoder: msgspec.msgpack.Decoder[T], frame: bytes) -> T:
    try:
        return decoder.decode(frame)
    except (msgspec.MsgspecError, EdgeSpecError, ValueError, TypeError, RecursionError) as error:
        raise ProtocolError(f"not a message of this version of EdgeSpec: {error}") from None
