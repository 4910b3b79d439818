"""Where heads begin: the units of states, the directions in which tokens differ, and the best linear heads."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from .data import Pairs
from .network import Floats, Params

K = TypeVar("K", bound=np.generic)

POSITIONS = 20_000  # that are looked at
_RIDGE = 3e-3  # relative to the number of positions; inputs are of size 1


def units(states: NDArray[np.float16]) -> tuple[Floats, Floats]:
    """(centre, unit), both (n,) float32: the mean of each number of a state, and how far it is from it, above 0."""
    seen = some(states).astype(np.float32)
    sizes = seen.std(axis=0)
    least = 1e-3 * float(sizes.max()) or 1.0
    return seen.mean(axis=0), np.maximum(sizes, np.float32(least)).astype(np.float32)


def output_layer(rows: Floats, centre: Floats, unit: Floats) -> tuple[Floats, Floats]:
    """(matrix (D, n), bias (D,)) for states in these units. What all tokens have in common is left out: it changes no
    chance, and costs precision in 8 bits.
    """
    bias = rows @ centre
    return (rows - rows.mean(axis=0)) * unit, bias - bias.mean()


def directions(rows: Floats, count: int) -> Floats:
    """(n, count) float32, orthonormal: where the rows (D, n) are largest, the most important one first."""
    values, vectors = np.linalg.eigh((rows.T @ rows).astype(np.float64))
    chosen = vectors[:, np.argsort(-values, kind="stable")[:count]]
    # Rounded to what the file of the heads keeps, so that they are trained with what they will use.
    found: Floats = np.ascontiguousarray(chosen.astype(np.float16).astype(np.float32))
    return found


def linear_heads(
    pairs: Pairs, centre: Floats, unit: Floats, seen: Floats, heads: int, window: int, hidden: int, seed: int
) -> Params:
    """Heads that make the next state by ridge regression, each from what the one before it made; no hidden layer yet.

    seen: (D + 1, r), what heads see of a token.
    """
    n, width = len(unit), len(unit) + window * seen.shape[1]
    rng = np.random.default_rng((seed, 0))
    params: Params = {
        "mix": np.zeros((heads, n, width), np.float32),
        "mix_bias": np.zeros((heads, n), np.float32),
        "inner": rng.standard_normal((heads, hidden, n), dtype=np.float32) / np.float32(n**0.5),
        "inner_bias": np.zeros((heads, hidden), np.float32),
        "outer": np.zeros((heads, n, hidden), np.float32),
    }
    whole = some(np.flatnonzero(pairs.known[:, -1]))
    if not len(whole):
        return params
    state = (pairs.states[whole] - centre) / unit
    for k in range(heads):
        given = np.concatenate((state, seen[pairs.seen[whole, k : k + window]].reshape(len(whole), -1)), axis=1)
        wanted = (pairs.states[whole + k + 1] - centre) / unit
        middle, aim = given.mean(axis=0), wanted.mean(axis=0)
        moved = given - middle
        gram = (moved.T @ moved).astype(np.float64)
        gram[np.diag_indices(width)] += _RIDGE * len(whole) + 1e-6
        found = np.linalg.solve(gram, (moved.T @ (wanted - aim)).astype(np.float64)).T.astype(np.float32)
        params["mix"][k] = found
        params["mix_bias"][k] = aim - found @ middle
        state = given @ found.T + params["mix_bias"][k]
    return params


def some(values: NDArray[K]) -> NDArray[K]:
    """At most so many of them, spread evenly."""
    return values[:: max(1, -(-len(values) // POSITIONS))]
