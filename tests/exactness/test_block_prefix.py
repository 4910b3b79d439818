"""Block verification accepts a prefix with probability P_i over what may follow it, exactly.

Given one whole draft it may accept its first token less often than token rejection does, and another draft
more often; over the continuations the two balance to P_i, which is never below token rejection's product.
"""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from block_law import at_least_given_draft, by_block, by_token, prefix_weights
from edgespec.distribution import Distribution

V, K = 3, 3


def some_row(rng: random.Random) -> Distribution:
    counts = [rng.randint(0, 5) for _ in range(V)]
    counts[rng.randrange(V)] += 1
    ids = np.array([i for i, c in enumerate(counts) if c], dtype=np.int64)
    probs = np.array([Fraction(c, sum(counts)) for c in counts if c], dtype=object)
    return Distribution(ids, probs)


@pytest.mark.parametrize("seed", range(40))
def test_prefix_weight_is_the_acceptance_over_all_continuations(seed: int) -> None:
    rng = random.Random(seed)
    prefixes = [x for n in range(K + 1) for x in product(range(V), repeat=n)]
    p = {x: some_row(rng) for x in prefixes}
    q = {x: some_row(rng) for x in prefixes}
    for i in range(1, K + 1):
        for prefix in product(range(V), repeat=i):
            if not all(q[prefix[:j]].prob(prefix[j]) for j in range(i)):
                continue
            total: Fraction = Fraction(0)
            for rest in product(range(V), repeat=K - i):
                draft = (*prefix, *rest)
                chance = Fraction(1)
                for j in range(i, K):
                    chance *= q[draft[:j]].prob(draft[j])
                if not chance:
                    continue
                rows = [p[draft[:j]] for j in range(K + 1)], [q[draft[:j]] for j in range(K)]
                total += chance * at_least_given_draft(*rows, draft)[i - 1]
                assert by_block(*rows, draft) >= by_token(*rows, draft)
            path = [p[prefix[:j]] for j in range(i)], [q[prefix[:j]] for j in range(i)]
            assert total == prefix_weights(*path, prefix)[-1]


def test_given_one_whole_draft_block_may_accept_less() -> None:
    """So that is not what may be compared draft by draft."""
    half, third = Fraction(1, 2), Fraction(1, 3)
    ids = np.array([0, 1], dtype=np.int64)
    p = [Distribution(ids, np.array([half, half], dtype=object))] * 3
    q = [Distribution(ids, np.array([2 * third, third], dtype=object))] * 2
    assert sum(at_least_given_draft(p, q, (0, 0))) < by_token(p, q, (0, 0))
    assert by_block(p, q, (0, 0)) >= by_token(p, q, (0, 0))
