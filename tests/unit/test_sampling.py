"""Walk.distribution against a slow reference, stage by stage; ties, bounds, and rows that do not fit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sampling_reference import (
    INF,
    OFF,
    Rule,
    adjusted,
    allowed_after,
    alternating,
    compare,
    grammar_of,
    nothing,
    prefix_language,
    rare,
    reference,
)

from edgespec.errors import BadRequestError, DecodeError
from edgespec.sampling import Sampler, SamplingParams
from edgespec.stages import largest, leading

# --- strategies ----------------------------------------------------------------------------------


@st.composite
def rows(draw, largest_size=40):
    """Short rows of few distinct values (ties), wide values, and -inf."""
    some = st.one_of(
        st.sampled_from([-INF, -3.0, 0.0, 0.5, 2.0]),
        st.floats(-40, 40, width=32),
    )
    return np.array(draw(st.lists(some, min_size=1, max_size=largest_size)), dtype=np.float32)


@st.composite
def long_rows(draw):
    """Rows long enough for block selection, smooth or with many ties, some entries banned."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = draw(st.integers(1000, 6000))
    row = rng.normal(0, draw(st.sampled_from([0.0, 0.01, 1.0, 4.0])), n)
    step = draw(st.sampled_from([0, 0.5, 3]))
    if step:
        row = np.round(row / step) * step
    row[rng.random(n) < draw(st.sampled_from([0.0, 0.2, 0.999]))] = -INF
    row[draw(st.integers(0, n - 1))] = draw(st.sampled_from([0.0, 5.0, 30.0]))
    return row.astype(np.float32)


truncations = {
    "temperature": st.sampled_from([1e-6, 0.3, 0.8, 1, 1.7, 50, 1e6]),
    "top_k": st.sampled_from([0, 0, 1, 3, 8, 40, 300, 10**6]),
    "top_p": st.sampled_from([1, 1, 0.999, 0.95, 0.6, 0.25, 1e-6]),
    "min_p": st.sampled_from([0, 0, 0.001, 0.05, 0.4, 1]),
    "typical": st.sampled_from([1, 1, 0.95, 0.5, 0.2]),
}
adjustments = {
    "repeat_penalty": st.sampled_from([1, 1.3, 0.7]),
    "frequency_penalty": st.sampled_from([0, 0.4, -0.2]),
    "presence_penalty": st.sampled_from([0, 0.6]),
    "penalty_last_n": st.sampled_from([-1, 0, 1, 3, 64]),
    "logit_bias": st.dictionaries(st.integers(0, 7), st.sampled_from([-INF, -2.5, 1.25, 100.0]), max_size=4),
}
truncating = st.builds(SamplingParams, **truncations)
everything = st.builds(SamplingParams, **truncations, **adjustments)
token_lists = st.lists(st.integers(0, 12), max_size=10)
rules = st.sampled_from([None, alternating, prefix_language, rare, nothing])
thorough = settings(max_examples=400, deadline=None)


# --- laws ----------------------------------------------------------------------------------------


@thorough
@given(rows(), everything, token_lists, rules, st.integers(8, 50))
def test_every_combination_of_stages_equals_the_reference(row, params, tokens, rule, vocab_size):
    walk = Sampler(params, vocab_size, grammar_of(rule)).walk(tokens)
    z = adjusted(row, params, vocab_size, tokens)
    assume(max(z) > -INF)
    compare(walk, row, reference(row, params, vocab_size, tokens, allowed_after(rule)))


@settings(max_examples=150, deadline=None)
@given(long_rows(), truncating, rules)
def test_long_rows_equal_the_reference(row, params, rule):
    walk = Sampler(params, len(row), grammar_of(rule)).walk([])
    compare(walk, row, reference(row, params, len(row), (), allowed_after(rule)))


@thorough
@given(rows(), everything, token_lists, rules)
def test_the_winner_and_temperature_0_equal_the_reference(row, params, tokens, rule):
    params = params.replace(temperature=0)
    walk = Sampler(params, 40, grammar_of(rule)).walk(tokens)
    assume(max(adjusted(row, params, 40, tokens)) > -INF)
    expected = reference(row, params, 40, tokens, allowed_after(rule))
    compare(walk, row, expected)
    if expected:
        assert walk.winner(row) == next(iter(expected))


