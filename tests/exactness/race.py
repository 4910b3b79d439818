"""Two draws with one Gumbel vector, worked out in exact fractions."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise, product


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
