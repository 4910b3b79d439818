"""Attention of a layer that goes on with its own guesses, and its gradients, over pieces of text side by side.

A draft that starts at row s of a piece sees what the layer made there of the target's features up to row s, inclusive,
and behind that what it made of its own, a pair for each step: so step j of the draft at s attends to the first step's
rows 0 to s and to row s of the steps 1 to j (the training-time test of EAGLE-3, arXiv 2503.01840).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .network import Floats

Span = tuple[int, int]  # rows of one piece, from the first to before the second


@dataclass(frozen=True, slots=True)
class Rotation:
    """Rotary positions over neighbouring pairs of numbers. cos, sin: (places, 1, d / 2)."""

    cos: Floats
    sin: Floats

    @classmethod
    def of(cls, places: NDArray[np.int64], size: int, base: float) -> Rotation:
        angles = places[:, None, None] * frequencies(size, base)
        return cls(np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32))

    def turned(self, x: Floats, *, back: bool = False) -> Floats:
        """x: (places, heads, d). back: the other way, as gradients go."""
        even, odd, sin = x[..., 0::2], x[..., 1::2], -self.sin if back else self.sin
        found = np.empty_like(x)
        found[..., 0::2], found[..., 1::2] = even * self.cos - odd * sin, even * sin + odd * self.cos
        return found


def frequencies(size: int, base: float) -> NDArray[np.float64]:
    """(size / 2,): by how much a place turns each pair of numbers."""
    found: NDArray[np.float64] = base ** (-np.arange(0, size, 2) / size)
    return found


@dataclass(frozen=True, slots=True)
class Attended:
    """made: (N, H, d).  shares: of each piece, (H, m, m), the first step's rows.  own: (j, N, H), the later steps'."""

    made: Floats
    shares: list[Floats]
    own: Floats


def attend(query: Floats, keys: Sequence[Floats], values: Sequence[Floats], spans: Sequence[Span]) -> Attended:
    """Of step j = len(keys) - 1. All (N, H, d); keys and values of all steps up to this one."""
    scale = np.float32(query.shape[-1] ** -0.5)
    made = np.empty_like(query)
    own = np.empty((len(keys) - 1, *query.shape[:2]), query.dtype)
    for place, key in enumerate(keys[1:]):
        own[place] = (query * key).sum(axis=-1) * scale
    shares = []
    for first, end in spans:
        # (heads, rows, numbers), so that a matrix product is one of each head's
        q, k, v = (_by_head(x[first:end]) for x in (query, keys[0], values[0]))
        scores = q @ k.transpose(0, 2, 1)
        scores *= scale
        scores += np.triu(np.full((end - first, end - first), -np.inf, np.float32), 1)
        beside = own[:, first:end].transpose(2, 1, 0)
        peak = np.maximum(scores.max(axis=-1), beside.max(axis=-1, initial=-np.inf))[..., None]
        scores -= peak
        np.exp(scores, out=scores)
        beside = np.exp(beside - peak)
        total = scores.sum(axis=-1, keepdims=True) + beside.sum(axis=-1, keepdims=True)
        scores /= total
        shares.append(scores)
        own[:, first:end] = (beside / total).transpose(2, 1, 0)
        made[first:end] = (scores @ v).transpose(1, 0, 2)
    for share, value in zip(own, values[1:], strict=True):
        made += share[..., None] * value
    return Attended(made, shares, own)


def attend_back(
    slope: Floats,
    attended: Attended,
    query: Floats,
    keys: Sequence[Floats],
    values: Sequence[Floats],
    spans: Sequence[Span],
    key_slopes: Sequence[Floats],
    value_slopes: Sequence[Floats],
) -> Floats:
    """The slope at the query; those at the keys and values are added to what is there. slope: at what was made."""
    scale = np.float32(query.shape[-1] ** -0.5)
    found = np.empty_like(query)
    own, beside = attended.own, np.empty_like(attended.own)
    for place, value in enumerate(values[1:]):
        beside[place] = (slope * value).sum(axis=-1)
    mean = (own * beside).sum(axis=0)  # (N, H): of the slopes at all shares
    for (first, end), shares in zip(spans, attended.shares, strict=True):
        s, q, k, v = (_by_head(x[first:end]) for x in (slope, query, keys[0], values[0]))
        scores = s @ v.transpose(0, 2, 1)
        mean[first:end] += (shares * scores).sum(axis=-1).T
        scores -= mean[first:end].T[..., None]
        scores *= shares
        scores *= scale
        found[first:end] = (scores @ k).transpose(1, 0, 2)
        key_slopes[0][first:end] += (scores.transpose(0, 2, 1) @ q).transpose(1, 0, 2)
        value_slopes[0][first:end] += (shares.transpose(0, 2, 1) @ s).transpose(1, 0, 2)
    for i in range(1, len(keys)):
        share = own[i - 1]
        score = (share * (beside[i - 1] - mean) * scale)[..., None]
        found += score * keys[i]
        key_slopes[i][...] += score * query
        value_slopes[i][...] += share[..., None] * slope
    return found


def _by_head(x: Floats) -> Floats:
    return np.ascontiguousarray(x.transpose(1, 0, 2))
