"""Randomness that is not independent: one uniform, or one Gumbel vector, used twice is biased."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise, product

from enumeration import Branches, Case, Drafted, Uniform, distribution, violation, with_rows

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


def race(q: list[Fraction], r: list[Fraction]) -> dict[tuple[int, int], Fraction]:
    """P(argmax(log q + g) = x and argmax(log r + g) = y) for one shared Gumbel vector g, exactly.

    With exponentials E_i = exp(-g_i) these are argmin E_i / q_i and argmin E_i / r_i. For x != y integrate
    over E_x = a, E_y = t a: the others survive with exp(-a max(q_i / q_x, t r_i / r_y)), and the integral of
    a exp(-a c(t)) da is 1 / c(t)^2 with c piecewise linear in t.
    """
    law: dict[tuple[int, int], Fraction] = {}
    for x, y in product(range(len(q)), repeat=2):
        others = [i for i in range(len(q)) if i not in (x, y)]
        if q[x] == 0 or r[y] == 0:
            law[x, y] = Fraction(0)
        elif x == y:
            law[x, y] = 1 / (1 + sum((max(q[i] / q[x], r[i] / r[x]) for i in others), Fraction(0)))
        else:
            low, high = q[y] / q[x], (r[y] / r[x] if r[x] else None)  # None: no upper limit
            kinks = {q[i] / q[x] * r[y] / r[i] for i in others if r[i]}
            inside = sorted(t for t in kinks if low < t and (high is None or t < high))
            pieces = pairwise([low, *inside, high])
            law[x, y] = sum((_piece(q, r, x, y, a, b) for a, b in pieces), Fraction(0))
    return law


def _piece(q: list[Fraction], r: list[Fraction], x: int, y: int, a: Fraction | None, b: Fraction | None) -> Fraction:
    assert a is not None
    if b is not None and b <= a:
        return Fraction(0)
    middle = a + 1 if b is None else (a + b) / 2
    constant, slope = Fraction(1), Fraction(1)
    for i in range(len(q)):
        if i not in (x, y):
            if q[i] / q[x] >= middle * r[i] / r[y]:
                constant += q[i] / q[x]
            else:
                slope += r[i] / r[y]
    upper = 0 if b is None else 1 / (constant + slope * b)
    return (1 / (constant + slope * a) - upper) / slope


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
