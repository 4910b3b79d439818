"""The log-softmax of a token, whatever the size of the logits."""

from __future__ import annotations

import numpy as np
import pytest

from edgespec.generation import log_probability


@pytest.mark.parametrize("shift", [0.0, 30.0, 80.0, 500.0, 1e4, -40.0, -60.0, -500.0, -1e4])
@pytest.mark.parametrize("spread", [0.0, 3.0, 60.0])
def test_it_is_exact_for_small_and_large_logits(shift, spread):
    rng = np.random.default_rng(1)
    row = (shift + spread * rng.normal(size=5_000)).astype(np.float32)
    row[7] = row.max() + np.float32(spread)
    exact = row.astype(np.float64)
    exact -= exact.max() + np.log(np.exp(exact - exact.max()).sum())
    for token in (7, 0, int(row.argmin())):
        found = log_probability(row, token)
        assert found <= 0
        assert found == pytest.approx(exact[token], rel=1e-5, abs=1e-5)


def test_a_sure_token_is_not_more_than_sure():
    """Exponentials are rounded, up or down."""
    for top in np.linspace(1, 40, 200, dtype=np.float32):
        row = np.full(1_000, top - 60, np.float32)
        row[7] = top
        assert -1e-6 < log_probability(row, 7) <= 0


def test_a_token_that_is_impossible():
    row = np.array([3.0, -np.inf, 1.0], np.float32)
    assert log_probability(row, 1) == -np.inf
