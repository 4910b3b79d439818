"""The arithmetic of a benchmark: known cases, intervals, and the choice of the best fixed mode."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edgespec.bench import statistics as stats
from edgespec.bench.fixed import against_fixed
from edgespec.bench.statistics import Cell, Pair, Run
from edgespec.costs import CostTable

COSTS = CostTable((1, 2, 4), (10.0, 12.0, 16.0))


def run(tokens: int, seconds: float, **counts) -> Run:
    return Run(tokens=tokens, seconds=seconds, **counts)


def test_a_ratio_is_paired_and_weighs_runs_by_time():
    pair = Pair("p", (run(10, 1), run(10, 3)), (run(10, 1), run(10, 1)))
    assert stats.rate(pair.base) == 5
    assert stats.rate(pair.mode) == 10
    assert pair.ratio == 2


def test_linear_drift_leaves_the_ratio_of_abba_alone():
    """A machine that slows by the same step each run: equal work gives the ratio 1."""
    a, b, c, d = (run(10, seconds) for seconds in (1.0, 1.1, 1.2, 1.3))
    assert Pair("p", (a, d), (b, c)).ratio == pytest.approx(1)


def test_a_prompt_without_a_second_token_has_no_ratio_and_no_say():
    empty = Pair("p", (run(0, 0), run(0, 0)), (run(5, 1), run(5, 1)))
    full = Pair("q", (run(5, 1), run(5, 1)), (run(10, 1), run(10, 1)))
    assert empty.ratio is None
    assert Cell("w", "m", 0.0, (empty, full)).ratios == [2]


def test_counts_are_pooled_over_runs():
    runs = [
        run(4, 1, rounds=2, produced=5, drafted=6, accepted=3, drafted_at=(2, 2, 2), accepted_at=(2, 1, 0)),
        run(1, 1, rounds=1, produced=1, drafted=1, accepted=0, drafted_at=(1,), accepted_at=(0,)),
    ]
    assert stats.tau(runs) == 2
    assert stats.acceptance(runs) == 3 / 7
    assert stats.per_position(runs) == [2 / 3, 1 / 2, 0]
    assert stats.round_ms(runs) == pytest.approx(2000 / 3)


def test_nothing_measured_is_none():
    assert [f([]) for f in (stats.rate, stats.tau, stats.acceptance, stats.median, stats.round_ms)] == [None] * 5
    assert stats.bootstrap_interval([1.5]) is None
    assert stats.predicted_ms([], COSTS, None) is None
    assert stats.calibrated_speedup([], COSTS, None) is None


def test_the_interval_holds_the_median_and_repeats():
    values = list(np.random.default_rng(3).normal(1.2, 0.1, 40))
    low, high = stats.bootstrap_interval(values, seed=5)
    assert min(values) < low < stats.median(values) < high < max(values)
    assert stats.bootstrap_interval(values, seed=5) == (low, high)
    assert stats.bootstrap_interval([1.1] * 9) == (1.1, 1.1)


def test_the_interval_covers_the_true_median_about_as_often_as_it_says():
    rng = np.random.default_rng(11)
    covered = 0
    for trial in range(200):
        low, high = stats.bootstrap_interval(list(rng.normal(1.0, 0.2, 21)), seed=trial)
        covered += low <= 1.0 <= high
    assert 180 <= covered <= 199


def test_predicted_times_and_calibrated_speedup():
    """Two rounds of four rows and one of one row, three draft steps of 2 ms: (16 + 16 + 10 + 6) / 3 = 16 ms."""
    mode = run(9, 1, rounds=3, produced=9, widths=((1, 1), (4, 2)), draft_steps=3)
    assert stats.table_ms([mode], COSTS, 2.0) == 16
    assert stats.table_ms([replace(mode, draft_steps=0, head_ms=6.0)], COSTS, None) == 16
    assert stats.calibrated_speedup([mode], COSTS, 2.0) == pytest.approx(3 * 10 / 16)
    # Plain rounds took 20 ms where the table says 10: everything is expected to take twice its time.
    plain = run(5, 0.1, rounds=5, produced=5, widths=((1, 5),))
    assert stats.predicted_ms([Pair("p", (plain,), (mode,))], COSTS, 2.0) == pytest.approx(32)


def test_the_error_of_a_prediction_is_that_of_the_median_prompt():
    """By the table a round of four rows takes 16 ms and a plain one 10; here they take 20, 18 and 8, and 10."""
    plain = run(5, 0.05, rounds=5, produced=5, widths=((1, 5),))
    pairs = [
        Pair("p", (plain,), (run(8, ms / 500, rounds=2, produced=8, widths=((4, 2),)),)) for ms in (20.0, 18.0, 8.0)
    ]
    assert stats.prediction_error(pairs, COSTS, None) == pytest.approx(1 - 16 / 20)
    assert stats.prediction_error([], COSTS, None) is None


def test_the_spread_is_that_of_plain_runs_of_one_prompt():
    def plain(ms):
        return run(4, ms / 1000, rounds=1, produced=4)

    pairs = [Pair("p", (plain(a), plain(b)), ()) for a, b in ((10, 11), (12, 10), (30, 30))]
    assert stats.spread(pairs) == pytest.approx(0.1)
    assert stats.spread([Pair("q", (plain(10),), ())]) is None


def fixed_and_auto(ratios: dict[str, list[float]], costs_of: dict[str, int]) -> list[Cell]:
    """Cells of one workload. ratios: of each prompt to plain.  costs_of: rows of a mode's decodes, 2 tokens each."""
    plain = run(10, 1.0, rounds=10, produced=10, widths=((1, 10),))

    def of(mode: str, ratio: float) -> Pair:
        counted = run(10, 1.0 / ratio, rounds=5, produced=10, widths=((costs_of[mode], 5),))
        return Pair(f"p{len(pairs)}", (plain,), (counted,))

    cells = []
    for mode, values in ratios.items():
        pairs: list[Pair] = []
        for value in values:
            pairs.append(of(mode, value))
        cells.append(Cell("w", mode, 0.0, tuple(pairs)))
    return cells


