"""Sequence, the owner of one conversation's share of a KV cache, and the slots that sequences sit in."""

from __future__ import annotations

import threading
from collections.abc import Sequence as TokenSequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .taps import Ear

if TYPE_CHECKING:
    from .context import Context


@dataclass(slots=True)
class Slot:
    """One sequence id of llama.cpp and the tokens its cache holds. fresh: how many came with its last decode."""

    id: int
    tokens: list[int] = field(default_factory=list)
    owner: Sequence | None = None
    used: int = 0
    fresh: int = 0


class Sequence:
    """One conversation's share of the KV cache.

    ear: called after each decode of its tokens with the first one's place in the text and what the context's tap has
    of them (Context.listen); the rows are overwritten by the next decode.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.slot: Slot | None = None
        self.ear: Ear | None = None

    @property
    def cached(self) -> TokenSequence[int]:
        """The tokens whose keys and values the cache holds now."""
        return self.slot.tokens if self.slot else ()

    def sync(self, tokens: TokenSequence[int], cancel: threading.Event | None = None) -> int:
        """Make the cache hold exactly `tokens`: keep the common prefix, trim, decode the rest.

        Returns the number of tokens decoded. Raises as Context.score does.
        """
        return self._context.sync(self, tokens, cancel)

    def truncate(self, length: int) -> None:
        """Forget everything after the first `length` tokens."""
        self._context.truncate(self, length)

    def save(self) -> bytes:
        """The cache's state as bytes, for restore()."""
        return self._context.save(self)

    def restore(self, state: bytes | memoryview, tokens: TokenSequence[int]) -> None:
        """Put back what save() gave; `tokens` are what the cache held then."""
        self._context.restore(self, state, tokens)

    def close(self) -> None:
        """Give the cache back; a later sequence with the same prefix will find it."""
        if self.slot:
            self.slot.owner = None
            self.slot = None
