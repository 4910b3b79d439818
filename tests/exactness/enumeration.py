"""Exact laws by exhaustive branching: runs production code on Fractions with symbolic uniforms.

A `Branches` object stands in for the random generator. Its random() returns an interval [lo, hi) of
which only comparisons are known; a comparison that could go either way splits the run in two, with
exact conditional weights. `outcomes` re-runs a function along every decision path, so it returns the
function's exact law, whatever the function does with its uniforms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, TypeVar

import numpy as np

from edgespec.distribution import Distribution
from edgespec.verification import Verdict

T = TypeVar("T")
Tokens = tuple[int, ...]
Table = Callable[[Tokens], Distribution]


class Uniform:
    """A uniform on [0, 1), known to lie in [lo, hi). Equality has measure zero, so < and <= agree."""

    def __init__(self, branches: Branches) -> None:
        self._branches = branches
        self._lo, self._hi = Fraction(0), Fraction(1)

    def _below(self, bound: Any) -> bool:
        if bound is self:  # numpy's binary search compares its key with itself
            return False
        if bound >= self._hi:
            return True
        if bound <= self._lo:
            return False
        bound = Fraction(bound)
        below = self._branches.decide((bound - self._lo) / (self._hi - self._lo))
        if below:
            self._hi = bound
        else:
            self._lo = bound
        return below

    def __lt__(self, other: Any) -> bool:
        return self._below(other)

    __le__ = __lt__

    def __gt__(self, other: Any) -> bool:
        return not self._below(other)

    __ge__ = __gt__


class Branches:
    """One decision path. Decisions beyond the given path take the first side."""

    def __init__(self, path: Sequence[bool]) -> None:
        self._given = path
        self.path: list[bool] = []
        self.weight = Fraction(1)

    def random(self) -> Uniform:
        return Uniform(self)

    def decide(self, probability: Fraction) -> bool:
        """True with `probability`, which lies strictly between 0 and 1."""
        depth = len(self.path)
        side = self._given[depth] if depth < len(self._given) else True
        self.path.append(side)
        self.weight *= probability if side else 1 - probability
        return side


class BrokenRound(Exception):
    """A verdict that no law can excuse."""


def outcomes(run: Callable[[Branches], T]) -> dict[T, Fraction]:
    """The exact law of run(rng)."""
    law: dict[T, Fraction] = {}
    path: list[bool] | None = []
    while path is not None:
        rng = Branches(path)
        result = run(rng)
        law[result] = law.get(result, Fraction(0)) + rng.weight
        path = rng.path
        while path and not path[-1]:
            path.pop()
        path = [*path[:-1], False] if path else None
    assert sum(law.values()) == 1
    return law


def distribution(weights: Sequence[int | Fraction], drop_zeros: bool = False) -> Distribution:
    """Normalised exact weights; ids are positions. Zeros are kept as zero entries unless dropped."""
    total = sum(weights)
    kept = [(i, Fraction(w) / total) for i, w in enumerate(weights) if w or not drop_zeros]
    probs = np.empty(len(kept), dtype=object)
    probs[:] = [w for _, w in kept]
    return Distribution(np.array([i for i, _ in kept], dtype=np.int64), probs)


@dataclass(frozen=True)
class Drafted:
    """tokens drawn, and the proposals that the drafter reports for them."""

    tokens: Tokens
    proposals: tuple[Distribution, ...]


@dataclass(frozen=True)
class Case:
    """A target p(. | prefix) over `vocab` tokens, a proposal q(. | prefix), and a draft length."""

    vocab: int
    k: int
    p: Table
    q: Table

    def targets(self, drafted: Tokens) -> Sequence[Distribution]:
        return [self.p(drafted[:i]) for i in range(len(drafted) + 1)]


Drafting = Callable[[Case, Branches], Drafted]
Verify = Callable[[Case, Drafted, Branches], Verdict]


def sampled(case: Case, rng: Branches) -> Drafted:
    """A correct drafter: each token is drawn from the proposal that is reported."""
    tokens: Tokens = ()
    proposals: list[Distribution] = []
    for _ in range(case.k):
        proposals.append(case.q(tokens))
        tokens += (proposals[-1].sample(rng),)
    return Drafted(tokens, tuple(proposals))


def with_rows(verifier: Any) -> Verify:
    """A production verifier, given the target row after every drafted prefix."""
    return lambda case, draft, rng: verifier(draft.tokens, draft.proposals, case.targets(draft.tokens), rng)


def round_law(case: Case, verify: Verify, drafting: Drafting = sampled) -> dict[Verdict, Fraction]:
    """The law of one round's verdict, drafting included."""

    def run(rng: Branches) -> tuple[Tokens, Verdict]:
        draft = drafting(case, rng)
        return draft.tokens, verify(case, draft, rng)

    law: dict[Verdict, Fraction] = {}
    for (drafted, verdict), weight in outcomes(run).items():
        law[verdict] = law.get(verdict, Fraction(0)) + weight
        if len(verdict.tokens) != verdict.accepted + 1 or verdict.tokens[:-1] != drafted[: verdict.accepted]:
            # Completing a short round by plain sampling would hide a missing bonus, so it is checked here.
            raise BrokenRound(f"{verdict} is not the accepted tokens of {drafted} and one more")
    return law


def target_law(case: Case, length: int) -> dict[Tokens, Fraction]:
    """Plain sampling: prod_i p(x_i | x_<i) for every sequence of `length` tokens."""
    law = {}
    for tokens in product(range(case.vocab), repeat=length):
        weight = Fraction(1)
        for i, token in enumerate(tokens):
            weight *= case.p(tokens[:i]).prob(token)
        law[tokens] = weight
    return law


def output_law(case: Case, verdicts: dict[Verdict, Fraction]) -> dict[Tokens, Fraction]:
    """The law of k + 1 output tokens: the round's, completed by plain sampling from p."""
    law = {tokens: Fraction(0) for tokens in product(range(case.vocab), repeat=case.k + 1)}
    for verdict, weight in verdicts.items():
        for tokens, mass in _completions(case, verdict.tokens, weight):
            law[tokens] = law.get(tokens, Fraction(0)) + mass  # get: a broken verifier may emit foreign ids
    return law


def _completions(case: Case, tokens: Tokens, weight: Fraction) -> Iterator[tuple[Tokens, Fraction]]:
    if len(tokens) > case.k:
        yield tokens, weight
        return
    row = case.p(tokens)
    for token in range(case.vocab):
        p = row.prob(token)
        if p:
            yield from _completions(case, (*tokens, token), weight * p)


def violation(case: Case, verify: Verify, drafting: Drafting = sampled) -> str | None:
    """None when one round is exact; else what is wrong. The one check that ours passes and mutants fail."""
    try:
        law = output_law(case, round_law(case, verify, drafting))
    except BrokenRound as error:
        return str(error)
    expected = target_law(case, case.k + 1)
    for tokens, weight in law.items():
        if weight != expected.get(tokens, 0):
            return f"{tokens} has probability {weight}, the target says {expected.get(tokens, 0)}"
    return None


def expected_accepted(law: dict[Verdict, Fraction]) -> Fraction:
    return sum((weight * verdict.accepted for verdict, weight in law.items()), Fraction(0))
