"""Proofs by enumeration: one round of every verifier has exactly the target's law.

The production code of verification.py and distribution.py runs here on Fractions; every equality is exact.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest
from enumeration import (
    Branches,
    Case,
    Drafted,
    Drafting,
    Table,
    Tokens,
    distribution,
    expected_accepted,
    outcomes,
    output_law,
    round_law,
    target_law,
    violation,
    with_rows,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgespec.distribution import Distribution
from edgespec.errors import EdgeSpecError
from edgespec.verification import VERIFIERS, verify_block, verify_greedy, verify_token

TOKEN, BLOCK = with_rows(verify_token), with_rows(verify_block)
VERIFY = {"token": TOKEN, "block": BLOCK}


def table(rows: list[Distribution]) -> Table:
    """A context-dependent distribution: each prefix (order matters) picks one of `rows`."""

    def row(prefix: Tokens) -> Distribution:
        index = 0
        for token in prefix:
            index = 5 * index + token + 1
        return rows[index % len(rows)]

    return row


def rows_over(vocab: int, most: int, zeros: bool = True) -> st.SearchStrategy[list[Distribution]]:
    weights = st.lists(st.integers(0 if zeros else 1, 4), min_size=vocab, max_size=vocab).filter(any)
    row = st.builds(distribution, weights, drop_zeros=st.booleans())
    return st.lists(row, min_size=1, max_size=most)


@st.composite
def cases(draw: st.DrawFn, largest: int = 64) -> Case:
    """K <= 3, V <= 4, with V**K <= largest; zeros in p and q, one-hot rows and equal rows all occur."""
    k = draw(st.integers(0, 3))
    vocab = draw(st.sampled_from([v for v in (1, 2, 3, 4) if v**k <= largest]))
    p = table(draw(rows_over(vocab, 7)))
    return Case(vocab, k, p, table(draw(rows_over(vocab, 5))))


def check(case: Case) -> None:
    laws = {name: round_law(case, verify) for name, verify in VERIFY.items()}
    expected = target_law(case, case.k + 1)
    for name, law in laws.items():
        assert output_law(case, law) == expected, name
    assert expected_accepted(laws["block"]) >= expected_accepted(laws["token"])


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases(largest=27))
def test_any_target_and_any_proposal(case: Case) -> None:
    check(case)


@pytest.mark.soak
@settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases())
def test_any_target_and_any_proposal_full(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("name", VERIFY)
def test_every_pair_of_distributions_on_a_grid(name: str) -> None:
    """V = 3, K = 1: all pairs (p, q) with probabilities that are multiples of 1/3."""
    grid = [distribution(w) for w in product(range(4), repeat=3) if sum(w) == 3]
    for p, q in product(grid, repeat=2):
        assert violation(Case(3, 1, table([p, grid[0]]), table([q])), VERIFY[name]) is None


def fixed(*weights: list[int], drop_zeros: bool = False) -> Table:
    return table([distribution(w, drop_zeros) for w in weights])


P3 = fixed([1, 2, 3], [0, 3, 1], [4, 0, 1], [1, 1, 1], [0, 0, 1])
NAMED = {
    "one-hot q": Case(3, 3, P3, fixed([0, 1, 0], [1, 0, 0])),
    "one-hot q without zero entries": Case(3, 3, P3, fixed([0, 1, 0], drop_zeros=True)),
    "one-hot q outside p": Case(3, 2, fixed([1, 0, 2]), fixed([0, 1, 0])),
    "disjoint supports": Case(4, 3, fixed([1, 2, 0, 0]), fixed([0, 0, 2, 3])),
    "disjoint supports without zero entries": Case(
        4, 3, fixed([1, 2, 0, 0], drop_zeros=True), fixed([0, 0, 2, 3], drop_zeros=True)
    ),
    "disjoint after one token": Case(3, 3, fixed([1, 2, 1], [1, 1, 0]), fixed([2, 1, 1], [0, 0, 1])),
    "zeros in p": Case(3, 3, fixed([0, 1, 2], [3, 0, 1]), fixed([1, 1, 1])),
    "zeros in q": Case(3, 3, fixed([1, 1, 1]), fixed([0, 1, 2], [3, 0, 1])),
    "one-hot target": Case(3, 3, fixed([0, 1, 0], [0, 0, 1]), fixed([1, 2, 1])),
    "ids beyond the target's vocabulary": Case(2, 3, fixed([2, 1]), fixed([1, 1, 1, 1])),
    "no draft": Case(3, 0, P3, P3),
    "two rows that trade places": Case(2, 3, fixed([1, 3], [3, 1]), fixed([3, 1], [1, 3])),
}


@pytest.mark.parametrize("verifier", VERIFY)
@pytest.mark.parametrize("name", NAMED)
def test_named_cases(name: str, verifier: str) -> None:
    assert violation(NAMED[name], VERIFY[verifier]) is None


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3).flatmap(lambda vocab: rows_over(vocab, 6).map(lambda rows: (vocab, rows))))
def test_a_proposal_equal_to_the_target_is_always_accepted(drawn: tuple[int, list[Distribution]]) -> None:
    vocab, rows = drawn
    case = Case(vocab, 3, table(rows), table(rows))
    for verify in VERIFY.values():
        law = round_law(case, verify)
        assert all(verdict.accepted == 3 for verdict in law)
        assert output_law(case, law) == target_law(case, 4)


def test_token_acceptance_is_the_overlap() -> None:
    p, q = distribution([1, 2, 3]), distribution([3, 2, 1])
    law = round_law(Case(3, 1, table([p]), table([q])), TOKEN)
    assert expected_accepted(law) == p.overlap(q) == Fraction(2, 3)


def test_block_accepts_more_where_token_rejection_is_too_strict() -> None:
    """The motivating example of arXiv 2403.10444: p = (1/3, 2/3), q = (2/3, 1/3), two tokens: 11/9 against 10/9."""
    case = Case(2, 2, table([distribution([1, 2])]), table([distribution([2, 1])]))
    assert expected_accepted(round_law(case, TOKEN)) == Fraction(10, 9)
    assert expected_accepted(round_law(case, BLOCK)) == Fraction(11, 9)


def test_block_and_token_agree_on_one_hot_proposals() -> None:
    """Given the draft, the verdicts have the same probabilities: verify_block may then read fewer rows.

    With zero entries kept, a one-hot row does not look one-hot, so block verification runs in full.
    """
    for rows in ([0, 1, 0], [1, 0, 0]), ([0, 0, 1], [0, 1, 0], [1, 0, 0]):
        full = Case(3, 3, P3, fixed(*rows))
        short = Case(3, 3, P3, fixed(*rows, drop_zeros=True))
        assert round_law(full, BLOCK) == round_law(full, TOKEN) == round_law(short, BLOCK)


def ending_after(tokens: frozenset[Tokens]) -> Drafting:
    """A drafter that stops once what it drew is in `tokens`, keeping the last token drawn."""

    def drafting(case: Case, rng: Branches) -> Drafted:
        drawn: Tokens = ()
        proposals: list[Distribution] = []
        while len(drawn) < case.k and drawn not in tokens:
            proposals.append(case.q(drawn))
            drawn += (proposals[-1].sample(rng),)
        return Drafted(drawn, tuple(proposals))

    return drafting


prefixes = st.lists(st.integers(0, 2), min_size=1, max_size=2).map(tuple)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases(largest=27), st.frozensets(prefixes, max_size=6))
def test_drafts_that_end_early_on_a_drawn_value_that_they_keep(case: Case, ends: frozenset[Tokens]) -> None:
    """An end token ends a draft, or a drafter loses confidence: exact, since nothing drawn is thrown away."""
    for name, verify in VERIFY.items():
        assert violation(case, verify, ending_after(ends)) is None, name


@pytest.mark.parametrize(("vocab", "k"), [(2, 1), (2, 2), (3, 2), (2, 3), (3, 3)])
def test_greedy_emits_the_targets_own_choices(vocab: int, k: int) -> None:
    """All drafts against winners that depend on the prefix; the longest agreeing prefix is accepted."""
    for shift, drafted in product(range(vocab), product(range(vocab), repeat=k)):

        def winner(prefix: Tokens, shift: int = shift) -> int:
            return (shift + sum((i + 1) * t for i, t in enumerate(prefix))) % vocab

        chain: Tokens = ()
        while len(chain) <= k:
            chain += (winner(chain),)
        verdict = verify_greedy(drafted, [winner(drafted[:i]) for i in range(k + 1)])
        agreeing = next((i for i in range(k) if drafted[i] != chain[i]), k)
        assert verdict.accepted == agreeing
        assert verdict.tokens == chain[: agreeing + 1]


def test_greedy_is_the_limit_of_sampling_with_one_hot_targets() -> None:
    case = NAMED["one-hot target"]
    for verify in (*VERIFY.values(), with_rows(lambda x, _q, rows, _rng: verify_greedy(x, [r.top() for r in rows]))):
        assert violation(case, verify) is None
    for drafted in product(range(3), repeat=3):
        winners = [row.top() for row in case.targets(drafted)]
        greedy = verify_greedy(drafted, winners)
        for verify in VERIFY.values():  # a one-hot p is 1 or 0 at x, so nothing is left to chance
            draft = Drafted(drafted, (distribution([1, 2, 1]),) * 3)
            assert outcomes(lambda rng, v=verify, d=draft: v(case, d, rng)) == {greedy: 1}


class Recording(list):  # type: ignore[type-arg]
    """A list that remembers which rows were computed."""

    def __init__(self, rows: list[object]) -> None:
        super().__init__(rows)
        self.read: list[int] = []

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        self.read.append(index)
        return super().__getitem__(index)


@pytest.mark.parametrize("verifier", [verify_token, verify_block])
def test_rows_are_read_in_ascending_order_and_none_after_a_rejection(verifier) -> None:  # type: ignore[no-untyped-def]
    p, q = distribution([1, 2, 1]), distribution([2, 1, 1])

    def run(rng: Branches) -> None:
        rows = Recording([p] * 4)
        verdict = verifier((0, 1, 2), [q] * 3, rows, rng)
        firsts = list(dict.fromkeys(rows.read))
        assert firsts == sorted(firsts)
        if verifier is verify_token:
            assert max(rows.read) == verdict.accepted

    outcomes(run)


def test_greedy_reads_no_row_after_a_mismatch() -> None:
    winners = Recording([1, 0, 1])
    assert verify_greedy((1, 1), winners).tokens == (1, 0)
    assert winners.read == [0, 1]


@pytest.mark.parametrize("verifier", VERIFIERS.values())
@pytest.mark.parametrize("k", [1, 3])
def test_a_token_its_own_proposal_excludes_is_an_error(verifier, k: int) -> None:  # type: ignore[no-untyped-def]
    p, q = distribution([1, 1, 1]), distribution([1, 1, 0])
    with pytest.raises(EdgeSpecError, match="drafted token 2 probability 0"):
        outcomes(lambda rng: verifier((2,) * k, [q] * k, [p] * (k + 1), rng))
