"""Sequential heads (Hydra, arXiv 2402.05109): trained by cross-entropy with the model's own distributions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..api import LLM
from ..drafters import MedusaDrafter
from ..drafting import Drafter, LatestState
from ..heads.medusa import Facts
from ..heads.quantized import Quantized
from ..heads.registry import MEDUSA
from ..heads.sequential import SequentialHeads, Step, seen_rows
from ..heads.storage import SUFFIX, read_heads, write_heads
from .begin import directions, linear_heads, output_layer, units
from .data import Pairs, pairs
from .fit import EVALUATED, LATER, Score, Tally, Trainer, wanted, weight_of
from .form import Form, Material
from .network import Floats, Params, backward, cross_entropy, forward
from .settings import TrainSettings

_RATE = 0.024  # of one step of a weight, relative to the root of a state's size
WINDOW = 3  # tokens that a head sees
_SEEN = 256  # numbers that it sees of each
_HIDDEN = 1024


class SequentialTrainer(Trainer[Pairs]):
    """Of heads that make the next state out of the one before and of the latest tokens."""

    def __init__(self, pairs: Pairs, ids: NDArray[np.int64], rows: Floats, passes: int, seed: int) -> None:
        """ids: the draft vocabulary.  rows: (D, n), the model's own output matrix.  passes: how many are planned."""
        n = pairs.states.shape[1]
        heads, window = pairs.wanted.shape[1], pairs.seen.shape[1] - pairs.wanted.shape[1] + 1
        self._pairs, self._window = pairs, window
        self._centre, self._unit = units(pairs.states)
        matrix, self._bias = output_layer(rows, self._centre, self._unit)
        self._quantized = Quantized.of(matrix)
        self._rows = self._quantized.whole()
        self._basis = directions(self._rows, min(_SEEN, n))
        self._seen, _ = seen_rows(self._rows, self._basis)
        self._usable = np.flatnonzero(pairs.known[:, 0])
        params = linear_heads(
            pairs, self._centre, self._unit, self._seen, heads, window, min(_HIDDEN, 2 * n), seed
        )  # fmt: skip
        super().__init__(ids, params, _RATE / n**0.5, passes, seed)

    def steps_of_a_pass(self, batch: int) -> int:
        return -(-len(self._usable) // batch)

    def _batches(self, batch: int, rng: np.random.Generator) -> Sequence[NDArray[np.int64]]:
        order = rng.permutation(self._usable)
        return [order[start : start + batch] for start in range(0, len(order), batch)]

    def _gradients(self, chosen: NDArray[np.int64]) -> tuple[float, Params]:
        gradients = {name: np.zeros_like(value) for name, value in self.params.items()}
        state, passed, slopes, total = self._within(self._pairs.states[chosen]), [], [], 0.0
        heads = self._pairs.wanted.shape[1]
        for k in range(heads):
            passed.append(forward(self.params, k, state, self._seen_at(self._pairs, chosen, k)))
            state = passed[-1].made
            weight = weight_of(self._pairs.known[chosen, k], k)
            loss, slope = cross_entropy(state, self._rows, self._bias, *wanted(self._pairs, chosen, k), weight)
            total += loss / LATER**k
            slopes.append(slope)
        slope = np.zeros_like(state)
        for k in reversed(range(heads)):
            slope = backward(self.params, k, passed[k], slope + slopes[k], gradients)
        return total / heads, gradients

    def _within(self, states: NDArray[np.float16]) -> Floats:
        found: Floats = (states - self._centre) / self._unit
        return found

    def _seen_at(self, pairs: Pairs, positions: NDArray[np.int64], k: int) -> Floats:
        places = pairs.seen[positions, k : k + self._window]
        return self._seen[places].reshape(len(places), -1)

    def score(self, held: Pairs) -> Score:
        tally = Tally(held)
        for start in range(0, len(held.states), EVALUATED):
            part = np.arange(start, min(start + EVALUATED, len(held.states)))
            state = self._within(held.states[part])
            for k in range(held.wanted.shape[1]):
                state = forward(self.params, k, state, self._seen_at(held, part, k)).made
                tally.add(part, k, state @ self._rows.T + self._bias)
        return tally.score()

    def heads(self, facts: Facts) -> SequentialHeads:
        """The best heads so far."""
        names = ("mix", "mix_bias", "inner", "inner_bias", "outer")
        steps = tuple(Step(*parts) for parts in zip(*(self.best[name] for name in names), strict=True))
        output = (self._quantized, self._bias, self._basis)
        return SequentialHeads(facts, self.ids, self._centre, self._unit, *output, self._window, steps)

    def write(self, facts: Facts, path: Path) -> None:
        write_heads(self.heads(facts), path)


def _weights(n_embd: int, heads: int) -> int:
    return heads * n_embd * (n_embd + WINDOW * min(_SEEN, n_embd) + 2 * min(_HIDDEN, 2 * n_embd))


def _working(n_embd: int, size: int, settings: TrainSettings) -> int:
    return 4 * (3 * size * n_embd + 2 * settings.batch * size)


def _begin(material: Material, settings: TrainSettings) -> tuple[SequentialTrainer, Pairs]:
    own, held = (pairs(texts, material.ids, settings.heads, WINDOW) for texts in (material.texts, material.held))
    return SequentialTrainer(own, material.ids, material.rows, settings.epochs, settings.seed), held


@contextmanager
def _drafters(llm: LLM, path: Path) -> Iterator[Callable[[], Drafter]]:
    heads = read_heads(path)  # in 8 bits, as they will be used
    yield lambda: MedusaDrafter(heads, LatestState(), ends=llm.target.vocab.is_eog)


FORM = Form(MEDUSA, SUFFIX, _weights, _working, _begin, _drafters)
