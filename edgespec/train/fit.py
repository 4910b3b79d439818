"""A training of any form of heads: passes over texts, with Adam, in numpy; the weights that judge best are kept."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..heads.medusa import Facts
from .data import Pairs
from .network import Floats, Params

_WARM, _COLD = 0.03, 0.03  # share of the steps in which the rate rises, and what it falls to
_SHARP = 0.4  # share of what a head should guess that is the likeliest token; the rest is the whole distribution
LATER = 0.8  # weight of each guess, relative to the one before: later ones count only if the earlier ones held
_BETA1, _BETA2, _EPSILON = 0.9, 0.98, 1e-8
_PATIENCE = 3  # passes without a better result
EVALUATED = 512  # positions at once
_TRIED = 4

Data = TypeVar("Data")


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


class Trainer(ABC, Generic[Data]):
    """The state of a training after whole passes. It is a function of what it is given, and of nothing else.

    A form of heads says what a batch is, what its gradients are, how it is scored, and how the heads are written.
    """

    def __init__(self, ids: NDArray[np.int64], params: Params, rate: float, passes: int, seed: int) -> None:
        """ids: the draft vocabulary.  params: where it begins.  rate: of a step.  passes: how many are planned."""
        self.ids, self.passes, self.params = ids, passes, params
        self._rate, self._seed = rate, seed
        self._first = {name: np.zeros_like(value) for name, value in params.items()}
        self._second = {name: np.zeros_like(value) for name, value in params.items()}
        self._steps = 0
        self.epoch = 0
        self.best = {name: value.copy() for name, value in params.items()}
        self.best_tau, self._since_best = 0.0, 0

    @abstractmethod
    def steps_of_a_pass(self, batch: int) -> int: ...

    @abstractmethod
    def _batches(self, batch: int, rng: np.random.Generator) -> Sequence[NDArray[np.int64]]:
        """So many parts of about `batch` positions each that all texts have, in the order of a pass."""

    @abstractmethod
    def _gradients(self, chosen: NDArray[np.int64]) -> tuple[float, Params]:
        """(mean loss of the heads, gradients of its weighted sum) over a batch."""

    @abstractmethod
    def score(self, held: Data) -> Score:
        """How well the heads guess text that they were not trained on."""

    @abstractmethod
    def write(self, facts: Facts, path: Path) -> None:
        """Write the file of the best heads so far, whole or not at all. Raises OSError."""

    @property
    def done(self) -> bool:
        """True once several passes in a row have brought nothing."""
        return self._since_best >= _PATIENCE

    def try_steps(self, batch: int) -> int:
        """Do the work of a few steps and change nothing, so that its time can be taken; returns how many."""
        some = self._batches(batch, self._drawing())[:_TRIED]
        for chosen in some:
            self._gradients(chosen)
        return len(some)

    def run_epoch(self, batch: int) -> float:
        """One pass over all texts; returns the mean loss."""
        every, losses = self.steps_of_a_pass(batch), []
        for chosen in self._batches(batch, self._drawing()):
            loss, gradients = self._gradients(chosen)
            self._adam(gradients, self._rate * schedule(self._steps / max(1, every * self.passes)))
            losses.append(loss)
        self.epoch += 1
        return float(np.mean(losses)) if losses else 0.0

    def _drawing(self) -> np.random.Generator:
        return np.random.default_rng((self._seed, 1, self.epoch))

    def judge(self, score: Score) -> bool:
        """Keep the weights if they are the best so far."""
        better = score.tau > self.best_tau
        if better:
            self.best = {name: value.copy() for name, value in self.params.items()}
            self.best_tau, self._since_best = score.tau, 0
        else:
            self._since_best += 1
        return better

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


def schedule(done: float) -> float:
    """The rate after a share of all steps, 0 to 1: it rises, then falls as a cosine does."""
    if done < _WARM:
        return (done + 0.1 * _WARM) / (1.1 * _WARM)
    return _COLD + (1 - _COLD) * 0.5 * (1 + math.cos(math.pi * min(1.0, (done - _WARM) / (1 - _WARM))))


def wanted(pairs: Pairs, positions: NDArray[np.int64], k: int) -> tuple[NDArray[np.int64], Floats]:
    """(places, shares), (B, T + 1): the distribution that guess k should have, and its likeliest token once more."""
    chose = np.minimum(positions + 1 + k, len(pairs.top) - 1)
    top, chances = pairs.top[chose].astype(np.int64), pairs.chances[chose]
    every, best = np.arange(len(top)), chances.argmax(axis=1)
    sharp = np.where(chances[every, best] > 0, np.float32(_SHARP), np.float32(0))
    places = np.maximum(np.concatenate((top, top[every, best][:, None]), axis=1), 0)
    return places, np.concatenate((chances * np.float32(1 - _SHARP), sharp[:, None]), axis=1)


def weight_of(known: NDArray[np.bool_], k: int) -> Floats:
    """Of guess k at each position of a batch: nothing where it has nothing to guess."""
    weight: Floats = known * np.float32(LATER**k / max(1, int(known.sum())))
    return weight


class Tally:
    """What was guessed of held-out text, put together out of logits."""

    def __init__(self, held: Pairs) -> None:
        self._held = held
        self._right = np.zeros(held.wanted.shape, bool)
        self._losses: list[Floats] = []

    def add(self, positions: NDArray[np.int64], k: int, logits: Floats) -> None:
        """Guess k at these positions: logits (B, D), which are overwritten."""
        wanted = self._held.wanted[positions, k]
        self._right[positions, k] = (logits.argmax(axis=1) == wanted) & (wanted >= 0)
        inside = np.flatnonzero(wanted >= 0)
        logits -= logits.max(axis=1, keepdims=True)
        self._losses.append(np.log(np.exp(logits[inside]).sum(axis=1)) - logits[inside, wanted[inside]])

    def score(self) -> Score:
        held = self._held
        kept = np.logical_and.accumulate(self._right[held.known[:, -1]], axis=1)  # where all have a token to guess
        acceptance = []
        reached = len(kept)
        for k in range(kept.shape[1]):
            now = int(kept[:, k].sum())
            acceptance.append(now / reached if reached else 0.0)
            reached = now
        tau = 1.0 + float(kept.sum(axis=1).mean()) if len(kept) else 1.0
        known = held.known[:, 0]
        coverage = float((held.wanted[known, 0] >= 0).mean()) if known.any() else 0.0
        loss = float(np.concatenate(self._losses).mean()) if self._losses else 0.0
        return Score(tuple(acceptance), tau, loss, coverage)
