"""The stages between a row of logits and a Distribution, as pure functions over candidates.

Candidates are parallel arrays: ids (n,) int64 ascending, logits (n,) float32; a stage returns the
positions it keeps. A vocabulary has 150,000 entries and a round scores several rows, so nothing here
sorts a whole row, and float64 (the exponentials) is spent on candidates only, except where a sum
over the vocabulary is asked for (top_p or typical with top_k off, or no truncation at all).

Ties: candidates rank by logit, descending, then by id, ascending. top_k and top_p cut that ranking
anywhere, so of equal logits the lowest ids stay; typical does so in its own ranking; min_p keeps or
drops equals together.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .distribution import Distribution

Ids = NDArray[np.int64]
Logits = NDArray[np.float32]

_LEAST_LOGIT = float(np.finfo(np.float32).min)
_FEW = 1024  # up to here a sort is cheaper than a selection
_LEAST_LOG_WEIGHT = -700.0  # exp underflows below -708: less than e**-700 of the largest counts as 0
_LEAST_TEMPERATURE = 1e-100  # colder changes no comparison of float32 logits, and z / T must not overflow


@lru_cache(maxsize=8)
def all_ids(n: int) -> Ids:
    """0..n-1, read-only and shared: full-support distributions over one vocabulary hold the same array."""
    ids = np.arange(n, dtype=np.int64)
    ids.flags.writeable = False
    return ids


def largest(row: NDArray[Any], k: int) -> Ids:
    """Positions, ascending, of the k largest entries; of equal entries the first ones.

    row: (n,) without NaN.  All n positions where k >= n.
    """
    n = len(row)
    if k >= n:
        return all_ids(n)
    stripes = 64 if k <= n // 256 else 16
    columns = n // stripes
    if k > columns // 4:
        return _k_largest(row, k)
    # Each of the k largest column maxima is an entry, so the k-th of them bounds the k-th largest
    # entry from below, and only columns that reach the bound can hold one of the k.
    grid = row[: columns * stripes].reshape(stripes, columns)
    maxima = grid.max(axis=0)
    bound = np.partition(maxima, columns - k)[columns - k]
    reaching = np.flatnonzero(maxima >= bound)
    if len(reaching) > columns // 2:  # ties all over
        return _k_largest(row, k)
    stripe, column = np.divmod(np.flatnonzero(grid[:, reaching] >= bound), len(reaching))
    pool = stripe * columns + reaching[column]
    tail = np.flatnonzero(row[columns * stripes :] >= bound)
    if len(tail):
        pool = np.concatenate((pool, tail + columns * stripes))
    return pool[_k_largest(row[pool], k)]


def _k_largest(values: NDArray[Any], k: int) -> Ids:
    """`largest` by one partition of everything."""
    n = len(values)
    if k >= n:
        return all_ids(n)
    kth = np.partition(values, n - k)[n - k]
    keep = values >= kth
    surplus = int(np.count_nonzero(keep)) - k
    if surplus:
        keep[np.flatnonzero(values == kth)[-surplus:]] = False
    return np.flatnonzero(keep)


def leading(score: NDArray[Any], weights: NDArray[np.float64], mass: float) -> Ids:
    """Positions, ascending, of the smallest leading group whose weights sum to `mass` or more.

    The order is by `score`, descending, then by position.  score, weights: (n,), n >= 1.  All n
    positions where even all weights do not reach `mass`.
    """
    if len(score) > _FEW:  # the group is small as a rule
        first = largest(score, _FEW)
        if weights[first].sum() >= mass:
            return first[leading(score[first], weights[first], mass)]
    rest, rest_weights, before = score, weights, 0.0
    while len(rest) > _FEW:  # a quickselect on the mass finds the score at which the group ends
        pivot = np.partition(rest, len(rest) // 2)[len(rest) // 2]
        inside = rest >= pivot
        if inside.all():
            inside = rest > pivot
        head = np.flatnonzero(inside)
        head_weights = rest_weights[head]
        head_mass = float(head_weights.sum())
        if before + head_mass >= mass:
            rest, rest_weights = rest[head], head_weights
        else:
            before += head_mass
            others = np.flatnonzero(~inside)
            rest, rest_weights = rest[others], rest_weights[others]
            if len(head) == 0:  # nothing but ties
                break
    order = np.argsort(-rest, kind="stable")
    end = int(np.searchsorted(np.cumsum(rest_weights[order]), mass - before))
    end = min(end, len(rest) - 1)
    if len(rest) == len(score):
        return np.sort(order[: end + 1])
    last = rest[order[end]]
    keep = score > last
    ties = np.flatnonzero(score == last)  # all of them are in `rest`, which was cut between values only
    keep[ties[: end + 1 - int(np.count_nonzero(rest > last))]] = True
    return np.flatnonzero(keep)


def truncate(
    ids: Ids, logits: Logits, temperature: float, typical: float, top_p: float, min_p: float, unseen: float = 0.0
) -> Distribution:
    """Temperature, typical, top-p and min-p over candidates; each sees what the one before it left.

    ids: (n,) ascending.  logits: (n,) float32, -inf allowed for some, not for all.  temperature > 0.
    unseen: weight of further, less likely candidates that count for top_p only (unit: the largest's).
    The result's support is what is left, without weights under e**-700 of the largest.
    Typical is Meister et al. 2023 (arXiv 2202.00666): the smallest set of tokens, closest surprise
    to the entropy first, whose mass reaches `typical`. top_p is Holtzman et al. 2020 (arXiv
    1904.09751), min_p is Nguyen et al. 2024 (arXiv 2407.01082).
    """
    temperature = max(temperature, _LEAST_TEMPERATURE)
    floor = max(math.log(min_p), _LEAST_LOG_WEIGHT) if min_p > 0 else _LEAST_LOG_WEIGHT
    if typical < 1:
        keep = _typical(logits, temperature, typical)
        ids, logits = ids[keep], logits[keep]
    elif top_p == 1 and min_p > 0:
        # No sum over the candidates is needed, so drop those under the floor before any float64. The
        # bound is rounded down; the exact comparison follows.
        bound = float(logits.max()) + temperature * floor
        if bound > _LEAST_LOGIT:
            near = np.flatnonzero(logits >= np.nextafter(np.float32(bound), np.float32(-np.inf)))
            ids, logits = ids[near], logits[near]
    log_weights = _log_weights(logits, temperature)
    above = np.flatnonzero(log_weights >= floor)
    if top_p == 1 and len(above) < len(ids):
        ids, log_weights = ids[above], log_weights[above]
    weights = np.exp(log_weights, out=log_weights)
    if top_p < 1:
        # The floor takes from the low end of the ranking, so the nucleus of what is above it is the
        # nucleus of all as long as the mass is reckoned on all.
        mass = top_p * (float(weights.sum()) + unseen)
        if len(above) < len(ids):
            ids, logits, weights = ids[above], logits[above], weights[above]
        keep = leading(logits, weights, mass)
        ids, weights = ids[keep], weights[keep]
    weights /= weights.sum()
    return Distribution(ids, weights)


def _log_weights(logits: Logits, temperature: float) -> NDArray[np.float64]:
    """(z - max z) / T, shape (n,)."""
    result: NDArray[np.float64] = np.subtract(logits, logits.max(), dtype=np.float64)
    if temperature != 1:
        result /= temperature
    return result


def _typical(logits: Logits, temperature: float, mass: float) -> Ids:
    """Positions of the locally typical candidates."""
    finite = np.flatnonzero(logits > -np.inf)
    log_weights = _log_weights(logits[finite], temperature)
    weights = np.exp(log_weights)
    weights /= weights.sum()
    # surprise - entropy = -(log w - sum p log w): the normaliser cancels
    distance = np.abs(log_weights - float(weights @ log_weights))
    return finite[leading(-distance, weights, mass)]


def penalise(
    row: Logits, ids: Ids, counts: NDArray[np.int64], repeat: float, frequency: float, presence: float
) -> None:
    """Apply llama.cpp's penalties to `row` in place, for tokens `ids` that occurred `counts` times.

    Positive logits are divided by `repeat`, others multiplied; then count * frequency and presence
    are subtracted. Computed in float64 and rounded once. Source: llama_sampler_penalties_apply.
    """
    z = row[ids].astype(np.float64)
    z = np.where(z > 0, z / repeat, z * repeat)
    row[ids] = z - counts * frequency - presence
