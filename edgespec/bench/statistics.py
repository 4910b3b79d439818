"""The arithmetic of a benchmark, without a model or a clock: runs, paired ratios, medians, intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ..costs import CostTable

LEVEL = 0.95  # of intervals
_RESAMPLES = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One timed generation.

    tokens, seconds: tokens after the first one, and the wall time from the first token to the end.  rounds,
    produced, drafted, accepted: as in GenerationStats.  drafted_at, accepted_at: item i counts rounds that drafted,
    or accepted, more than i tokens.  widths: (rows of a decode, rounds).  draft_steps: decodes of a draft model.
    head_ms: what draft heads should take for the tokens that they drafted.
    """

    tokens: int
    seconds: float
    rounds: int = 0
    produced: int = 0
    drafted: int = 0
    accepted: int = 0
    drafted_at: tuple[int, ...] = ()
    accepted_at: tuple[int, ...] = ()
    widths: tuple[tuple[int, int], ...] = ()
    draft_steps: int = 0
    head_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Pair:
    """One prompt's runs in the order A B B A: `base` is A (plain, or a peer), `mode` is B."""

    prompt: str
    base: tuple[Run, ...]
    mode: tuple[Run, ...]

    @property
    def ratio(self) -> float | None:
        """Tokens per second of the mode over those of the base; None where a run gave no second token."""
        base, mode = rate(self.base), rate(self.mode)
        return mode / base if base and mode else None


@dataclass(frozen=True, slots=True)
class Cell:
    """All pairs of one workload and one mode."""

    workload: str
    mode: str
    temperature: float
    pairs: tuple[Pair, ...] = field(default=())

    @property
    def ratios(self) -> list[float]:
        """The paired ratios of the prompts that have one."""
        return [r for r in (pair.ratio for pair in self.pairs) if r is not None]

    @property
    def base(self) -> list[Run]:
        return [run for pair in self.pairs for run in pair.base]

    @property
    def runs(self) -> list[Run]:
        """The mode's own runs."""
        return [run for pair in self.pairs for run in pair.mode]


def rate(runs: Sequence[Run]) -> float | None:
    """Tokens per second of all runs together; None without tokens or time."""
    tokens, seconds = sum(r.tokens for r in runs), sum(r.seconds for r in runs)
    return tokens / seconds if tokens > 0 and seconds > 0 else None


def tau(runs: Sequence[Run]) -> float | None:
    """Tokens produced per verifying decode; None without one."""
    rounds = sum(r.rounds for r in runs)
    return sum(r.produced for r in runs) / rounds if rounds else None


def acceptance(runs: Sequence[Run]) -> float | None:
    """Accepted over drafted tokens; None if nothing was drafted."""
    drafted = sum(r.drafted for r in runs)
    return sum(r.accepted for r in runs) / drafted if drafted else None


def per_position(runs: Sequence[Run]) -> list[float]:
    """Item i: of the rounds that drafted more than i tokens, the share that accepted token i."""
    deepest = max((len(r.drafted_at) for r in runs), default=0)
    shares = []
    for i in range(deepest):
        drafted = sum(r.drafted_at[i] for r in runs if i < len(r.drafted_at))
        accepted = sum(r.accepted_at[i] for r in runs if i < len(r.accepted_at))
        shares.append(accepted / drafted if drafted else 0.0)
    return shares


def median(values: Sequence[float]) -> float | None:
    """The median; None of nothing."""
    return float(np.median(values)) if len(values) else None


def bootstrap_interval(values: Sequence[float], *, seed: int = 0) -> tuple[float, float] | None:
    """Percentile bootstrap interval of the median, at LEVEL; None for fewer than two values.

    The seed makes it a function of the values alone.
    """
    if len(values) < 2:
        return None
    rng = np.random.default_rng(seed)
    picks = rng.integers(0, len(values), size=(_RESAMPLES, len(values)))
    medians = np.median(np.asarray(values, dtype=np.float64)[picks], axis=1)
    low, high = np.percentile(medians, [50 * (1 - LEVEL), 50 * (1 + LEVEL)])
    return float(low), float(high)


def round_ms(runs: Sequence[Run]) -> float | None:
    """Measured wall time of a round, in milliseconds; None without one."""
    rounds = sum(r.rounds for r in runs)
    return 1000 * sum(r.seconds for r in runs) / rounds if rounds else None


def table_ms(runs: Sequence[Run], costs: CostTable, draft_step_ms: float | None) -> float | None:
    """Time of a round by its widths and the cost table, plus those of draft model and heads; None without a round.

    draft_step_ms: of one decode of the draft model.
    """
    rounds = sum(r.rounds for r in runs)
    if not rounds:
        return None
    total = sum(n * costs.at(width) for r in runs for width, n in r.widths)
    total += (draft_step_ms or 0.0) * sum(r.draft_steps for r in runs) + sum(r.head_ms for r in runs)
    return total / rounds


def predicted_ms(pairs: Sequence[Pair], costs: CostTable, draft_step_ms: float | None) -> float | None:
    """What a round of the mode should take: the table's time, scaled by what plain rounds took on the same prompt.

    The table is measured behind a short text; a longer one and a busy machine slow all widths alike. None without a
    round.
    """
    total, rounds = 0.0, 0
    for pair in pairs:
        plain, mode = round_ms(pair.base), table_ms(pair.mode, costs, draft_step_ms)
        if plain is not None and mode is not None:
            n = sum(r.rounds for r in pair.mode)
            total += n * mode * plain / costs.at(1)
            rounds += n
    return total / rounds if rounds else None


def prediction_error(pairs: Sequence[Pair], costs: CostTable, draft_step_ms: float | None) -> float | None:
    """How far predicted_ms is from the time of a round, as a share of it: median over prompts; None without a round."""
    errors = []
    for pair in pairs:
        predicted, measured = predicted_ms([pair], costs, draft_step_ms), round_ms(pair.mode)
        if predicted and measured:
            errors.append(abs(predicted / measured - 1))
    return median(errors)


def spread(pairs: Sequence[Pair]) -> float | None:
    """How far apart the base's runs of one prompt are, by the time of a round, as a share of the shorter: median over
    prompts; None where there are no two. What differs by less is noise.
    """
    found = []
    for pair in pairs:
        times = [ms for ms in (round_ms([run]) for run in pair.base) if ms]
        if len(times) > 1:
            found.append(max(times) / min(times) - 1)
    return median(found)


def calibrated_speedup(runs: Sequence[Run], costs: CostTable, draft_step_ms: float | None) -> float | None:
    """Counts times the cost table: tau * v(1) / time of a round. No clock but the table's enters it."""
    per_round, produced = table_ms(runs, costs, draft_step_ms), tau(runs)
    return produced * costs.at(1) / per_round if per_round and produced else None
