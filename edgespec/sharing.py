"""How several requests share a decode: how many tokens each should draft, for the most tokens per second of all.

Each by itself sees only what its own tokens add. Where rows come in groups, or a draft longer than the others' takes a
pass of its own, no single draft may pay while drafts of several would: so lengths are chosen together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

Price = Callable[[Sequence[int]], float]
_SWEEPS = 2  # over the requests, each of which tries every length beside those of the others


@dataclass(frozen=True, slots=True)
class Way:
    """One source's. reaches: [i]: probability that tokens 0..i are all accepted.  step_ms, setup_ms: time of drafting
    one, and before the first."""

    reaches: Sequence[float]
    step_ms: float
    setup_ms: float


@dataclass(frozen=True, slots=True)
class Prospect:
    """What one request could draft in a decode, by the number of its tokens: item k - 1 is that of k tokens.

    gains: tokens expected beyond the one of a plain round.  ms: time of drafting them, that of the decode not counted.
    steps: are they drafted with the draft model?  reached: milliseconds that its latest tokens would have taken
    plainly, and that they took.  left_ms: may be lost.  price: milliseconds of a decode by the rows of each request.
    """

    gains: tuple[float, ...] = ()
    ms: tuple[float, ...] = ()
    steps: tuple[bool, ...] = ()
    reached: tuple[float, float] = (0.0, 0.0)
    left_ms: float = 0.0
    price: Price | None = None

    @staticmethod
    def of(ways: Iterable[Way], rate: float, reached: tuple[float, float], left_ms: float, price: Price) -> Prospect:
        """By the best way for each number of tokens. rate: tokens per millisecond, which drafting takes time from."""
        found: list[tuple[float, float, bool]] = []
        for way in ways:
            gain = 0.0
            for k, reach in enumerate(way.reaches):
                gain, ms = gain + reach, way.setup_ms + (k + 1) * way.step_ms
                if k == len(found):
                    found.append((gain, ms, way.step_ms > 0))
                elif gain - rate * ms > found[k][0] - rate * found[k][1]:
                    found[k] = gain, ms, way.step_ms > 0
        gains, times, steps = zip(*found, strict=True) if found else ((), (), ())
        return Prospect(gains, times, steps, reached, left_ms, price)

    def gain(self, k: int) -> float:
        """Of k tokens; 0 for none."""
        return self.gains[k - 1] if k else 0.0

    def value(self, k: int, rate: float) -> float:
        """That, less the tokens that all requests produce in the time of drafting."""
        return self.gains[k - 1] - rate * self.ms[k - 1] if k else 0.0


NO_PROSPECT = Prospect()


def reached(prospects: Sequence[Prospect]) -> float:
    """Tokens per millisecond of all these requests lately, never below what plain decoding gives."""
    plain, spent = (sum(p.reached[i] for p in prospects) for i in (0, 1))
    plain_ms = _price(prospects)((1,) * len(prospects))
    return len(prospects) / plain_ms * max(1.0, plain / spent if spent else 0.0)


def _price(prospects: Sequence[Prospect]) -> Price:
    """They have one price: it is known from any that is planned at all."""
    return next(p.price for p in prospects if p.price is not None)


def lengths(prospects: Sequence[Prospect], rate: float, most: int, *, splits: bool) -> list[int]:
    """Tokens that each should draft: they maximise tokens - rate * time over all requests.

    most: of all drafts together.  splits: requests with different numbers of rows are decoded in several passes.
    """
    choice = _Choice(prospects, rate)
    if splits:
        _divided(choice, most)
    else:
        _whole(choice, most)
    return choice.best


class _Choice:
    """The best lengths so far, of those that were looked at."""

    def __init__(self, prospects: Sequence[Prospect], rate: float) -> None:
        self.prospects, self.rate = prospects, rate
        self.best = [0] * len(prospects)
        self._value = 0.0
        self._price = _price(prospects)
        self._plain_ms = self._price((1,) * len(prospects))
        self._left_ms = max(p.left_ms for p in prospects)

    def look(self, chosen: Sequence[int]) -> None:
        """Take these where they are better, and where nothing lost by them would be too much."""
        more_ms = self._price([1 + k for k in chosen]) - self._plain_ms
        value = sum(p.value(k, self.rate) for p, k in zip(self.prospects, chosen, strict=True)) - self.rate * more_ms
        drafting_ms = sum(p.ms[k - 1] for p, k in zip(self.prospects, chosen, strict=True) if k)
        if value > self._value and more_ms + drafting_ms <= self._left_ms:
            self.best, self._value = list(chosen), value


def _whole(choice: _Choice, most: int) -> None:
    """The time of a decode depends on the sum of its rows: so the likeliest tokens first, and as many as pay best.

    Every sum is looked at: one that fills a group of rows may pay where the one before it does not.
    """
    steps = [(-slope, k, i) for i, p in enumerate(choice.prospects) for k, slope in _rising(p, choice.rate)]
    chosen = [0] * len(choice.prospects)
    for _, k, i in sorted(steps):
        if k > chosen[i] and sum(chosen) - chosen[i] + k <= most:
            chosen[i] = k
            choice.look(chosen)


def _rising(prospect: Prospect, rate: float) -> list[tuple[int, float]]:
    """(k, value of each token up to it from the one before): falling slopes. A set-up is paid by several tokens."""
    corners: list[tuple[int, float]] = []
    for k in range(1, len(prospect.gains) + 1):
        start, value = 0, prospect.value(k, rate)
        while True:
            start = corners[-1][0] if corners else 0
            slope = (value - prospect.value(start, rate)) / (k - start)
            if not corners or corners[-1][1] > slope:
                break
            corners.pop()
        corners.append((k, slope))
    return corners


def _divided(choice: _Choice, most: int) -> None:
    """Drafts of equal lengths go through the weights together: so the best few requests with one length for all of
    them, then each by itself beside the others.
    """
    prospects, rate = choice.prospects, choice.rate
    for longest in range(1, min(most, max(len(p.gains) for p in prospects)) + 1):
        own = [_best(p, longest, rate) for p in prospects]
        order = sorted(range(len(prospects)), key=lambda i: -prospects[i].value(own[i], rate))
        chosen = [0] * len(prospects)
        for i in order:
            chosen[i] = min(longest, len(prospects[i].gains), most - sum(chosen))
            choice.look(chosen)
    for _ in range(_SWEEPS):
        for i, p in enumerate(prospects):
            for k in range(min(most - sum(choice.best) + choice.best[i], len(p.gains)) + 1):
                choice.look([*choice.best[:i], k, *choice.best[i + 1 :]])


def _best(prospect: Prospect, longest: int, rate: float) -> int:
    """The length of most value, the time of the decode not counted."""
    return max(range(min(longest, len(prospect.gains)) + 1), key=lambda k: prospect.value(k, rate))
