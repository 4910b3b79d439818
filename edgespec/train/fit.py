"""Trains Medusa heads on hidden states: cross-entropy with the model's own choices, with Adam, in numpy.

A head learns from the token that the model chose, and from the distribution that it chose it from: that one needs no
room on disk, since the state that made it is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..heads.medusa import Block, Facts, MedusaHeads
from .data import Pairs

Floats = NDArray[np.float32]
Params = dict[str, Floats]

_RATE, _OUTPUT_RATE = 0.02, 0.005  # of one step, relative to the scale of what it changes
_DECAY = 0.9  # of the rate, per pass
_TAUGHT = 0.5  # share of the model's distribution in what a head should guess; the rest is the token
_LATER = 0.8  # weight of each head, relative to the one before: later guesses count only if the earlier ones held
_BETA1, _BETA2, _EPSILON = 0.9, 0.99, 1e-8
_PATIENCE = 3  # passes without a better result
_LEAST = 1e-9  # chance in a logarithm
_EVALUATED = 1024  # positions at once


@dataclass(frozen=True, slots=True)
class Score:
    """On held-out text. acceptance: (K,) share of guesses that were right where all before them were.  tau: tokens of a
    round that drafts with all heads.  loss: mean cross-entropy of known tokens.  coverage: share of tokens that can be
    guessed.
    """

    acceptance: tuple[float, ...]
    tau: float
    loss: float
    coverage: float


class Trainer:
    """The state of a training after whole passes. It is a function of what it is given, and of nothing else."""

    def __init__(self, pairs: Pairs, ids: NDArray[np.int64], heads: int, rows: Floats | None, seed: int) -> None:
        """ids: the draft vocabulary.  rows: (D, n), the model's own output matrix, where the heads' begins; or None."""
        n = pairs.states.shape[1]
        self.ids, self._seed = ids, seed
        self._pairs, self._targets = pairs, places(pairs.wanted, ids)
        self._scale = float(np.sqrt(np.mean(np.square(pairs.states.astype(np.float32))))) or 1.0
        self._teacher = None if rows is None else rows.astype(np.float32)
        if rows is None:
            rng = np.random.default_rng((seed, 0))
            rows = rng.standard_normal((len(ids), n), dtype=np.float32) / np.float32(n**0.5 * self._scale)
        self.params: Params = {
            "weight": np.zeros((heads, n, n), np.float32),
            "bias": np.zeros((heads, n), np.float32),
            "projection": rows.astype(np.float32),
        }
        self._rates = {
            "weight": _RATE / n**0.5,
            "bias": _RATE * self._scale,
            "projection": _OUTPUT_RATE * float(np.sqrt(np.mean(np.square(rows)))),
        }
        self._first = {name: np.zeros_like(value) for name, value in self.params.items()}
        self._second = {name: np.zeros_like(value) for name, value in self.params.items()}
        self._steps = 0
        self.epoch = 0
        self.best = {name: value.copy() for name, value in self.params.items()}
        self.best_tau, self._since_best = 0.0, 0

    @property
    def done(self) -> bool:
        """True once several passes in a row have brought nothing."""
        return self._since_best >= _PATIENCE

    def run_epoch(self, batch: int) -> float:
        """One pass over all pairs; returns the mean loss."""
        order = np.random.default_rng((self._seed, 1, self.epoch)).permutation(len(self._targets))
        losses = []
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            loss, gradients = self._gradients(chosen)
            self._adam(gradients)
            losses.append(loss)
        self.epoch += 1
        return float(np.mean(losses))

    def judge(self, score: Score) -> bool:
        """Keep the weights if they are the best so far."""
        better = score.tau > self.best_tau
        if better:
            self.best = {name: value.copy() for name, value in self.params.items()}
            self.best_tau, self._since_best = score.tau, 0
        else:
            self._since_best += 1
        return better

    def _gradients(self, chosen: NDArray[np.int64]) -> tuple[float, Params]:
        """(mean loss of the heads, gradients of its weighted sum) over the positions `chosen`."""
        p, targets = self.params, self._targets[chosen]
        gradients = {name: np.zeros_like(value) for name, value in p.items()}
        losses = []
        for k in range(targets.shape[1]):
            known = np.flatnonzero(targets[:, k] >= 0)
            if not len(known):
                continue
            state, wanted = self._states(chosen[known]), self._wanted(chosen[known], targets[known, k], k)
            inner, gate, hidden = _forward(state, p["weight"][k], p["bias"][k])
            chances = _softmax(hidden @ p["projection"].T)
            losses.append(float(-(wanted * np.log(np.maximum(chances, _LEAST))).sum(axis=1).mean()))
            chances -= wanted
            chances *= np.float32(_LATER**k / len(known))
            gradients["projection"] += chances.T @ hidden
            slope = (chances @ p["projection"]) * (gate * (1 + inner * (1 - gate)))
            gradients["weight"][k] = slope.T @ state
            gradients["bias"][k] = slope.sum(axis=0)
        return float(np.mean(losses)) if losses else 0.0, gradients

    def _states(self, positions: NDArray[np.int64]) -> Floats:
        return self._pairs.states[positions].astype(np.float32)

    def _wanted(self, positions: NDArray[np.int64], tokens: NDArray[np.int64], k: int) -> Floats:
        """(B, D): the distribution that head k should have. tokens: places in the vocabulary."""
        if self._teacher is None:
            wanted = np.zeros((len(tokens), len(self.ids)), np.float32)
        else:
            wanted = np.float32(_TAUGHT) * _softmax(self._states(positions + 1 + k) @ self._teacher.T)
        wanted[np.arange(len(tokens)), tokens] += np.float32(1 if self._teacher is None else 1 - _TAUGHT)
        return wanted

    def _adam(self, gradients: Params) -> None:
        """Kingma & Ba, arXiv 1412.6980."""
        self._steps += 1
        rate = _DECAY**self.epoch * (1 - _BETA2**self._steps) ** 0.5 / (1 - _BETA1**self._steps)
        for name, gradient in gradients.items():
            first, second = self._first[name], self._second[name]
            first += np.float32(1 - _BETA1) * (gradient - first)
            second += np.float32(1 - _BETA2) * (np.square(gradient) - second)
            self.params[name] -= np.float32(rate * self._rates[name]) * first / (np.sqrt(second) + np.float32(_EPSILON))

    def heads(self, facts: Facts) -> MedusaHeads:
        """The best heads so far."""
        weights, biases = self.best["weight"], self.best["bias"]
        blocks = tuple((Block(weight, bias),) for weight, bias in zip(weights, biases, strict=True))
        return MedusaHeads(facts, self.ids, blocks, (self.best["projection"],))

    # On disk between two passes.

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that is needed to go on."""
        kinds = {"params": self.params, "first": self._first, "second": self._second, "best": self.best}
        found: dict[str, NDArray[Any]] = {f"{kind}.{n}": v for kind, values in kinds.items() for n, v in values.items()}
        counts = np.array([self._steps, self.epoch, self._since_best], dtype=np.int64)
        return found | {"counts": counts, "best_tau": np.array(self.best_tau), "ids": self.ids}

    def restore(self, arrays: dict[str, NDArray[Any]]) -> bool:
        """Go on from arrays(); False, and nothing changed, where they belong to another training."""
        own = self.arrays()
        same = set(own) == set(arrays) and all(own[n].shape == arrays[n].shape for n in own)
        if not same or not np.array_equal(arrays["ids"], self.ids):
            return False
        for kind, values in (
            ("params", self.params), ("first", self._first), ("second", self._second), ("best", self.best),
        ):  # fmt: skip
            for name in values:
                values[name] = arrays[f"{kind}.{name}"]
        self._steps, self.epoch, self._since_best = (int(value) for value in arrays["counts"])
        self.best_tau = float(arrays["best_tau"])
        return True

    def score(self, held: Pairs) -> Score:
        """How well the heads guess text that they were not trained on."""
        targets = places(held.wanted, self.ids)
        right = np.zeros(targets.shape, bool)
        losses = []
        for start in range(0, len(targets), _EVALUATED):
            part = slice(start, start + _EVALUATED)
            x = held.states[part].astype(np.float32)
            for k in range(targets.shape[1]):
                hidden = _forward(x, self.params["weight"][k], self.params["bias"][k])[2]
                logits = hidden @ self.params["projection"].T
                right[part, k] = logits.argmax(axis=1) == targets[part, k]
                known = np.flatnonzero(targets[part, k] >= 0)
                chances = _softmax(logits[known])[np.arange(len(known)), targets[part, k][known]]
                losses.append(-np.log(np.maximum(chances, _LEAST)))
        return _score(right, targets, held.wanted, float(np.concatenate(losses).mean()) if losses else 0.0)


