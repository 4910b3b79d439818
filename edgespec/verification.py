"""Verifiers: which drafted tokens to keep so that the output has exactly the target's law.

Pure functions of a draft and the target's distributions. They use only arithmetic and comparisons, so
tests/exactness runs this very code on `fractions.Fraction` with symbolic uniforms and proves, by
enumeration, that no distribution can make the output differ from plain sampling.

Target rows are given as a lazy sequence: computing element i is the expensive part of a round, so a
verifier indexes only the rows it needs, in ascending order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .distribution import Distribution, Number, Uniforms
from .errors import EdgeSpecError


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a round produced.

    tokens: the accepted drafted tokens, then exactly one more: a correction drawn from the residual
    after a rejection, or the bonus token when all were accepted.  accepted: how many were drafted.
    """

    tokens: tuple[int, ...]
    accepted: int


def verify_token(
    drafted: Sequence[int],
    proposals: Sequence[Distribution],
    targets: Sequence[Distribution],
    rng: Uniforms,
) -> Verdict:
    """Token-level rejection: keep x_i with probability min(1, p_i(x_i) / q_i(x_i)), stop at the first rejection.

    drafted: K ids.  proposals: K distributions, each the one its token was drawn from.  targets: K + 1
    distributions, row i conditioned on drafted[:i]; read lazily, none after a rejection.
    Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318.
    """
    for i, token in enumerate(drafted):
        target = targets[i]
        if not rng.random() < _ratio(token, proposals[i], target):
            # Rows after this one are conditioned on the rejected token: nothing may be read from them.
            return Verdict((*drafted[:i], target.residual(proposals[i]).sample(rng)), i)
    return Verdict((*drafted, targets[len(drafted)].sample(rng)), len(drafted))


def verify_block(
    drafted: Sequence[int],
    proposals: Sequence[Distribution],
    targets: Sequence[Distribution],
    rng: Uniforms,
) -> Verdict:
    """Block verification: accept the longest prefix that passes its own test; then correction or bonus.

    Arguments as for `verify_token`, whose expected number of accepted tokens it never falls below, for the
    same output law. It reads all rows unless a drafted token is impossible under the target.
    Sun et al., arXiv 2403.10444, algorithm 2.
    """
    # Given the draft, one-hot proposals have the same verdicts under both rules, and `verify_token` reads
    # fewer rows. Short drafts must NOT go there: where a draft may end early on a drawn value (an end token,
    # a drafter's stopping rule), the rule would depend on that value, and a mixture of the two is not exact.
    if all(len(q.ids) == 1 for q in proposals):
        return verify_token(drafted, proposals, targets, rng)
    last = len(drafted)
    weight: Number = 1  # P_i of the paper: min(1, P_{i-1} * p_i(x_i) / q_i(x_i))
    kept, kept_weight = 0, weight
    for i, token in enumerate(drafted, start=1):
        weight = min(1, weight * _ratio(token, proposals[i - 1], targets[i - 1]))
        if weight == 0:
            break  # this prefix and all longer ones are accepted with probability 0
        # No early stop at a failed test: a longer prefix may still be accepted.
        if rng.random() < (weight if i == last else _prefix_acceptance(weight, proposals[i], targets[i])):
            kept, kept_weight = i, weight
    target = targets[kept]
    final = target if kept == last else target.residual(proposals[kept], kept_weight)
    return Verdict((*drafted[:kept], final.sample(rng)), kept)


def verify_greedy(drafted: Sequence[int], winners: Sequence[int]) -> Verdict:
    """Temperature 0: keep drafted tokens while each is the target's own choice.

    winners: K + 1 ids, element i the target's choice after drafted[:i]; read lazily, none after a mismatch.
    """
    for i, token in enumerate(drafted):
        winner = winners[i]
        if token != winner:
            return Verdict((*drafted[:i], winner), i)
    return Verdict((*drafted, winners[len(drafted)]), len(drafted))


def verify_seed(
    drafted: Sequence[int], targets: Sequence[Distribution], choose: Callable[[Distribution, int], int]
) -> Verdict:
    """Seed-exact: keep drafted tokens while each is what the target chooses there with the seed's noise.

    targets: K + 1 distributions, read lazily, none after a mismatch.  choose(targets[i], i): the target's
    token, which must not depend on the draft. An accept test u < p/q has no place here: with noise that
    the drafter shares it is biased (tests/exactness/test_shared_noise.py).
    """
    for i, token in enumerate(drafted):
        chosen = choose(targets[i], i)
        if token != chosen:
            return Verdict((*drafted[:i], chosen), i)
    return Verdict((*drafted, choose(targets[len(drafted)], len(drafted))), len(drafted))


def _ratio(token: int, proposal: Distribution, target: Distribution) -> Number:
    """p(token) / q(token)."""
    q = proposal.prob(token)
    if not q > 0:
        raise EdgeSpecError(
            f"the proposal gives drafted token {token} probability {q}; "
            "a drafter must report the distribution it drew the token from"
        )
    return target.prob(token) / q


def _prefix_acceptance(weight: Number, proposal: Distribution, target: Distribution) -> Number:
    """h_i of arXiv 2403.10444 for i < K: S / (S + 1 - P), with S the mass of max(P * p - q, 0)."""
    mass = target.excess(proposal, weight)
    rest = mass + 1 - weight
    return mass / rest if rest > 0 else 1  # 0/0: P = 1 and q covers p, so the next token decides


Verifier = Callable[[Sequence[int], Sequence[Distribution], Sequence[Distribution], Uniforms], Verdict]

VERIFIERS: dict[str, Verifier] = {"token": verify_token, "block": verify_block}
"""Rules that weigh p against q, by the name that `verify=` and --verify know them by."""

SEED = "seed"
"""The one more name they accept, for `verify_seed`. At temperature 0 `verify_greedy` serves all names."""
