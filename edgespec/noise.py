"""Noise that a seed fixes for every token id at every place of a text: seed-exact sampling under speculation.

With Gumbel noise g, argmax(log p + g) is a draw from p (the Gumbel-max trick). The noise depends on
nothing but (seed, position, token id), so the tokens a target chooses are the same however many rows
are decoded at once; and a drafter that adds the same noise to its q proposes, more often than not,
what the target is about to choose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .distribution import Distribution

_MASK = 2**64 - 1
_GAMMA = 0x9E3779B97F4A7C15  # the odd integer next to 2**64 / golden ratio
_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_SHIFTS = (30, 27, 31)
_GAMMA_64, *_FACTORS_64 = (np.uint64(n) for n in (_GAMMA, *_FACTORS))
_SHIFTS_64 = tuple(np.uint64(n) for n in _SHIFTS)


def splitmix64(state: int, count: int) -> int:
    """Output number `count`, from 0, of a splitmix64 generator that starts at `state`.

    Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014; the finaliser is
    Stafford's variant 13.
    """
    z = (state + (count + 1) * _GAMMA) & _MASK
    z = ((z ^ (z >> _SHIFTS[0])) * _FACTORS[0]) & _MASK
    z = ((z ^ (z >> _SHIFTS[1])) * _FACTORS[1]) & _MASK
    return z ^ (z >> _SHIFTS[2])


def stream_key(seed: int, position: int) -> int:
    """The 64-bit state that the noise of one position starts from: seed to stream, stream to position."""
    return splitmix64(splitmix64(seed, 0), position)


def token_bits(seed: int, position: int, ids: NDArray[np.int64]) -> NDArray[np.uint64]:
    """64 uniform bits for each of `ids`, shape (n,): output number `id` of a splitmix64 that starts at `stream_key`.

    Integer arithmetic only, so the same on every platform.
    """
    # Arrays of uint64 wrap without a warning; the key is added as an array for that reason.
    bits: NDArray[np.uint64] = (ids.astype(np.uint64) + np.uint64(1)) * _GAMMA_64
    bits += np.full(1, stream_key(seed, position), dtype=np.uint64)
    for shift, factor in zip(_SHIFTS_64[:2], _FACTORS_64, strict=True):
        bits ^= bits >> shift
        bits *= factor
    bits ^= bits >> _SHIFTS_64[2]
    return bits


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of one request.

    seed: from 0 to 2**64 - 1.  start: tokens of the prompt. Positions are counted from there, so the
    length of a prompt does not enter the noise.
    """

    seed: int
    start: int = 0

    def uniforms(self, index: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Independent uniforms strictly inside (0, 1), shape (n,), for token `ids` at place `index` of the text.

        index: tokens before this one, prompt included.  Values are the midpoints of 2**52 equal
        intervals: with 53 bits the last midpoint would round to 1.
        """
        bits = token_bits(self.seed, index - self.start, ids) >> np.uint64(12)
        result: NDArray[np.float64] = (bits.astype(np.float64) + 0.5) * 2.0**-52
        return result

    def gumbel(self, index: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Standard Gumbel noise g = -log(-log u), shape (n,); arguments as for `uniforms`."""
        result: NDArray[np.float64] = -np.log(-np.log(self.uniforms(index, ids)))
        return result

    def choose(self, distribution: Distribution, index: int) -> int:
        """argmax over x of log p(x) + g(x): a draw from `distribution`; the lowest id among equals.

        index: tokens before the one chosen, prompt included.  A token of probability 0 is never chosen.
        Computed as argmin of -log(u) / p, which is the same and takes one logarithm less.
        """
        ids, probs = distribution.ids, distribution.probs
        if len(ids) == 1:
            return int(ids[0])
        waits: NDArray[Any] = np.full(len(ids), np.inf)
        np.divide(-np.log(self.uniforms(index, ids)), probs, out=waits, where=probs > 0)
        return int(ids[int(np.argmin(waits))])
