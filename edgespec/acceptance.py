"""How often the target accepts what a source drafts, learned from exact per-row values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Prior = Callable[[int], float]

_SUREST = 0.99  # no prior is certain


class Acceptance:
    """Estimated acceptance by feature (a match length, a confidence, a position): a discounted mean.

    prior(feature) is what is expected before anything was seen. What all features together show against
    their priors scales the prior of those that were seen little.
    """

    def __init__(self, prior: Prior, weight: float = 8.0, memory: float = 100.0) -> None:
        self._prior, self._weight = prior, weight
        self._keep = 1 - 1 / memory
        self._sums: dict[int, tuple[float, float]] = {}
        self._hits, self._expected = 0.0, 0.0
        self.seen = 0.0  # tokens that the estimate rests on

    def __call__(self, feature: int) -> float:
        """Acceptance probability of a drafted token with this feature, given that those before were accepted."""
        scale = (self._hits + self._weight) / (self._expected + self._weight)
        prior = min(_SUREST, self._prior(feature) * scale)
        hits, seen = self._sums.get(feature, (0.0, 0.0))
        return (hits + prior * self._weight) / (seen + self._weight)

    def hopeful(self, feature: int) -> float:
        """The estimate, higher by what few observations leave open (one standard error and a half)."""
        mean = self(feature)
        seen = self._sums.get(feature, (0.0, 0.0))[1]
        return min(_SUREST, mean + 1.5 * math.sqrt(mean * (1 - mean) / (seen + self._weight)))

    def observe(self, feature: int, value: float) -> None:
        """value in [0, 1]: the exact acceptance probability where known, else 1 or 0."""
        hits, seen = self._sums.get(feature, (0.0, 0.0))
        self._sums[feature] = (hits * self._keep + value, seen * self._keep + 1)
        self.seen += 1
        self._hits = self._hits * self._keep + value
        self._expected = self._expected * self._keep + self._prior(feature)

    @property
    def sums(self) -> tuple[tuple[int, float, float], ...]:
        """(feature, accepted, seen), discounted: all that was learned."""
        return tuple((feature, hits, seen) for feature, (hits, seen) in sorted(self._sums.items()))

    def recall(self, sums: Sequence[tuple[int, float, float]], most: float) -> None:
        """Start from what another one learned, weighing each feature as `most` tokens seen at most.

        A new conversation may differ from those before it: what is recalled gives way quickly.
        """
        self._hits = self._expected = self.seen = 0.0
        self._sums = {}
        for feature, hits, seen in sums:
            if seen <= 0:
                continue
            kept = min(1.0, most / seen)
            self._sums[feature] = (hits * kept, seen * kept)
            self._hits += hits * kept
            self._expected += self._prior(feature) * seen * kept
            self.seen += seen * kept