def test_auto_is_compared_with_the_mode_that_counts_choose_on_prompts_it_has_not_seen():
    """By counts lookup:1 (decodes of 2 rows, 12 ms) beats lookup:3 (16 ms), whatever the clock says."""
    ratios = {"plain": [1.0] * 4, "auto": [9, 1.5, 9, 1.8], "lookup:1": [1, 1.0, 1, 1.2], "lookup:3": [5, 5, 5, 5]}
    cells = fixed_and_auto(ratios, {"plain": 1, "auto": 1, "lookup:1": 2, "lookup:3": 4})
    (found,) = against_fixed(cells, COSTS, None)
    assert (found.workload, found.mode) == ("w", "lookup:1")
    assert found.ratios == pytest.approx((1.5, 1.5))


def test_over_several_workloads_one_setting_is_compared_too():
    rows = {"auto": 1, "lookup:1": 2, "lookup:3": 4}
    one = fixed_and_auto({"auto": [1.0, 3.0], "lookup:1": [1.0, 1.5], "lookup:3": [1.0, 6.0]}, rows)
    two = [Cell("v", c.mode, 0.0, c.pairs) for c in one]
    found = against_fixed([*one, *two], COSTS, None)
    assert [(f.workload, f.mode, f.ratios) for f in found] == [
        ("w", "lookup:1", (2.0,)),
        ("v", "lookup:1", (2.0,)),
        ("all", "lookup:1", (2.0, 2.0)),
    ]


@pytest.mark.parametrize("modes", [("auto",), ("lookup:1",), ("plain", "auto")])
def test_without_auto_or_a_fixed_mode_nothing_is_compared(modes):
    cells = fixed_and_auto({mode: [1.0, 1.0] for mode in modes}, dict.fromkeys(modes, 1))
    assert against_fixed(cells, COSTS, None) == []


def test_one_prompt_is_not_enough_to_choose_and_to_compare():
    cells = fixed_and_auto({"auto": [1.0], "lookup:1": [1.0]}, {"auto": 1, "lookup:1": 2})
    assert against_fixed(cells, COSTS, None) == []
