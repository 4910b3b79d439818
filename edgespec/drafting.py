"""What a drafter is: it proposes tokens, with the distribution each was drawn from.

See docs/add-a-drafter.md. Drafters live in edgespec/drafters, one file each, and are listed in
edgespec/drafters/__init__.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from .distribution import Distribution
from .sampling import Sampler
from .stats import RoundEvent


@dataclass(frozen=True, slots=True)
class Draft:
    """A linear draft of K tokens. K = 0 means: decode one token plainly.

    tokens: (K,) ids.  proposals: (K,) the distribution q_i that token i was drawn from, after all
    processing.  source: the drafter's name, shown to people.
    """

    tokens: tuple[int, ...] = ()
    proposals: tuple[Distribution, ...] = ()
    source: str = "target"

    def cut(self, k: int) -> Draft:
        """The first k tokens. Safe only if k was not chosen by looking at sampled values."""
        return Draft(self.tokens[:k], self.proposals[:k], self.source) if k < len(self.tokens) else self


NO_DRAFT = Draft()


class Drafter(Protocol):
    """Proposes tokens for one conversation. One instance per running request."""

    @property
    def name(self) -> str:
        """The source name: "model", "lookup", ..."""
        ...

    def draft(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Draft:
        """Up to `k` tokens that may follow `tokens` (prompt and all committed tokens), or NO_DRAFT.

        A token once sampled is kept: dropping it because of its own value (a low q, say) biases the
        output. To stop after a token that is kept, or before sampling one, is free; so is to cut one-hot
        proposals anywhere (docs/exactness.md).
        """
        ...

    def observe(self, event: RoundEvent) -> None:
        """Told after each round what became of a draft (of any source)."""
        ...

    def close(self) -> None:
        """Release what the drafter holds. It is not used afterwards."""
        ...
