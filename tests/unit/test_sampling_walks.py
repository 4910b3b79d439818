"""Walks: what a drafted prefix changes, who sees it, and how little a grammar is asked."""

from __future__ import annotations

import numpy as np
import pytest
from sampling_reference import INF, OFF, Rule, allowed_after, check, prefix_language, rare, reference

from edgespec.errors import BadRequestError, EdgeSpecError
from edgespec.sampling import Sampler, SamplingParams


def test_a_penalty_on_a_drafted_token_shows_in_the_next_row_of_that_walk_only():
    sampler = Sampler(OFF.replace(presence_penalty=2.0), 3)
    row = np.zeros(3, dtype=np.float32)
    first, second = sampler.walk([]), sampler.walk([])
    flat = [1 / 3] * 3
    np.testing.assert_allclose(first.distribution(row).probs, flat)
    first.advance(1)
    lowered = np.exp([0, -2, 0]) / np.exp([0, -2, 0]).sum()
    np.testing.assert_allclose(first.distribution(row).probs, lowered)
    np.testing.assert_allclose(second.distribution(row).probs, flat)
    np.testing.assert_allclose(sampler.walk([]).distribution(row).probs, flat)
    np.testing.assert_allclose(sampler.walk([1]).distribution(row).probs, lowered)


def test_the_penalty_window_slides_over_drafted_tokens():
    walk = Sampler(OFF.replace(frequency_penalty=1.0, penalty_last_n=2), 4).walk([0, 3, 3])
    row = np.zeros(4, dtype=np.float32)
    for token, counts in [(1, [0, 1, 0, 1]), (2, [0, 1, 1, 0]), (2, [0, 0, 2, 0])]:
        walk.advance(token)
        weights = np.exp(-np.array(counts, dtype=float))
        np.testing.assert_allclose(walk.distribution(row).probs, weights / weights.sum())


def test_repeat_penalty_divides_positive_and_multiplies_negative_logits():
    walk = Sampler(OFF.replace(repeat_penalty=2.0), 4).walk([0, 0, 1])
    z = np.array([2, -2, 2, -2], dtype=np.float32)
    weights = np.exp([1, -4, 2, -2])
    np.testing.assert_allclose(walk.distribution(z).probs, weights / weights.sum())


def test_a_draft_samples_at_its_own_temperature_and_keeps_the_rest():
    sampler = Sampler(SamplingParams(temperature=0, top_k=2, logit_bias={0: -INF}), 4)
    row = np.array([9, 1, 2, 3], dtype=np.float32)
    assert sampler.greedy
    assert sampler.walk([]).distribution(row).ids.tolist() == [3]
    check(sampler.walk([], temperature=1.0).distribution(row), reference(row, sampler.params, 4, temperature=1.0))
    warm = Sampler(SamplingParams(temperature=1.0), 4)
    assert not warm.greedy
    assert warm.walk([], temperature=0).distribution(row).ids.tolist() == [0]


def test_walks_and_commits_do_not_see_each_other():
    sampler = Sampler(OFF, 7, Rule(prefix_language))
    row = np.zeros(7, dtype=np.float32)
    one, two = sampler.walk([]), sampler.walk([])
    one.advance(1)
    one.advance(2)
    assert one.distribution(row).ids.tolist() == [3, 4]
    assert two.distribution(row).ids.tolist() == [0, 1, 6]
    sampler.commit(1)
    assert two.distribution(row).ids.tolist() == [0, 1, 6]
    assert one.distribution(row).ids.tolist() == [3, 4]
    assert sampler.walk([1]).distribution(row).ids.tolist() == [2, 5]


def test_a_disallowed_token_never_reaches_the_grammar():
    sampler = Sampler(OFF, 7, Rule(prefix_language))  # Rule.advance fails on a disallowed token
    walk = sampler.walk([])
    assert not walk.allows(3)
    assert walk.allows(6)
    for refused in (lambda: walk.advance(3), lambda: sampler.commit(3)):
        with pytest.raises(EdgeSpecError, match="token 3"):
            refused()
    walk.advance(6)
    with pytest.raises(BadRequestError, match="leave no token"):
        walk.distribution(np.zeros(7, dtype=np.float32))


# --- how much of the vocabulary a grammar is asked about -------------------------------------------


@pytest.mark.parametrize(
    ("rule", "params", "most"),
    [
        (lambda _, token: token % 2 == 0, SamplingParams(), 64 + 1024),
        (lambda _, token: token % 2 == 0, SamplingParams(temperature=0), 1 + 64),
        (lambda _, token: token in (5, 9), SamplingParams(), 64 + 1024),  # strict: min-p drops the unseen
        (lambda _, token: token in (5, 9, 17_000), SamplingParams(temperature=0), 1 + 64),
    ],
)
def test_the_grammar_is_asked_about_few_tokens_where_few_decide(rule, params, most):
    row = np.random.default_rng(3).normal(0, 1, 20_000).astype(np.float32)
    row[[5, 9]] = [9.0, 8.5]
    row[17_000] = -4
    grammar = Rule(rule)
    result = Sampler(params, len(row), grammar).walk([]).distribution(row)
    assert sum(grammar.asked) <= most
    check(result, reference(row, params, len(row), (), allowed_after(rule)))


def test_unseen_tokens_that_could_move_the_nucleus_are_looked_up():
    # 0.95 of the seen mass is reached by the first token alone only if the 39 unseen are forgotten.
    row = np.full(20_000, -0.9, dtype=np.float32)
    row[1000:2200] = -0.5  # not permitted, but before all permitted ones except two
    row[[0, 1]] = [3.0, 0.0]
    params = SamplingParams(temperature=1, min_p=0.04)

    def rule(_, token):
        return not 1000 <= token < 2200

    expected = reference(row, params, len(row), (), allowed_after(rule))
    assert sorted(expected) == [0, 1]
    grammar = Rule(rule)
    check(Sampler(params, len(row), grammar).walk([]).distribution(row), expected)
    assert max(grammar.asked) == len(row)


def test_typical_reckons_with_permitted_tokens_beyond_the_first_candidates():
    row = np.full(20_000, -0.9, dtype=np.float32)
    row[1000:2200] = -0.5  # not permitted, but before all permitted ones except two
    row[[0, 1]] = [3.0, 0.0]
    params = SamplingParams(temperature=1, top_p=1, min_p=0.04, typical=0.7)

    def rule(_, token):
        return not 1000 <= token < 2200

    expected = reference(row, params, len(row), (), allowed_after(rule))
    assert sorted(expected) == [0, 1]  # of the two alone, typical would keep only 0
    check(Sampler(params, len(row), Rule(rule)).walk([]).distribution(row), expected)


@pytest.mark.parametrize("params", [SamplingParams(top_p=1), SamplingParams(), SamplingParams(top_k=0)])
def test_min_p_keeps_permitted_tokens_beyond_the_first_candidates(params):
    row = np.linspace(1, 0, 20_000, dtype=np.float32)
    expected = reference(row, params, len(row), (), allowed_after(rare))
    assert len(expected) > 30
    check(Sampler(params, len(row), Rule(rare)).walk([]).distribution(row), expected)


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(temperature=0), OFF])
def test_the_only_permitted_token_is_found_at_the_very_end(params):
    row = np.linspace(20, -20, 20_000, dtype=np.float32)
    walk = Sampler(params, len(row), Rule(lambda _, token: token == 19_999)).walk([])
    check(walk.distribution(row), {19_999: 1.0})
    assert walk.winner(row) == 19_999
