"""How well a draft agrees with its target, counted on known texts: the fixed one, and the target's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..scoring import Scorer
from ..tuned import Agreement
from .forcing import forced_rows, log_probabilities

_LEAST = 1e-6  # probability that is kept: what is left out is too little to count


@dataclass(frozen=True, slots=True)
class Text:
    """tokens[start:] are predicted, what is before is given. start: 1 or more."""

    tokens: tuple[int, ...]
    start: int


@dataclass(frozen=True, slots=True)
class Expected:
    """A target's law at one place, temperature 1. ids: of its likely tokens, ascending.  probs: of these, float32."""

    ids: NDArray[np.int32]
    probs: NDArray[np.float32]

    @property
    def top(self) -> int:
        return int(self.ids[int(np.argmax(self.probs))])


@dataclass(frozen=True, slots=True)
class Reference:
    """Texts, and what the target expects at each of their predicted places."""

    texts: tuple[Text, ...]
    expected: tuple[tuple[Expected, ...], ...]

    @property
    def positions(self) -> int:
        return sum(map(len, self.expected))


def reference(target: Scorer, texts: Sequence[Text]) -> Reference:
    """Ask the target once; drafts are then compared without it."""
    return Reference(tuple(texts), tuple(tuple(_expected(target, text)) for text in texts))


def agreement(draft: Scorer, known: Reference) -> Agreement:
    """A draft against the target, at every place of the texts."""
    overlap, same = 0.0, 0
    for text, expected in zip(known.texts, known.expected, strict=True):
        for i, rows in forced_rows(draft, text.tokens, text.start):
            probs = np.exp(log_probabilities(rows))
            for row, target in zip(probs, expected[i - text.start :], strict=False):
                shared = target.ids < len(row)  # vocabularies of two sizes: the rest is padding
                overlap += float(np.minimum(target.probs[shared], row[target.ids[shared]]).sum())
                same += int(np.argmax(row)) == target.top
    return Agreement(overlap / known.positions, same / known.positions, known.positions)


def _expected(target: Scorer, text: Text) -> list[Expected]:
    found = []
    for _, rows in forced_rows(target, text.tokens, text.start):
        for row in np.exp(log_probabilities(rows)):
            ids = np.flatnonzero(row >= min(_LEAST, row.max()))
            found.append(Expected(ids.astype(np.int32), row[ids].astype(np.float32)))
    return found
