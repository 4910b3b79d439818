"""Every known way to break exactness in a round, as a mutant: the check that ours passes must fail on it.

`violation` (enumeration.py) is the same for both. Faults of the loop around a round (end tokens, stale
cache, penalties of a real Sampler) are in test_loop_mutants.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest
from enumeration import (
    Branches,
    Case,
    Drafted,
    Drafting,
    Table,
    Tokens,
    Verify,
    distribution,
    outcomes,
    output_law,
    sampled,
    target_law,
    violation,
    with_rows,
)

from edgespec.distribution import Distribution
from edgespec.errors import EdgeSpecError
from edgespec.verification import Verdict, verify_block, verify_token

OURS = {"token": with_rows(verify_token), "block": with_rows(verify_block)}


def rows(*weights: list[int]) -> Table:
    """A prefix picks one of the given rows."""
    made = [distribution(w, drop_zeros=True) for w in weights]
    return lambda prefix: made[sum((i + 1) * (t + 1) for i, t in enumerate(prefix)) % len(made)]


CASES = {
    f"k={k}, {name}": Case(3, k, p, q)
    for k in (1, 2, 3)
    for name, p, q in (
        ("dense", rows([1, 2, 3], [3, 1, 1], [1, 1, 4]), rows([3, 2, 1], [1, 1, 1], [2, 5, 1])),
        ("zeros", rows([0, 2, 3], [3, 1, 0], [1, 0, 4]), rows([3, 2, 0], [1, 0, 1], [2, 0, 1])),
        ("one-hot draft", rows([1, 2, 3], [3, 1, 1]), rows([0, 1, 0], [1, 0, 0])),
    )
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("verifier", OURS)
def test_ours_is_exact(verifier: str, name: str) -> None:
    assert violation(CASES[name], OURS[verifier]) is None


# ---- faults of the verifier ----------------------------------------------------------------------------


def bonus_instead_of_correction(case: Case, draft: Drafted, rng: Branches) -> Verdict:
    verdict = verify_token(draft.tokens, draft.proposals, case.targets(draft.tokens), rng)
    if verdict.accepted == len(draft.tokens):
        return verdict
    return Verdict(
        (*draft.tokens[: verdict.accepted], case.targets(draft.tokens)[verdict.accepted + 1].sample(rng)),
        verdict.accepted,
    )


def missing_bonus(case: Case, draft: Drafted, rng: Branches) -> Verdict:
    verdict = verify_token(draft.tokens, draft.proposals, case.targets(draft.tokens), rng)
    return Verdict(draft.tokens, verdict.accepted) if verdict.accepted == len(draft.tokens) else verdict


def with_correction(correct: Callable[[Distribution, Distribution, Branches], int]) -> Verify:
    """Token rejection with another way to make the correction after a rejection."""

    def verify(case: Case, draft: Drafted, rng: Branches) -> Verdict:
        targets = case.targets(draft.tokens)
        for i, token in enumerate(draft.tokens):
            if not rng.random() < targets[i].prob(token) / draft.proposals[i].prob(token):
                return Verdict((*draft.tokens[:i], correct(targets[i], draft.proposals[i], rng)), i)
        return Verdict((*draft.tokens, targets[-1].sample(rng)), len(draft.tokens))

    return verify


def residual_not_renormalised(p: Distribution, q: Distribution, rng: Branches) -> int:
    """Inverts the cumulative sum of max(p - q, 0) although it does not reach 1."""
    u = rng.random()
    total = Fraction(0)
    for token in p.ids:
        total += max(p.prob(token) - q.prob(token), 0)
        if u < total:
            return int(token)
    return int(p.ids[-1])


def residual_by_index(p: Distribution, q: Distribution, rng: Branches) -> int:
    """Subtracts entry i of the list q from entry i of the list p, whatever tokens they stand for."""
    q_probs = [*q.probs, *[Fraction(0)] * len(p.ids)][: len(p.ids)]
    rest = [max(a - b, Fraction(0)) for a, b in zip(p.probs, q_probs, strict=True)]
    return int(p.ids[distribution(rest).sample(rng)]) if any(rest) else p.sample(rng)


def residual_ignored(p: Distribution, _q: Distribution, rng: Branches) -> int:
    return p.sample(rng)


def with_acceptance(accept: Callable[[Distribution, Distribution, int, Branches], bool]) -> Verify:
    """Token rejection with another test."""

    def verify(case: Case, draft: Drafted, rng: Branches) -> Verdict:
        targets = case.targets(draft.tokens)
        for i, token in enumerate(draft.tokens):
            if not accept(targets[i], draft.proposals[i], token, rng):
                return Verdict((*draft.tokens[:i], targets[i].residual(draft.proposals[i]).sample(rng)), i)
        return Verdict((*draft.tokens, targets[-1].sample(rng)), len(draft.tokens))

    return verify


def with_targets(wrong: Callable[[Case, Tokens], Sequence[Distribution]]) -> Verify:
    """Our verifier, given other target rows than those of the law."""
    return lambda case, draft, rng: verify_token(draft.tokens, draft.proposals, wrong(case, draft.tokens), rng)


def block_variant(*, early_stop: bool = False, scale: bool = True, carry: bool = True, slack: bool = True) -> Verify:
    """Block verification with one ingredient changed."""

    def verify(case: Case, draft: Drafted, rng: Branches) -> Verdict:
        x, q, p, k = draft.tokens, draft.proposals, case.targets(draft.tokens), len(draft.tokens)
        weights = [Fraction(1)]
        tau = 0
        for i in range(1, k + 1):
            before = weights[-1] if carry else Fraction(1)
            weights.append(min(Fraction(1), before * p[i - 1].prob(x[i - 1]) / q[i - 1].prob(x[i - 1])))
            threshold = weights[i]
            if i < k:
                mass = p[i].excess(q[i], weights[i])
                rest = mass + 1 - weights[i] if slack else Fraction(1)
                threshold = mass / rest if rest else Fraction(1)
            if rng.random() < threshold:
                tau = i
            elif early_stop:
                break
        last = p[tau] if tau == k else p[tau].residual(q[tau], weights[tau] if scale else 1)
        return Verdict((*x[:tau], last.sample(rng)), tau)

    return verify


VERIFIERS: dict[str, Verify] = {
    "bonus row instead of the correction": bonus_instead_of_correction,
    "missing bonus": missing_bonus,
    "residual not renormalised": with_correction(residual_not_renormalised),
    "residual by list index": with_correction(residual_by_index),
    "correction from p, not the residual": with_correction(residual_ignored),
    "accept where the target's sample equals the draft": with_acceptance(lambda p, _q, x, rng: p.sample(rng) == x),
    "accept with p(x) although q was sampled": with_acceptance(lambda p, _q, x, rng: rng.random() < p.prob(x)),
    "accept the ratio upside down": with_acceptance(
        lambda p, q, x, rng: p.prob(x) == 0 or rng.random() < q.prob(x) / p.prob(x)
    ),
    "accept the draft's likely tokens": with_acceptance(lambda p, _q, x, _rng: p.prob(x) >= Fraction(1, 4)),
    "rows off by one": with_targets(lambda case, x: [*case.targets(x)[1:], case.targets(x)[-1]]),
    "block: stop at the first failed test": block_variant(early_stop=True),
    "block: residual without the weight P": block_variant(scale=False),
    "block: P not carried along the prefix": block_variant(carry=False),
    "block: acceptance without its normaliser": block_variant(slack=False),
}


def test_the_block_variant_unchanged_is_exact() -> None:
    """So that its mutants fail for their one change."""
    assert all(violation(case, block_variant()) is None for case in CASES.values())


def test_a_bonus_after_a_rejection_is_caught() -> None:
    """The extra token comes from a row conditioned on the rejected one: wrong as a verdict and as a law."""

    def bonus_after_rejection(case: Case, draft: Drafted, rng: Branches) -> Verdict:
        verdict = verify_token(draft.tokens, draft.proposals, case.targets(draft.tokens), rng)
        if verdict.accepted == len(draft.tokens):
            return verdict
        extra = case.targets(draft.tokens)[verdict.accepted + 1].sample(rng)
        return Verdict((*verdict.tokens, extra), verdict.accepted)

    case = CASES["k=1, dense"]
    assert violation(case, bonus_after_rejection)
    law = outcomes(lambda rng: bonus_after_rejection(case, sampled(case, rng), rng))
    assert output_law(case, law) != target_law(case, 2)


@pytest.mark.parametrize("name", VERIFIERS)
def test_verifier_mutant_is_caught(name: str) -> None:
    assert any(violation(case, VERIFIERS[name]) for case in CASES.values())


# ---- faults of the drafter: what it reports is not what it drew from -------------------------------------


def drawing(draw: Callable[[Distribution], Distribution], report: Callable[[Distribution], Distribution]) -> Drafting:
    """Draws from draw(q), reports report(q)."""

    def drafting(case: Case, rng: Branches) -> Drafted:
        tokens: Tokens = ()
        proposals: list[Distribution] = []
        for _ in range(case.k):
            q = case.q(tokens)
            tokens += (draw(q).sample(rng),)
            proposals.append(report(q))
        return Drafted(tokens, tuple(proposals))

    return drafting


def same(q: Distribution) -> Distribution:
    return q


def top_2(q: Distribution) -> Distribution:
    """Top-k 2, renormalised."""
    kept = sorted(np.argsort([-float(x) for x in q.probs], kind="stable")[:2])
    return Distribution(q.ids[kept], q.probs[kept] / q.probs[kept].sum())


def half_temperature(q: Distribution) -> Distribution:
    """Temperature 1/2: squares, renormalised (rational, so enumeration stays exact)."""
    return Distribution(q.ids, q.probs**2 / (q.probs**2).sum())


def greedy(q: Distribution) -> Distribution:
    return distribution([int(t == q.top()) for t in range(int(q.ids[-1]) + 1)])


HONEST: dict[str, Drafting] = {
    "plain": sampled,
    "drawn and reported after top-k": drawing(top_2, top_2),
    "drawn and reported at temperature 1/2": drawing(half_temperature, half_temperature),
    "greedy, reported one-hot": drawing(greedy, greedy),
}
DISHONEST: dict[str, Drafting] = {
    "q before top-k, drawn after": drawing(top_2, same),
    "temperature on the draw only": drawing(half_temperature, same),
    "temperature on the report only": drawing(same, half_temperature),
    "greedy draft scored as sampled": drawing(greedy, same),
}


@pytest.mark.parametrize("name", HONEST)
@pytest.mark.parametrize("verifier", OURS)
def test_honest_drafting_is_exact(verifier: str, name: str) -> None:
    assert all(violation(case, OURS[verifier], HONEST[name]) is None for case in CASES.values())


@pytest.mark.parametrize("name", DISHONEST)
@pytest.mark.parametrize("verifier", OURS)
def test_dishonest_drafting_is_caught(verifier: str, name: str) -> None:
    assert any(violation(case, OURS[verifier], DISHONEST[name]) for case in CASES.values() if "one-hot" not in name)


def test_q_after_truncation_but_drawn_before_is_caught() -> None:
    """The reported q is 0 for some drawn tokens. Ours refuses; guessing either way is measurably wrong."""
    case, drafting = CASES["k=1, dense"], drawing(same, top_2)
    with pytest.raises(EdgeSpecError, match="distribution it drew the token from"):
        violation(case, OURS["token"], drafting)
    lenient = with_acceptance(lambda p, q, x, rng: q.prob(x) == 0 or rng.random() < p.prob(x) / q.prob(x))
    assert violation(case, lenient, drafting)
    strict = with_acceptance(lambda p, q, x, rng: q.prob(x) > 0 and rng.random() < p.prob(x) / q.prob(x))
    assert violation(case, strict, drafting)


def dropping(limit: Fraction, before_drawing: bool) -> Drafting:
    """Stops at low confidence: judged by max q before drawing (exact), or by q(x) of the drawn token (biased)."""

    def drafting(case: Case, rng: Branches) -> Drafted:
        tokens: Tokens = ()
        proposals: list[Distribution] = []
        for _ in range(case.k):
            q = case.q(tokens)
            if before_drawing and max(q.probs) < limit:
                break
            token = q.sample(rng)
            if not before_drawing and q.prob(token) < limit:
                break
            tokens += (token,)
            proposals.append(q)
        return Drafted(tokens, tuple(proposals))

    return drafting


@pytest.mark.parametrize("verifier", OURS)
def test_stopping_before_drawing_is_exact_and_dropping_a_drawn_token_is_caught(verifier: str) -> None:
    assert all(violation(case, OURS[verifier], dropping(Fraction(1, 2), True)) is None for case in CASES.values())
    assert any(violation(case, OURS[verifier], dropping(Fraction(1, 4), False)) for case in CASES.values())


def ending_at(end: int) -> Drafting:
    """Ends a draft after the token `end`, which it keeps."""

    def drafting(case: Case, rng: Branches) -> Drafted:
        draft = sampled(case, rng)
        k = next((i for i, token in enumerate(draft.tokens, start=1) if token == end), case.k)
        return Drafted(draft.tokens[:k], draft.proposals[:k])

    return drafting


def test_choosing_the_verifier_by_the_drawn_length_is_caught() -> None:
    """Token rejection for short drafts, block for long ones: each is exact, the mixture is not where the
    length depends on what was drawn."""

    def mixed(case: Case, draft: Drafted, rng: Branches) -> Verdict:
        return OURS["token" if len(draft.tokens) <= 2 else "block"](case, draft, rng)

    for end in range(3):
        for verify in OURS.values():
            assert all(violation(case, verify, ending_at(end)) is None for case in CASES.values())
    assert all(violation(case, mixed) is None for case in CASES.values())
    case = Case(2, 3, rows([1, 2]), rows([2, 1]))
    assert violation(case, OURS["block"], ending_at(1)) is None
    assert violation(case, mixed, ending_at(1))


# ---- faults of the context a row is computed for ---------------------------------------------------------


BASE = [[1, 2, 3], [3, 1, 1], [1, 1, 4]]


def penalised(seen: Tokens, last: Tokens) -> Distribution:
    """The weight of every token of `seen` is halved per occurrence."""
    base = BASE[last[-1] if last else 0]
    return distribution([Fraction(w, 2 ** seen.count(t)) for t, w in enumerate(base)])


def masked(seen: Tokens, last: Tokens) -> Distribution:
    """A grammar in which no token may follow itself."""
    base = BASE[last[-1] if last else 0]
    return distribution([0 if seen and seen[-1] == t else w for t, w in enumerate(base)])


@pytest.mark.parametrize("process", [penalised, masked])
@pytest.mark.parametrize("verifier", [verify_token, verify_block])
def test_processing_not_advanced_by_the_drafted_prefix_is_caught(process, verifier) -> None:  # type: ignore[no-untyped-def]
    case = Case(3, 3, lambda prefix: process(prefix, prefix), rows([3, 2, 1], [1, 1, 1]))

    def stale(_case: Case, draft: Drafted, rng: Branches) -> Verdict:
        targets = [process((), draft.tokens[:i]) for i in range(len(draft.tokens) + 1)]
        return verifier(draft.tokens, draft.proposals, targets, rng)  # type: ignore[no-any-return]

    assert violation(case, with_rows(verifier)) is None
    assert violation(case, stale)


@pytest.mark.parametrize("verifier", [verify_token, verify_block])
def test_verifier_at_another_temperature_is_caught(verifier) -> None:  # type: ignore[no-untyped-def]
    raw = rows([1, 2, 3], [3, 1, 1])
    case = Case(3, 3, lambda prefix: half_temperature(raw(prefix)), rows([3, 2, 1], [1, 1, 1]))
    fixed_at_1 = Case(3, 3, raw, case.q)
    assert violation(case, with_rows(verifier)) is None
    assert violation(case, lambda _case, draft, rng: with_rows(verifier)(fixed_at_1, draft, rng))


# ---- foreign ids ------------------------------------------------------------------------------------------


FOREIGN = Case(2, 2, rows([2, 1], [1, 3]), rows([1, 1, 1, 1], [1, 2, 3, 1]))


def foreign_dropped(case: Case, rng: Branches) -> Drafted:
    """Cuts the draft where an id is outside the target's vocabulary."""
    draft = sampled(case, rng)
    k = next((i for i, token in enumerate(draft.tokens) if token >= case.vocab), case.k)
    return Drafted(draft.tokens[:k], draft.proposals[:k])


def test_foreign_ids_are_rejected_and_mishandling_them_is_caught() -> None:
    for verify in OURS.values():
        assert violation(FOREIGN, verify) is None
        assert violation(FOREIGN, verify, foreign_dropped)
    clipped = with_acceptance(lambda p, q, x, rng: rng.random() < p.probs[min(x, len(p.ids) - 1)] / q.prob(x))
    assert violation(FOREIGN, clipped)
