"""What every endpoint's answer has in common: who it is from, and the form in which it is told."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Protocol

from ..reply import Reply
from .errors import ApiError
from .pieces import Piece
from .schema import Wanted

FINGERPRINT = f"edgespec-{version('edgespec')}"


@dataclass(frozen=True, slots=True)
class Heading:
    """Of one answer. model: as clients know it.  created: seconds since 1970."""

    model: str
    id: str
    created: int

    @staticmethod
    def new(model: str) -> Heading:
        return Heading(model, secrets.token_hex(12), int(time.time()))


class Form(Protocol):
    """Tells one answer: whole, or as frames of a stream (sse.py), in this order."""

    def __init__(self, wanted: Wanted, heading: Heading) -> None: ...

    def whole(self, reply: Reply, pieces: list[Piece], reused: int) -> dict[str, Any]:
        """The answer as one object. pieces: of all tokens.  reused: prompt tokens of the cache."""
        ...

    def begin(self) -> list[bytes]:
        """Before the first token."""
        ...

    def more(self, piece: Piece) -> list[bytes]:
        """One token that has a text, or any where logprobs are wanted."""
        ...

    def end(self, reply: Reply, reused: int) -> list[bytes]:
        """After the last token."""
        ...

    def events(self, told: list[dict[str, Any]]) -> list[bytes]:
        """The engine's own events (telling.py), where they are wanted."""
        ...

    def failed(self, error: ApiError) -> list[bytes]:
        """In place of the rest."""
        ...
