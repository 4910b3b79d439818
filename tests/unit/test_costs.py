"""The table of decode times: between what was measured, padded to what is faster, and followed while it changes."""

from __future__ import annotations

import pytest

from edgespec.costs import Costs, CostTable

SAW = CostTable((1, 2, 3, 4, 6, 8), (10.0, 15.0, 18.0, 11.0, 16.0, 17.0))  # kernels that work on four rows at a time


def test_costs_follow_what_rounds_take() -> None:
    costs = Costs(CostTable((1, 2, 4), (10.0, 15.0, 18.0)))
    for _ in range(100):  # twice as slow at every width, as on a busy machine
        costs.observe(1, 20.0)
        costs.observe(2, 30.0)
    assert costs.at(1) == pytest.approx(20.0, rel=0.02)
    assert 18.0 * 1.4 < costs.at(4) <= 36.0 * 1.1  # not seen, but it is the same machine
    assert costs.drift == pytest.approx(2.0, rel=0.02)
    costs.observe(1, 20_000.0)
    assert costs.at(1) < 25.0


def test_a_table_interpolates_and_extends() -> None:
    table = CostTable((1, 2, 4), (10.0, 16.0, 20.0))
    assert [table.at(n) for n in (1, 2, 3, 4, 6)] == [10.0, 16.0, 18.0, 20.0, 24.0]
    assert CostTable((1,), (5.0,)).at(9) == 5.0


def test_narrow_decodes_are_padded_where_a_wider_one_is_faster() -> None:
    assert SAW.padding == {2: 4, 3: 4}  # 5 is not measured: nothing says that 6 is faster
    padded = SAW.padded()
    assert padded.widths == (1, 2, 3, 4, 5, 6, 7, 8)
    assert padded.ms == (10.0, 11.0, 11.0, 11.0, 13.5, 16.0, 16.5, 17.0)
    assert padded.padding == {}


def test_a_table_without_such_steps_is_not_padded() -> None:
    assert CostTable((1, 2, 4), (10.0, 16.0, 20.0)).padding == {}
    assert CostTable((1, 2), (10.0, 9.8)).padding == {}  # less than 3% is noise
    assert CostTable((1,), (5.0,)).padded() == CostTable((1,), (5.0,))


def test_growth_with_context_is_believed_up_to_some_depth() -> None:
    table = CostTable((1, 4), (10.0, 12.0), depth=100, growth=(0.01, 0.04), reach=1000)
    assert table.at(1) == table.at(1, 50) == table.at(1, 100) == 10.0
    assert table.at(1, 1100) == pytest.approx(20.0)
    assert table.at(4, 1100) == pytest.approx(52.0)
    assert table.at(2, 1100) == pytest.approx(10.0 + 2 / 3 + 20.0)
    assert table.at(1, 100_000) == table.at(1, 4000)
    assert SAW.at(4, 5000) == 11.0  # nothing is known of its growth


def test_a_padded_table_grows_like_the_width_that_is_run() -> None:
    table = CostTable((1, 2, 4), (10.0, 20.0, 12.0), depth=0, growth=(0.01, 0.02, 0.04), reach=1000)
    assert table.padded().at(2, 1000) == pytest.approx(52.0)


def test_costs_learn_at_the_depth_they_are_asked_for() -> None:
    """Time that growth explains is no drift of the machine."""
    costs = Costs(CostTable((1, 4), (10.0, 12.0), depth=0, growth=(0.01, 0.01), reach=1000))
    for _ in range(50):
        costs.observe(1, 20.0, 1000)
    assert costs.drift == pytest.approx(1.0)
    assert costs.at(4, 1000) == pytest.approx(22.0)
