"""Where an EAGLE head begins: its attention looks one place back, or two, or none, and adds the best linear guess.

A layer that begins at random has to find out first that the latest token matters most; so few texts do not teach that
and much else. So most heads of the attention begin by looking at their own place, by a score that falls with distance
alone, and hand on what a ridge regression of the next state says of the pair there; a few look at the places before.
The feed-forward layer adds nothing yet.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..heads.eagle import Shape
from .attention import frequencies
from .begin import some, units
from .data import Pairs
from .eagle_layer import Frame, root_of
from .network import Floats, Params

_HEAD, _MOST_HEADS = 64, 16  # numbers of a head of the attention, and how many there are at most
_MOST_INNER = 4096
_EPS = 1e-6
_RIDGE = 3e-3  # relative to the number of positions; inputs are of size 1
_NEAR = 6.0  # by how much the score of the place that a head looks at is above that of its neighbours
_TURNING = 5  # pairs of numbers that turn fast enough to tell neighbours apart
_NORMS = ("token_norm", "feature_norm", "ffn_norm", "output_norm")
_LOOSE = 0.5  # size of what is random in queries and keys


def shape_for(n_embd: int) -> Shape:
    """Of the layer for states of so many numbers."""
    heads = min(_MOST_HEADS, max(1, n_embd // _HEAD))
    return Shape(n_embd, heads, heads, _HEAD, min(_MOST_INNER, 2 * n_embd), eps=_EPS)


def frame_for(states: NDArray[np.float16]) -> Frame:
    """Units of these states, and norms that bring every number of a state to size 1."""
    _, unit = units(states)
    given = some(states).astype(np.float32)
    size = float(np.sqrt(np.square(given).mean())) or 1.0
    normed = given * root_of(given, _EPS)
    of_each = np.sqrt(np.square(normed).mean(axis=0))
    even = 1 / np.maximum(of_each, 0.05 * float(of_each.max()) or 1.0)
    n = states.shape[1]
    return Frame(shape_for(n), unit, even, even, np.full(n, size, np.float32))


@dataclass(frozen=True, slots=True)
class _Look:
    """Heads of the attention, from the first to before `end`, that look so many places back."""

    back: int
    first: int
    end: int


def _looks(heads: int) -> list[_Look]:
    """Two of them look back by one and two places, and one begins without aim, where there are enough."""
    behind = [back for back in (1, 2) if heads >= 3 * (back + 1)]
    near = heads - len(behind) - (heads >= 9)
    return [_Look(0, 0, near)] + [_Look(back, near + i, near + i + 1) for i, back in enumerate(behind)]


def begin(
    pairs: Pairs, frame: Frame, embedded: Callable[[NDArray[np.int64]], Floats], ends: NDArray[np.bool_], seed: int
) -> Params:
    """Weights of the layer. embedded: the normed embedding of each of some positions, (count, n).  ends: (N,), is it
    the last one of its text?
    """
    s, rng = frame.shape, np.random.default_rng((seed, 0))
    n, d, wide = s.n_embd, s.head_dim, s.n_head * s.head_dim
    params: Params = {name: np.ones(n, np.float32) for name in _NORMS}
    qkv = rng.standard_normal((3, wide, 2 * n), dtype=np.float32) * np.float32(_LOOSE / math.sqrt(2 * n))
    params["qkv"] = qkv.reshape(3 * wide, 2 * n)  # the same memory
    params["attention"] = np.zeros((n, wide), np.float32)
    params["gate_up"] = rng.standard_normal((2 * s.n_ff, n), dtype=np.float32) / np.float32(math.sqrt(n))
    params["down"] = np.zeros((n, s.n_ff), np.float32)
    usable = _usable(ends)
    if not len(usable):
        return params
    states = pairs.states

    def given(positions: NDArray[np.int64]) -> Floats:
        feature = states[positions].astype(np.float32)
        return np.concatenate((embedded(positions), feature * root_of(feature, s.eps) * frame.feature), axis=1)

    here = given(usable)
    steady = _ridge(here, np.ones((len(here), 1), np.float32))[0]
    left = (states[usable + 1].astype(np.float32) - states[usable]) / frame.unit
    for look in _looks(s.n_head):
        seen = given(usable - look.back) if look.back else here
        found = _ridge(seen, left)
        rank = (look.end - look.first) * d
        guessed = seen @ found.T
        _, vectors = np.linalg.eigh((guessed.T @ guessed).astype(np.float64))
        main = vectors[:, ::-1][:, :rank].astype(np.float32)  # (n, at most n)
        columns = slice(look.first * d, look.first * d + main.shape[1])
        qkv[2, columns] = main.T @ found
        params["attention"][:, columns] = main
        left -= guessed @ main @ main.T
        for head in range(look.first, look.end):
            qkv[0, head * d :][:d] += _aim(s, look.back)[:, None] * steady
            qkv[1, head * d :][:d] += _aim(s, 0)[:, None] * steady
    return params


def _usable(ends: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Positions with two before them and one behind them in the same text, at most so many."""
    places = np.arange(2, len(ends) - 1)
    return some(places[~(ends[places] | ends[places - 1] | ends[places - 2])])


def _ridge(given: Floats, wanted: Floats) -> Floats:
    """(outputs, inputs) of the best linear guess."""
    gram = (given.T @ given).astype(np.float64)
    gram[np.diag_indices(len(gram))] += _RIDGE * len(given) + 1e-6
    found: Floats = np.linalg.solve(gram, (given.T @ wanted).astype(np.float64)).T.astype(np.float32)
    return found


def _aim(s: Shape, back: int) -> Floats:
    """(d,): a query that, times something steady, fits such keys best that stand `back` places before it."""
    angles = frequencies(s.head_dim, s.rope_base)[:_TURNING]
    gap = float((1 - np.cos(angles)).sum())
    size = math.sqrt(_NEAR * math.sqrt(s.head_dim) / gap)
    found = np.zeros(s.head_dim, np.float32)
    found[0 : 2 * len(angles) : 2] = size * np.cos(angles * back)
    found[1 : 2 * len(angles) : 2] = -size * np.sin(angles * back)
    return found
