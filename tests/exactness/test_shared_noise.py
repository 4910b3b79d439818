"""Randomness that is not independent: one uniform, or one Gumbel vector, used twice is biased."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

from enumeration import Branches, Case, Drafted, Uniform, distribution, violation, with_rows
from race import race

from edgespec.verification import verify_token

TOKEN = with_rows(verify_token)
CASE = Case(3, 1, lambda _: distribution([1, 2, 3]), lambda _: distribution([3, 2, 1]))


class Reusing:
    """Hands out one uniform over and over."""

    def __init__(self, uniform: Uniform) -> None:
        self._uniform = uniform

    def random(self) -> Uniform:
        return self._uniform


def test_one_uniform_for_drawing_and_accepting_is_caught() -> None:
    case = CASE
    drawn: list[Reusing] = []

    def drafting(case: Case, rng: Branches) -> Drafted:
        drawn[:] = [Reusing(rng.random())]
        q = case.q(())
        return Drafted((q.sample(drawn[0]),), (q,))

    assert violation(case, TOKEN, drafting) is None
    assert violation(
        case, lambda c, d, _rng: verify_token(d.tokens, d.proposals, c.targets(d.tokens), drawn[0]), drafting
    )


def test_shared_gumbel_noise_with_a_ratio_test_is_biased() -> None:
    """Regression case: a target of .10/.60/.30 came out as .102/.630/.268 (sampled) where the correction
    reused the noise that had drawn the rejected token. Exactly: .100/.632/.268."""
    p, q = [Fraction(n, 20) for n in (2, 12, 6)], [Fraction(n, 20) for n in (11, 4, 5)]
    target, proposal = distribution(p), distribution(q)
    rest = [target.residual(proposal).prob(t) for t in range(3)]

    def law(pairs: dict[tuple[int, int], Fraction]) -> list[Fraction]:
        """Output of: draw x, accept with p/q, else emit y, for a joint law of (x, y)."""
        out = [Fraction(0)] * 3
        for (x, y), weight in pairs.items():
            keep = min(Fraction(1), p[x] / q[x])
            out[x] += weight * keep
            out[y] += weight * (1 - keep)
        return out

    shared = law(race(q, rest))
    assert sum(shared) == 1
    assert [round(float(w), 3) for w in shared] == [0.1, 0.632, 0.268]
    assert max(abs(float(w) - seen) for w, seen in zip(shared, (0.102, 0.630, 0.268), strict=True)) < 0.0025
    assert law({(x, y): q[x] * rest[y] for x, y in product(range(3), repeat=2)}) == p  # fresh noise
    assert violation(Case(3, 1, lambda _: target, lambda _: proposal), TOKEN) is None
