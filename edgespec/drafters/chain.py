"""Several sources in a fixed order: the first that has a draft is used this round."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..drafting import NO_DRAFT, Draft, Drafter, Features, ReadsFeatures, ReadsStates, States, Steps
from ..proposing import Drafting, alone
from ..sampling import Sampler
from ..stats import RoundEvent


class ChainDrafter:
    """Asks each drafter in turn. A draft keeps its own source name and its own proposals."""

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self._drafters = tuple(drafters)

    @property
    def name(self) -> str:
        return ",".join(d.name for d in self._drafters)

    @property
    def states(self) -> States | None:
        """Of the one that reads hidden states, if any does."""
        return next((d.states for d in self._drafters if isinstance(d, ReadsStates)), None)

    @property
    def features(self) -> Features | None:
        """Of the one that reads what the target computes at each token, if any does."""
        return next((d.features for d in self._drafters if isinstance(d, ReadsFeatures)), None)

    def draft(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Draft:
        """The first non-empty draft."""
        return alone(self.steps(tokens, k, sampler, rng))

    def steps(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Drafting:
        """draft(), with the decodes of a draft model one after another."""
        for drafter in self._drafters:
            if isinstance(drafter, Steps):
                draft = yield from drafter.steps(tokens, k, sampler, rng)
            else:
                draft = drafter.draft(tokens, k, sampler, rng)
            if draft.tokens:
                return draft
        return NO_DRAFT

    def observe(self, event: RoundEvent) -> None:
        for drafter in self._drafters:
            drafter.observe(event)

    def close(self) -> None:
        for drafter in self._drafters:
            drafter.close()
