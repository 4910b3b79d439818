"""Trains sequential heads on hidden states: cross-entropy with the model's own distributions, with Adam, in numpy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..heads.medusa import Facts
from ..heads.quantized import Quantized
from ..heads.sequential import SequentialHeads, Step, seen_rows
from .begin import directions, linear_heads, output_layer, units
from .data import Pairs
from .network import Floats, Params, backward, cross_entropy, forward

_RATE = 0.024  # of one step of a weight, relative to the root of a state's size
_WARM, _COLD = 0.03, 0.03  # share of the steps in which the rate rises, and what it falls to
_SHARP = 0.4  # share of what a head should guess that is the likeliest token; the rest is the whole distribution
_LATER = 0.8  # weight of each head, relative to the one before: later guesses count only if the earlier ones held
_BETA1, _BETA2, _EPSILON = 0.9, 0.98, 1e-8
_PATIENCE = 3  # passes without a better result
_EVALUATED = 512  # positions at once
WINDOW = 3  # tokens that a head sees
_SEEN = 256  # numbers that it sees of each
_HIDDEN = 1024
_TRIED = 4


@dataclass(frozen=True, slots=True)
class Score:
    """On held-out text, which the heads are led along: each sees the text's own tokens, not what was guessed.

    acceptance: (K,) share of guesses that were right where all before them were.  tau: tokens of a round that drafts
    with all heads.  loss: mean cross-entropy.  coverage: share of tokens that can be guessed.
    """

    acceptance: tuple[float, ...]
    tau: float
    loss: float
    coverage: float


class Trainer:
    """The state of a training after whole passes. It is a function of what it is given, and of nothing else."""

    def __init__(self, pairs: Pairs, ids: NDArray[np.int64], rows: Floats, passes: int, seed: int) -> None:
        """ids: the draft vocabulary.  rows: (D, n), the model's own output matrix.  passes: how many are planned."""
        n = pairs.states.shape[1]
        heads, window = pairs.wanted.shape[1], pairs.seen.shape[1] - pairs.wanted.shape[1] + 1
        self.ids, self._seed, self._pairs, self._window = ids, seed, pairs, window
        self.passes = passes
        self._centre, self._unit = units(pairs.states)
        matrix, self._bias = output_layer(rows, self._centre, self._unit)
        self._quantized = Quantized.of(matrix)
        self._rows = self._quantized.whole()
        self._basis = directions(self._rows, min(_SEEN, n))
        self._seen, _ = seen_rows(self._rows, self._basis)
        self._usable = np.flatnonzero(pairs.known[:, 0])
        self.params: Params = linear_heads(
            pairs, self._centre, self._unit, self._seen, heads, window, min(_HIDDEN, 2 * n), seed
        )
        self._rate = _RATE / n**0.5
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

    def steps_of_a_pass(self, batch: int) -> int:
        return -(-len(self._usable) // batch)

    def try_steps(self, batch: int) -> int:
        """Do the work of a few steps and change nothing, so that its time can be taken; returns how many."""
        steps = min(_TRIED, self.steps_of_a_pass(batch))
        for i in range(steps):
            self._gradients(self._usable[i * batch :][:batch])
        return steps

    def run_epoch(self, batch: int) -> float:
        """One pass over all pairs; returns the mean loss."""
        order = np.random.default_rng((self._seed, 1, self.epoch)).permutation(self._usable)
        every, losses = self.steps_of_a_pass(batch), []
        for start in range(0, len(order), batch):
            loss, gradients = self._gradients(order[start : start + batch])
            self._adam(gradients, self._rate * schedule(self._steps / max(1, every * self.passes)))
            losses.append(loss)
        self.epoch += 1
        return float(np.mean(losses)) if losses else 0.0

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
        gradients = {name: np.zeros_like(value) for name, value in self.params.items()}
        state, passed, slopes, total = self._states(chosen), [], [], 0.0
        heads = self._pairs.wanted.shape[1]
        for k in range(heads):
            passed.append(forward(self.params, k, state, self._seen_at(self._pairs, chosen, k)))
            state = passed[-1].made
            known = self._pairs.known[chosen, k]
            weight = known * np.float32(_LATER**k / max(1, int(known.sum())))
            loss, slope = cross_entropy(state, self._rows, self._bias, *self._wanted(chosen, k), weight)
            total += loss / _LATER**k
            slopes.append(slope)
        slope = np.zeros_like(state)
        for k in reversed(range(heads)):
            slope = backward(self.params, k, passed[k], slope + slopes[k], gradients)
        return total / heads, gradients

    def _states(self, positions: NDArray[np.int64]) -> Floats:
        return self._within(self._pairs.states[positions])

    def _within(self, states: NDArray[np.float16]) -> Floats:
        found: Floats = (states - self._centre) / self._unit
        return found

    def _seen_at(self, pairs: Pairs, positions: NDArray[np.int64] | slice, k: int) -> Floats:
        places = pairs.seen[positions, k : k + self._window]
        return self._seen[places].reshape(len(places), -1)

    def _wanted(self, positions: NDArray[np.int64], k: int) -> tuple[NDArray[np.int64], Floats]:
        """(places, shares), (B, T + 1): the distribution that head k should have, and its likeliest token once more."""
        chose = np.minimum(positions + 1 + k, len(self._pairs.top) - 1)
        top, chances = self._pairs.top[chose].astype(np.int64), self._pairs.chances[chose]
        every, best = np.arange(len(top)), chances.argmax(axis=1)
        sharp = np.where(chances[every, best] > 0, np.float32(_SHARP), np.float32(0))
        places = np.maximum(np.concatenate((top, top[every, best][:, None]), axis=1), 0)
        return places, np.concatenate((chances * np.float32(1 - _SHARP), sharp[:, None]), axis=1)

    def _adam(self, gradients: Params, rate: float) -> None:
        """Kingma & Ba, arXiv 1412.6980."""
        self._steps += 1
        rate *= (1 - _BETA2**self._steps) ** 0.5 / (1 - _BETA1**self._steps)
        for name, gradient in gradients.items():
            first, second = self._first[name], self._second[name]
            first *= np.float32(_BETA1)
            first += np.float32(1 - _BETA1) * gradient
            np.square(gradient, out=gradient)
            gradient *= np.float32(1 - _BETA2)
            second *= np.float32(_BETA2)
            second += gradient
            np.sqrt(second, out=gradient)
            gradient += np.float32(_EPSILON)
            np.divide(first, gradient, out=gradient)
            gradient *= np.float32(rate)
            self.params[name] -= gradient

    def heads(self, facts: Facts) -> SequentialHeads:
        """The best heads so far."""
        names = ("mix", "mix_bias", "inner", "inner_bias", "outer")
        steps = tuple(Step(*parts) for parts in zip(*(self.best[name] for name in names), strict=True))
        output = (self._quantized, self._bias, self._basis)
        return SequentialHeads(facts, self.ids, self._centre, self._unit, *output, self._window, steps)

    # On disk between two passes.

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that is needed to go on."""
        kinds = {"params": self.params, "first": self._first, "second": self._second, "best": self.best}
        found: dict[str, NDArray[Any]] = {f"{kind}.{n}": v for kind, values in kinds.items() for n, v in values.items()}
        counts = np.array([self._steps, self.epoch, self._since_best, self.passes], dtype=np.int64)
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
        self._steps, self.epoch, self._since_best, self.passes = (int(value) for value in arrays["counts"])
        self.best_tau = float(arrays["best_tau"])
        return True

    def score(self, held: Pairs) -> Score:
        """How well the heads guess text that they were not trained on."""
        right = np.zeros(held.wanted.shape, bool)
        losses = []
        for start in range(0, len(held.states), _EVALUATED):
            part = slice(start, start + _EVALUATED)
            state = self._within(held.states[part])
            for k in range(held.wanted.shape[1]):
                state = forward(self.params, k, state, self._seen_at(held, part, k)).made
                logits = state @ self._rows.T + self._bias
                wanted = held.wanted[part, k]
                right[part, k] = (logits.argmax(axis=1) == wanted) & (wanted >= 0)
                inside = np.flatnonzero(wanted >= 0)
                logits -= logits.max(axis=1, keepdims=True)
                losses.append(np.log(np.exp(logits[inside]).sum(axis=1)) - logits[inside, wanted[inside]])
        return _score(right, held, float(np.concatenate(losses).mean()) if losses else 0.0)


def weights(n_embd: int, heads: int) -> int:
    """Numbers that are learned, about."""
    return heads * n_embd * (n_embd + WINDOW * min(_SEEN, n_embd) + 2 * min(_HIDDEN, 2 * n_embd))


def schedule(done: float) -> float:
    """The rate after a share of all steps, 0 to 1: it rises, then falls as a cosine does."""
    if done < _WARM:
        return (done + 0.1 * _WARM) / (1.1 * _WARM)
    return _COLD + (1 - _COLD) * 0.5 * (1 + math.cos(math.pi * min(1.0, (done - _WARM) / (1 - _WARM))))


def _score(right: NDArray[np.bool_], held: Pairs, loss: float) -> Score:
    kept = np.logical_and.accumulate(right[held.known[:, -1]], axis=1)  # where all heads have a token to guess
    acceptance = []
    reached = len(kept)
    for k in range(kept.shape[1]):
        now = int(kept[:, k].sum())
        acceptance.append(now / reached if reached else 0.0)
        reached = now
    tau = 1.0 + float(kept.sum(axis=1).mean()) if len(kept) else 1.0
    known = held.known[:, 0]
    coverage = float((held.wanted[known, 0] >= 0).mean()) if known.any() else 0.0
    return Score(tuple(acceptance), tau, loss, coverage)