@thorough
@given(st.lists(rows(), min_size=4, max_size=4), everything, token_lists, rules, st.data())
def test_every_drafted_prefix_has_its_own_distribution(four, params, tokens, rule, data):
    sampler = Sampler(params, 40, grammar_of(rule))
    walk = sampler.walk(tokens)
    drafted = []
    for row in four:
        expected = reference(row, params, 40, tokens + drafted, allowed_after(rule, drafted))
        assume(max(adjusted(row, params, 40, tokens + drafted)) > -INF)
        compare(walk, row, expected)
        if not expected:
            return
        token = data.draw(st.sampled_from(sorted(expected)))
        assert walk.allows(token)
        walk.advance(token)
        drafted.append(token)
    # A new walk knows nothing of what was drafted, whether it is used before or after the old one.
    compare(sampler.walk(tokens), four[0], reference(four[0], params, 40, tokens, allowed_after(rule)))
    sampler.commit(drafted[0])
    after = reference(four[1], params, 40, tokens + drafted[:1], allowed_after(rule, drafted[:1]))
    compare(sampler.walk(tokens + drafted[:1]), four[1], after)


@settings(deadline=None)
@given(long_rows(), st.one_of(st.integers(1, 90), st.integers(1, 7000)))
def test_largest_keeps_exactly_k_and_the_lowest_positions_of_a_tie(row, k):
    expected = sorted(sorted(range(len(row)), key=lambda i: (-row[i], i))[:k])
    assert largest(row, k).tolist() == expected


@pytest.mark.parametrize("n", [4000, 4096, 4097, 4159])
def test_largest_sees_every_position_up_to_the_last(n):
    for best in (0, 1, n // 2, n - 64, n - 2, n - 1):
        row = np.zeros(n, dtype=np.float32)
        row[best] = 1
        assert largest(row, 1).tolist() == [best]
        assert largest(row, 2).tolist() == sorted({best, 0 if best else 1})


@settings(deadline=None)
@given(long_rows(), st.floats(1e-6, 1.2))
def test_leading_is_the_smallest_group_that_reaches_the_mass(row, share):
    weights = np.ones(len(row))  # small whole numbers: sums are exact in any order
    mass = share * len(row)
    ranking = sorted(range(len(row)), key=lambda i: (-row[i], i))
    expected = sorted(ranking[: max(1, math.ceil(mass))])
    assert leading(row, weights, mass).tolist() == expected


@pytest.mark.parametrize("mass", [1, 1023, 1024, 1025, 2999, 3000, 3001, 4500, 5999, 6000])
def test_leading_stops_on_the_very_entry_that_reaches_the_mass(mass):
    score = np.random.default_rng(1).permutation(6000).astype(np.float32)
    assert leading(score, np.ones(6000), mass).tolist() == np.flatnonzero(score >= 6000 - mass).tolist()


# --- ties and bounds, where the reference steps aside ----------------------------------------------


@pytest.mark.parametrize(("top_p", "kept"), [(0.25, [0]), (0.26, [0, 1]), (0.5, [0, 1]), (0.75, [0, 1, 2])])
def test_top_p_reaches_its_mass_exactly_and_takes_the_lowest_ids(top_p, kept):
    row = np.zeros(4, dtype=np.float32)
    assert Sampler(OFF.replace(top_p=top_p), 4).walk([]).distribution(row).ids.tolist() == kept


@pytest.mark.parametrize("top_k", [0, 10])
@pytest.mark.parametrize(("min_p", "kept"), [(1, [1, 3]), (0.5, [1, 3]), (0.3, [1, 2, 3]), (1e-9, [0, 1, 2, 3])])
def test_min_p_keeps_ties_together_and_the_maxima_always(min_p, kept, top_k):
    row = np.array([0, 5, 4, 5], dtype=np.float32)
    assert Sampler(OFF.replace(min_p=min_p, top_k=top_k), 4).walk([]).distribution(row).ids.tolist() == kept


def test_typical_may_drop_the_most_probable_token():
    row = np.log(np.array([0.4] + [0.06] * 10)).astype(np.float32)  # entropy ln 9.8; surprises ln 2.5, ln 16.7
    ids = Sampler(OFF.replace(typical=0.29), 11).walk([]).distribution(row).ids
    assert ids.tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("n", [1, 3, 151_936])
@pytest.mark.parametrize("params", [SamplingParams(), OFF, OFF.replace(top_p=0.5), OFF.replace(typical=0.5)])
def test_all_logits_equal(n, params):
    probs = Sampler(params, n).walk([]).distribution(np.full(n, -7.25, dtype=np.float32)).probs
    kept = min(n, params.top_k or n)
    share = params.top_p if params.top_k == 0 and params.typical == 1 else 1
    expected = math.ceil(kept * 0.95) if params == SamplingParams() else math.ceil(n * min(share, params.typical))
    assert len(probs) == expected
    np.testing.assert_allclose(probs, 1 / expected, rtol=1e-12)


@pytest.mark.parametrize("temperature", [1e-300, 1e-6, 1e6, 1e300])
@pytest.mark.parametrize("params", [SamplingParams(), OFF, OFF.replace(min_p=0.1), OFF.replace(top_p=0.9, typical=0.9)])
def test_extreme_temperatures_neither_overflow_nor_lose_mass(temperature, params):
    row = np.array([3e38, -3e38, 1.0, -INF, 3e38], dtype=np.float32)
    result = Sampler(params.replace(temperature=temperature), 5).walk([]).distribution(row)
    assert abs(result.probs.sum() - 1) < 1e-12
    assert set(result.ids.tolist()) <= {0, 1, 2, 4}
    if temperature < 1:
        assert result.ids.tolist() == [0, 4]


# --- rows that do not fit, bad rows, bans ----------------------------------------------------------


def test_a_row_longer_than_the_vocabulary_is_cut_even_before_its_maximum():
    row = np.array([1, 2, 0, 99, np.nan], dtype=np.float32)
    walk = Sampler(SamplingParams(min_p=0, top_p=1), vocab_size=3).walk([])
    assert walk.winner(row) == 1
    assert walk.distribution(row).ids.tolist() == [0, 1, 2]
    assert not walk.allows(3)
    assert not walk.allows(-1)


def test_a_row_shorter_than_the_vocabulary_leaves_the_rest_at_0():
    params = OFF.replace(logit_bias={1: 1.0, 8: 5.0}, presence_penalty=1.0)
    walk = Sampler(params, vocab_size=10).walk([9, 0])
    result = walk.distribution(np.zeros(3, dtype=np.float32))
    assert result.ids.tolist() == [0, 1, 2]
    assert result.prob(8) == 0
    np.testing.assert_allclose(np.log(result.probs), np.log(result.probs[2]) + np.array([-1, 1, 0]), rtol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, INF])
