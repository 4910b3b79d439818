"""Expected accepted tokens of one drafted path under each rule: what tests compare on exact and on real rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgespec.distribution import Distribution

Rows = Sequence[Distribution]


def by_token(p: Rows, q: Rows, drafted: Sequence[int]) -> Any:
    """E[accepted] of token rejection: sum over i of prod_{j<=i} min(1, p_j / q_j)."""
    total: Any = 0
    alive: Any = 1
    for i, x in enumerate(drafted):
        alive *= min(1, p[i].prob(x) / q[i].prob(x))
        total += alive
    return total


def prefix_weights(p: Rows, q: Rows, drafted: Sequence[int]) -> list[Any]:
    """P_i of block verification (arXiv 2403.10444): the probability that at least i tokens are accepted, given
    x_1..x_i and over all that may be drafted after them."""
    weights: list[Any] = []
    weight: Any = 1
    for i, x in enumerate(drafted):
        weight = min(1, weight * p[i].prob(x) / q[i].prob(x))
        weights.append(weight)
    return weights


def by_block(p: Rows, q: Rows, drafted: Sequence[int]) -> Any:
    """E[accepted] of block verification, each prefix over its possible continuations."""
    return sum(prefix_weights(p, q, drafted))


def at_least_given_draft(p: Rows, q: Rows, drafted: Sequence[int]) -> list[Any]:
    """[i]: probability that block verification accepts more than i tokens of exactly this draft."""
    weights, k = prefix_weights(p, q, drafted), len(drafted)
    heads = []
    for i, weight in enumerate(weights):
        if i == k - 1:
            heads.append(weight)
        else:
            rest = p[i + 1].excess(q[i + 1], weight)
            heads.append(1 if rest + 1 - weight == 0 else rest / (rest + 1 - weight))
    found: list[Any] = []
    missed: Any = 1
    for head in reversed(heads):
        missed *= 1 - head
        found.append(1 - missed)
    return found[::-1]
