"""Which form is best, on made-up times."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from edgespec.costs import CostTable
from edgespec.tuned import AS_IS, Agreement, Perplexity, Trial
from edgespec.tuning.choice import best_draft, best_target, expected, gain, speed

WIDTHS = tuple(range(1, 17))
TARGET = CostTable(WIDTHS, tuple(100.0 + 5 * width for width in WIDTHS))


def times(factor: float, plain: float | None = None) -> CostTable:
    """TARGET's times by a factor, the plain step by one of its own."""
    ms = [factor * t for t in TARGET.ms]
    return CostTable(WIDTHS, (ms[0] if plain is None else plain * TARGET.ms[0], *ms[1:]))


def target(name: str, costs: CostTable, change: float = 0.0, error: float = 0.0) -> Trial:
    return Trial(name, 1000, costs, perplexity=Perplexity(10 * (1 + change), change, error))


def draft(name: str, step_ms: float, overlap: float) -> Trial:
    return Trial(name, 1000, CostTable((1,), (step_ms,)), agreement=Agreement(overlap, overlap, 500))


ORIGINAL = target(AS_IS, TARGET)


def test_speed_and_gain() -> None:
    assert speed(TARGET, times(0.5), 8) == pytest.approx(2)
    assert gain(TARGET, times(0.5)) == pytest.approx(2)
    assert gain(TARGET, times(0.5, plain=1.0)) == pytest.approx(2**0.75)
    assert gain(TARGET, TARGET) == 1


def test_the_fastest_copy_that_changes_little_is_recommended() -> None:
    good, better = target("q4_0", times(0.8), 0.03, 0.01), target("iq4_nl", times(0.7), 0.02, 0.01)
    assert best_target([ORIGINAL, good, better]) is better
    assert best_target([ORIGINAL, good]) is good
    assert best_target([ORIGINAL]) is ORIGINAL


@pytest.mark.parametrize(
    "copy",
    [
        target("slow", times(1.2)),
        target("hardly faster", times(0.97)),
        target("worse", times(0.5), 0.06),
        target("perhaps worse", times(0.5), 0.04, 0.02),
        target("slower when nothing is guessed", times(0.5, plain=1.1)),
    ],
    ids=lambda copy: copy.type,
)
def test_no_copy_is_recommended_that(copy: Trial) -> None:
    assert best_target([ORIGINAL, copy]) is ORIGINAL


@pytest.mark.parametrize("step_ms", [0.001, 10.0, 40.0, 200.0])
@pytest.mark.parametrize("overlap", [0.0, 0.3, 0.7, 0.95, 1.0])
def test_the_expected_speedup_is_the_best_of_all_lengths(step_ms: float, overlap: float) -> None:
    one = draft("q4_0", step_ms, overlap)
    assert one.agreement is not None
    found = expected(TARGET, one.costs, one.agreement)
    all_of_them = {
        k: sum(overlap**i for i in range(k + 1)) * TARGET.at(1) / (k * step_ms + TARGET.at(k + 1)) for k in range(1, 9)
    }
    assert found.speedup == pytest.approx(max(all_of_them.values()))
    assert all_of_them[found.k] == pytest.approx(found.speedup)


def test_a_worse_draft_promises_less_with_fewer_guesses() -> None:
    found = [expected(TARGET, CostTable((1,), (20.0,)), Agreement(a, a, 1)) for a in (0.95, 0.8, 0.5, 0.2)]
    assert all(a.speedup > b.speedup and a.k >= b.k for a, b in pairwise(found))


def test_a_draft_is_changed_for_a_clear_gain_only() -> None:
    original = draft(AS_IS, 40.0, 0.8)
    assert best_draft([original, faster := draft("q4_0", 30.0, 0.79)], TARGET) is faster
    assert best_draft([original, draft("q8_0", 39.5, 0.8)], TARGET) is original
    assert best_draft([original, draft("q4_0", 30.0, 0.5)], TARGET) is original  # faster, but it guesses badly
    assert best_draft([original], TARGET) is original


def test_the_choice_of_a_draft_depends_on_the_target() -> None:
    """Behind a slow target it pays to guess better, behind a fast one to guess faster."""
    original, quick, careful = draft(AS_IS, 40.0, 0.7), draft("q4_0", 10.0, 0.7), draft("q8_0", 40.0, 0.85)
    slow, fast = times(10.0), times(0.5)
    assert best_draft([original, quick, careful], slow) is careful
    assert best_draft([original, quick, careful], fast) is quick
    assert math.isfinite(expected(fast, careful.costs, Agreement(0.0, 0.0, 1)).speedup)