@pytest.mark.parametrize("at", [0, 3000, 4999])
@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(temperature=0), OFF])
@pytest.mark.parametrize("grammar", [None, Rule(nothing)])
def test_nan_and_infinite_logits_are_decode_errors(bad, at, params, grammar):
    row = np.linspace(-5, 5, 5000, dtype=np.float32)
    row[at] = bad
    walk = Sampler(params, 5000, grammar).walk([])
    for call in (walk.distribution, walk.winner):
        with pytest.raises(DecodeError, match=r"logit of (nan|inf)") as caught:
            call(row)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(temperature=0), OFF, OFF.replace(typical=0.5)])
def test_banning_every_token_is_a_bad_request(params):
    walk = Sampler(params.replace(logit_bias={0: -INF, 1: -INF}), 2).walk([])
    for call in (walk.distribution, walk.winner):
        with pytest.raises(BadRequestError, match="leave no token"):
            call(np.zeros(2, dtype=np.float32))


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(temperature=0), OFF])
def test_a_grammar_and_a_bias_that_exclude_each_other_are_a_bad_request(params):
    walk = Sampler(params.replace(logit_bias={97: -INF}), 100, Rule(lambda _, token: token == 97)).walk([])
    for call in (walk.distribution, walk.winner):
        with pytest.raises(BadRequestError, match="leave no token"):
            call(np.zeros(100, dtype=np.float32))


def test_the_distribution_outlives_its_row():
    row = np.zeros(50, dtype=np.float32)
    for params in (OFF, SamplingParams(), OFF.replace(top_p=0.5), OFF.replace(min_p=0.5)):
        result = Sampler(params, 50).walk([]).distribution(row)
        saved = result.ids.copy(), result.probs.copy()
        row[:] = np.arange(50)
        Sampler(params, 50).walk([]).distribution(row)
        assert np.array_equal(result.ids, saved[0])
        assert np.array_equal(result.probs, saved[1])
        row[:] = 0
