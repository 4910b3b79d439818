"""A slow reference for sampling: full sorts, float64, one token at a time; and grammars to test with."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import currently_in_test_context, reject

from edgespec.errors import BadRequestError
from edgespec.sampling import SamplingParams

INF = math.inf
OFF = SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0)
NEAR = 1e-9  # decisions closer than this to their bound may fall either way: rounding decides


def decided(clear):
    """Skip a generated case whose outcome rounding decides; such a case written by hand is a mistake."""
    if not clear:
        assert currently_in_test_context(), "too close to a bound"
        reject()


def adjusted(logits, params, vocab_size, tokens):
    """Logit bias, then llama.cpp's penalties, one token at a time."""
    z = [np.float32(x) for x in logits[:vocab_size]]
    for token, bias in params.logit_bias:
        if token < len(z):
            z[token] = np.float32(z[token] + np.float32(bias))
    n = params.penalty_last_n
    window = tokens if n < 0 else tokens[-n:] if n else []
    for token, count in Counter(window).items():
        if token < len(z):
            x = float(z[token])
            x = x / params.repeat_penalty if x > 0 else x * params.repeat_penalty
            z[token] = np.float32(x - count * params.frequency_penalty - params.presence_penalty)
    return [float(x) for x in z]


def smallest_prefix(ranking, p, mass):
    """The first of `ranking` whose probabilities reach `mass`."""
    total = 0.0
    for n, i in enumerate(ranking, 1):
        total += p[i]
        decided(abs(total - mass) > NEAR)
        if total >= mass:
            return ranking[:n]
    return ranking


def normalised(ranking, z, temperature):
    """{id: probability}, descending; what would underflow is left out."""
    top = max(z[i] for i in ranking)
    ranking = [i for i in ranking if (z[i] - top) / temperature >= -700]
    weights = {i: math.exp((z[i] - top) / temperature) for i in ranking}
    total = math.fsum(weights.values())
    return {i: w / total for i, w in weights.items()}


def reference(logits, params, vocab_size, tokens=(), allowed=lambda token: True, temperature=None):
    """{id: probability} after every stage; {} where no token is left."""
    z = adjusted(logits, params, vocab_size, list(tokens))
    ranking = sorted((i for i in range(len(z)) if z[i] > -INF and allowed(i)), key=lambda i: (-z[i], i))
    if not ranking:
        return {}
    t = params.temperature if temperature is None else temperature
    if t == 0:
        return {ranking[0]: 1.0}
    p = normalised(ranking[: params.top_k or None], z, t)
    if params.typical < 1:
        entropy = -math.fsum(x * math.log(x) for x in p.values())
        distance = {i: abs(-math.log(x) - entropy) for i, x in p.items()}
        order = sorted(p, key=lambda i: (distance[i], i))
        kept = smallest_prefix(order, p, params.typical)
        for i in kept[-1:]:
            decided(all(z[j] == z[i] or abs(distance[j] - distance[i]) > NEAR for j in order))
        p = normalised([i for i in p if i in set(kept)], z, t)
    if params.top_p < 1:
        p = normalised(smallest_prefix(list(p), p, params.top_p), z, t)
    bound = params.min_p * max(p.values())
    top = max(z[i] for i in p)
    decided(all(z[i] == top or abs(x - bound) > NEAR * bound for i, x in p.items()))
    return normalised([i for i, x in p.items() if x >= bound], z, t)


def check(distribution, expected):
    assert distribution.ids.dtype == np.int64
    assert distribution.probs.dtype == np.float64
    assert distribution.ids.tolist() == sorted(expected)
    probs = np.array([expected[i] for i in sorted(expected)])
    np.testing.assert_allclose(distribution.probs, probs, rtol=1e-9, atol=1e-300)
    assert abs(distribution.probs.sum() - 1) < 1e-12


def compare(walk, row, expected):
    """One row: the same distribution and winner, or the same refusal; the row is left alone."""
    before = row.copy()
    if not expected:
        with pytest.raises(BadRequestError, match="leave no token"):
            walk.distribution(row)
        return
    result = walk.distribution(row)
    assert np.array_equal(row, before)
    assert not np.shares_memory(result.probs, row)
    check(result, expected)


# --- fake grammars -------------------------------------------------------------------------------


class Rule:
    """Allows what `rule(history, id)` allows, counts what it is asked, and refuses a bad advance."""

    def __init__(self, rule, history=(), asked=None):
        self.rule, self.history = rule, tuple(history)
        self.asked = [] if asked is None else asked

    def mask(self, ids):
        self.asked.append(len(ids))
        return np.array([self.rule(self.history, int(i)) for i in ids], dtype=bool)

    def advance(self, token):
        assert self.rule(self.history, token), "advanced past a token that is not allowed"
        self.history += (token,)

    def clone(self):
        return Rule(self.rule, self.history, self.asked)


def alternating(history, token):
    """Parity changes with every token; any may come first."""
    return not history or (token - history[-1]) % 2 == 1


LANGUAGE = [(1, 2, 3), (1, 2, 4, 0), (1, 5), (6,), (0, 0, 0, 0)]


def prefix_language(history, token):
    return any(word[: len(history) + 1] == (*history, token) for word in LANGUAGE)


def rare(history, token):
    return (token + 7 * len(history)) % 97 == 0


def nothing(history, token):
    return False


def grammar_of(rule):
    return None if rule is None else Rule(rule)


def allowed_after(rule, history=()):
    return (lambda token: True) if rule is None else (lambda token: rule(tuple(history), token))
