"""Sequential heads: each sees the tokens drafted before it (Hydra, arXiv 2402.05109), and hands its state to the next.

A head stands for one step of the model: from the hidden state and the latest tokens it makes what the next state should
be, and the model's own output matrix makes logits of that (as EAGLE does, arXiv 2401.15077).
"""

from __future__ import annotations

import functools
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import BadRequestError
from .medusa import MAX_HEADS, Facts, Floats, check_array, fastest_ms
from .quantized import Quantized

MAX_WINDOW = 8
_CANDIDATES = 256  # tokens whose exact logits are computed: those with the largest rough ones
_ROUGH = 128  # directions that the rough logits look at

Guess = tuple[NDArray[np.int64], Floats]


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """One head: z = mix u + mix_bias, then z + outer SiLU(inner z + inner_bias). u: the state, then what is seen.

    mix: (n, n + window * seen) float32.  inner: (m, n).  outer: (n, m).
    """

    mix: Floats
    mix_bias: Floats
    inner: Floats
    inner_bias: Floats
    outer: Floats

    def __call__(self, state: Floats, seen: Floats) -> Floats:
        z = self.mix @ np.concatenate((state, seen)) + self.mix_bias
        h = self.inner @ z + self.inner_bias
        made: Floats = z + self.outer @ (h * (0.5 + 0.5 * np.tanh(0.5 * h)))
        return made


@dataclass(frozen=True, eq=False)
class SequentialHeads:
    """K heads over a draft vocabulary, used one after the other.

    ids: (D,) token ids that can be guessed, ascending.  centre, unit: (n,) float32: inside, a state is what it differs
    from the centre, in these units.  rows, bias: (D, n) and (D,) float32, the output layer for such states.  basis:
    (n, r) float32, orthonormal: the directions in which the rows differ most, the most important first. A token is seen
    as its row in these directions, and the first of them serve for rough logits.  window: how many tokens a head sees,
    the latest drafted one included.
    Raises BadRequestError where the parts do not fit together.
    """

    facts: Facts
    ids: NDArray[np.int64]
    centre: Floats
    unit: Floats
    rows: Quantized
    bias: Floats
    basis: Floats
    window: int
    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        n, size = self.facts.n_embd, self.facts.vocab_size
        if not 1 <= len(self.steps) <= MAX_HEADS:
            raise BadRequestError(f"there are {len(self.steps)} heads; 1 to {MAX_HEADS} are supported")
        if not 1 <= self.window <= MAX_WINDOW:
            raise BadRequestError(f"a head sees {self.window} tokens; 1 to {MAX_WINDOW} are supported")
        if not len(self.ids) or self.ids[0] < 0 or self.ids[-1] >= size or not (np.diff(self.ids) > 0).all():
            raise BadRequestError(f"the draft vocabulary must list ids from 0 to {size - 1}, ascending, each once")
        if self.rows.codes.shape != (len(self.ids), n):
            raise BadRequestError(f"the rows have shape {self.rows.codes.shape}; {(len(self.ids), n)} is needed")
        if self.basis.ndim != 2 or not 1 <= self.basis.shape[1] <= n:
            raise BadRequestError(f"the basis has shape {self.basis.shape}; it must be {n} by at most as many")
        check_array("the basis", self.basis, (n, self.basis.shape[1]))
        check_array("the centre", self.centre, (n,))
        check_array("the unit", self.unit, (n,))
        check_array("the bias", self.bias, (len(self.ids),))
        if not (self.unit > 0).all():
            raise BadRequestError("the unit of a state has a number that is not above 0")
        for step in self.steps:
            m = len(step.inner)
            check_array("a head's first matrix", step.mix, (n, n + self.window * self.basis.shape[1]))
            check_array("a head's first bias", step.mix_bias, (n,))
            check_array("a head's second matrix", step.inner, (m, n))
            check_array("a head's second bias", step.inner_bias, (m,))
            check_array("a head's third matrix", step.outer, (n, m))

    @property
    def count(self) -> int:
        """K: the longest draft."""
        return len(self.steps)

    @functools.cached_property
    def seen(self) -> Floats:
        """(D + 1, r): what a head sees of each token; of one outside the vocabulary, the last row, nothing."""
        return seen_rows(self.rows.whole(), self.basis)[0]

    @functools.cached_property
    def _rough(self) -> tuple[Floats, Floats]:
        """The first directions: the rows in them, (D, s), and how a state gets there, (s, n)."""
        few = self.basis[:, :_ROUGH]
        return np.ascontiguousarray(self.rows.whole() @ few), np.ascontiguousarray(few.T)

    def guesses(self, state: Floats, tokens: Sequence[int], count: int) -> Generator[Guess, int, None]:
        """Of the first `count` heads in turn: (token ids, their logits). Each is sent the token that was drafted.

        state: (n_embd,) float32, of the token before the last of `tokens`.
        """
        s = (state - self.centre) / self.unit
        places = [len(self.ids)] * self.window + [self._place(t) for t in tokens[-self.window :]]
        for step in self.steps[:count]:
            s = step(s, self.seen[places[-self.window :]].ravel())
            token = yield self.logits(s)
            places.append(self._place(token))

    def logits(self, made: Floats) -> Guess:
        """(ids, logits) of a state that a head made: all of a small vocabulary, else the likeliest few."""
        if len(self.ids) <= 4 * _CANDIDATES:
            return self.ids, self._exact @ made + self.bias
        rows, reduce = self._rough
        best = np.argpartition(rows @ (reduce @ made) + self.bias, -_CANDIDATES)[-_CANDIDATES:]
        best.sort()
        return self.ids[best], self.rows.part(best) @ made + self.bias[best]

    @functools.cached_property
    def _exact(self) -> Floats:
        return self.rows.whole()

    def _place(self, token: int) -> int:
        place = int(np.searchsorted(self.ids, token))
        return place if place < len(self.ids) and self.ids[place] == token else len(self.ids)

    @functools.cached_property
    def step_ms(self) -> float:
        """Milliseconds for each drafted token, measured here at first use: for planning, never for output."""

        def all_heads() -> None:
            guesses = self.guesses(self.unit, (), self.count)
            next(guesses)
            for _ in range(self.count - 1):
                guesses.send(int(self.ids[0]))

        return fastest_ms(all_heads) / self.count

    def check_target(self, *, vocab_size: int, n_embd: int, identities: tuple[str, ...], name: str) -> None:
        """Raise ModelLoadError unless they were made for this model. identities: of its files (models.identity)."""
        self.facts.check_target(vocab_size=vocab_size, n_embd=n_embd, identities=identities, name=name)


def table_bytes(tokens: int, n_embd: int, seen: int) -> int:
    """Bytes of what heads make at their first use: `seen`, and `_exact` or `_rough`."""
    rough = min(seen, _ROUGH)
    logits = tokens * n_embd if tokens <= 4 * _CANDIDATES else rough * (tokens + n_embd)
    return 4 * ((tokens + 1) * seen + logits)


def seen_rows(rows: Floats, basis: Floats) -> tuple[Floats, float]:
    """((D + 1, r) what heads see of each token, of ordinary size; what it was divided by). The last row is nothing."""
    found = rows @ basis
    size = float(np.sqrt(np.mean(np.square(found)))) or 1.0
    return np.concatenate((found / np.float32(size), np.zeros((1, basis.shape[1]), np.float32))), size