def _score(right: NDArray[np.bool_], targets: NDArray[np.int64], wanted: NDArray[np.int64], loss: float) -> Score:
    whole = wanted[:, -1] >= 0  # all heads have a token to guess
    kept = np.logical_and.accumulate(right[whole], axis=1)
    acceptance = []
    reached = int(whole.sum())
    for k in range(kept.shape[1]):
        now = int(kept[:, k].sum())
        acceptance.append(now / reached if reached else 0.0)
        reached = now
    tau = 1.0 + float(kept.sum(axis=1).mean()) if len(kept) else 1.0
    known = wanted[:, 0] >= 0
    coverage = float((targets[known, 0] >= 0).mean()) if known.any() else 0.0
    return Score(tuple(acceptance), tau, loss, coverage)


def places(wanted: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each wanted token stands in the vocabulary; -1: nowhere, or nothing is wanted."""
    found = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    return np.where((wanted >= 0) & (ids[found] == wanted), found, -1)


def _forward(x: Floats, weight: Floats, bias: Floats) -> tuple[Floats, Floats, Floats]:
    """(W x + b, its sigmoid, x + SiLU(W x + b)) for rows x."""
    inner = x @ weight.T + bias
    gate = 0.5 * (1 + np.tanh(0.5 * inner))
    return inner, gate, x + inner * gate


def _softmax(logits: Floats) -> Floats:
    chances: Floats = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    return chances
