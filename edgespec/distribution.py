"""Sparse probability distributions over token ids: what sampling makes and verification compares.

Everything here is written with +, -, *, / and comparisons only, so the same code runs on float64 in
production and on `fractions.Fraction` (arrays of dtype object) in the enumeration proofs of
tests/exactness.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Number = Any  # float in production, Fraction in proofs


class Uniforms(Protocol):
    """A source of independent uniforms on [0, 1): `numpy.random.Generator` in production."""

    def random(self) -> Number: ...


_ALL = np.ones(1)  # of the mass: made once, since rounds make thirty
_ALL.flags.writeable = False


@dataclass(frozen=True, eq=False, slots=True)
class Distribution:
    """A distribution with finite support.

    ids: token ids, shape (n,), strictly ascending.  probs: shape (n,), non-negative, sums to 1.
    Tokens that are not listed have probability 0.
    """

    ids: NDArray[np.int64]
    probs: NDArray[Any]

    @staticmethod
    def one_hot(token: int) -> Distribution:
        """All mass on one token: a greedy choice, or a proposal of prompt lookup."""
        return Distribution(np.array([token], dtype=np.int64), _ALL)

    def prob(self, token: int) -> Number:
        """Probability of `token`; 0 outside the support."""
        if len(self.ids) == 1:  # one-hot proposals and greedy targets are common and must be cheap
            return self.probs[0] if self.ids[0] == token else 0
        i = int(np.searchsorted(self.ids, token))
        return self.probs[i] if i < len(self.ids) and self.ids[i] == token else 0

    def top(self) -> int:
        """The most probable token; the lowest id among equals."""
        return int(self.ids[int(np.argmax(self.probs))])

    def sample(self, rng: Uniforms) -> int:
        """Draw one token by inverting the cumulative distribution."""
        if len(self.ids) == 1:
            return int(self.ids[0])
        cumulative = np.cumsum(self.probs)
        # side="right" finds the first entry with u < cumulative: zero-probability entries are never drawn.
        i = int(np.searchsorted(cumulative / cumulative[-1], rng.random(), side="right"))
        return int(self.ids[i])

    def _minus(self, other: Distribution, scale: Number) -> NDArray[Any]:
        """max(scale * self - other, 0) on self's support, matched by token id, not by index."""
        if other.ids is self.ids:  # full-vocabulary distributions share their ids
            return self._positive(scale * self.probs - other.probs)
        position = np.minimum(np.searchsorted(other.ids, self.ids), len(other.ids) - 1)
        aligned = np.where(other.ids[position] == self.ids, other.probs[position], 0)
        return self._positive(scale * self.probs - aligned)

    @staticmethod
    def _positive(values: NDArray[Any]) -> NDArray[Any]:
        positive: NDArray[Any] = np.maximum(values, 0)
        return positive

    def excess(self, other: Distribution, scale: Number = 1) -> Number:
        """sum over x of max(scale * self(x) - other(x), 0): the mass of the residual."""
        return self._minus(other, scale).sum()

    def residual(self, other: Distribution, scale: Number = 1) -> Distribution:
        """normalise(max(scale * self - other, 0)); self where nothing is left.

        Nothing left means `other` covers self completely, in which case a rejection has probability
        zero and only rounding can bring us here.
        """
        rest = self._minus(other, scale)
        keep = rest > 0
        if not keep.any():
            return self
        rest = rest[keep]
        return Distribution(self.ids[keep], rest / rest.sum())

    def overlap(self, other: Distribution) -> Number:
        """sum over x of min(self(x), other(x)): the probability that token rejection accepts."""
        return 1 - self.excess(other)
