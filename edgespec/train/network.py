"""The arithmetic of sequential heads over many positions at once, forwards and backwards, in float32.

heads/sequential.py has the same for one position. All states here are in the heads' units.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Params = dict[str, Floats]  # "mix" (K, n, n + w r), "mix_bias", "inner" (K, m, n), "inner_bias", "outer" (K, n, m)


@dataclass(frozen=True, slots=True)
class Passed:
    """What a head made of a batch, and what its gradients need. made: (B, n), the next state."""

    given: Floats
    mixed: Floats
    hidden: Floats
    gate: Floats
    made: Floats


def forward(params: Params, k: int, state: Floats, seen: Floats) -> Passed:
    """Head k. state: (B, n).  seen: (B, w r)."""
    given = np.concatenate((state, seen), axis=1)
    mixed = given @ params["mix"][k].T + params["mix_bias"][k]
    hidden = mixed @ params["inner"][k].T + params["inner_bias"][k]
    gate = 0.5 + 0.5 * np.tanh(0.5 * hidden)
    return Passed(given, mixed, hidden, gate, mixed + (hidden * gate) @ params["outer"][k].T)


def backward(params: Params, k: int, passed: Passed, slope: Floats, gradients: Params) -> Floats:
    """Add head k's gradients; returns the slope at the state that it was given. slope: at what it made, (B, n)."""
    gradients["outer"][k] += slope.T @ (passed.hidden * passed.gate)
    inner = slope @ params["outer"][k]
    inner *= passed.gate * (1 + passed.hidden * (1 - passed.gate))
    gradients["inner"][k] += inner.T @ passed.mixed
    gradients["inner_bias"][k] += inner.sum(axis=0)
    mixed = slope + inner @ params["inner"][k]
    gradients["mix"][k] += mixed.T @ passed.given
    gradients["mix_bias"][k] += mixed.sum(axis=0)
    before: Floats = mixed @ params["mix"][k][:, : slope.shape[1]]
    return before


def cross_entropy(
    made: Floats, rows: Floats, bias: Floats, places: NDArray[np.int64], shares: Floats, weight: Floats
) -> tuple[float, Floats]:
    """(sum over the batch, its slope at `made`) of a weighted cross-entropy.

    rows: (D, n), bias: (D,), the output layer.  places, shares: (B, T), where the wanted distribution is not 0, and how
    much it is there; what it has outside the vocabulary is left out.  weight: (B,).
    """
    chances: Floats = made @ rows.T
    chances += bias
    every = np.arange(len(made))[:, None]
    shares = shares * weight[:, None]
    chances -= chances.max(axis=1, keepdims=True)
    logits = chances[every, places]
    np.exp(chances, out=chances)
    sums = chances.sum(axis=1, keepdims=True)
    loss = float((shares * (np.log(sums) - logits)).sum())
    chances *= shares.sum(axis=1, keepdims=True) / sums
    np.subtract.at(chances, (np.broadcast_to(every, places.shape), places), shares)
    slope: Floats = chances @ rows
    return loss, slope
