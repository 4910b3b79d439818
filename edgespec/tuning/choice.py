"""Which form of a model is best for its role: arithmetic on what was measured, without a clock or a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..costs import CostTable
from ..tuned import Agreement, Trial

WIDTHS = (1, 4, 8, 16)  # rows of the decodes that a target's speed is told at
LONGEST = 8  # tokens of a draft
TARGET_GAIN = 1.05  # a target is changed for no less: it is another model afterwards
DRAFT_GAIN = 1.03  # less is noise
_SLOWER = 0.97  # plain speed that no copy may fall below: text that nobody guesses is decoded plainly
WORSE = 0.05  # perplexity, with its error: no copy that may be worse by more is recommended


@dataclass(frozen=True, slots=True)
class Expected:
    """Speed-up over plain decoding that a draft promises with its best length k."""

    speedup: float
    k: int


def speed(original: CostTable, copy: CostTable, rows: int) -> float:
    """How many times as fast a decode of so many rows is with the copy."""
    return original.at(rows) / copy.at(rows)


def gain(original: CostTable, copy: CostTable) -> float:
    """The geometric mean of the speeds at WIDTHS: plain steps, and verifying short and long drafts."""
    return math.exp(sum(math.log(speed(original, copy, rows)) for rows in WIDTHS) / len(WIDTHS))


def best_target(trials: Sequence[Trial]) -> Trial:
    """The copy to recommend, else the original, which comes first: fastest of those that change little."""
    original = trials[0]
    fit = [
        trial
        for trial in trials[1:]
        if trial.perplexity is not None
        and trial.perplexity.change + trial.perplexity.error <= WORSE
        and speed(original.costs, trial.costs, 1) >= _SLOWER
        and gain(original.costs, trial.costs) >= TARGET_GAIN
    ]
    return max(fit, key=lambda trial: gain(original.costs, trial.costs), default=original)


def expected(target: CostTable, draft: CostTable, agreed: Agreement) -> Expected:
    """Tokens of a round by its time, in plain tokens by their time, for the best length of draft.

    Each guess is accepted with the same probability, the overlap: (1 + a + ... + a^k) v(1) / (k d + v(k + 1)).
    """
    best = Expected(0.0, 1)
    tokens = 1.0
    for k in range(1, LONGEST + 1):
        tokens += agreed.overlap**k
        ms = k * draft.at(1) + target.at(k + 1)
        best = max(best, Expected(tokens * target.at(1) / ms, k), key=lambda e: e.speedup)
    return best


def best_draft(trials: Sequence[Trial], target: CostTable) -> Trial:
    """The form with the best expected speed-up; the original, which comes first, where nothing beats it clearly."""

    def promise(trial: Trial) -> float:
        return 0.0 if trial.agreement is None else expected(target, trial.costs, trial.agreement).speedup

    best = max(trials, key=promise)
    return best if promise(best) >= DRAFT_GAIN * promise(trials[0]) else trials[0]
