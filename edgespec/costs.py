"""What a decode costs by its number of rows: measured once, then followed."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, replace

_CHEAPER = 0.97  # a wider decode is run in place of a narrow one where it takes less than this share of its time
_MOST_SURPRISE = 0.3  # share of the expected time that one decode may differ and be believed
_FURTHEST = 4  # times the deepest measured context: further out, growth is not extrapolated


@dataclass(frozen=True, slots=True)
class CostTable:
    """Milliseconds of one decode by its number of rows, as measured.

    widths: ascending.  ms: behind a context of `depth` tokens.  growth: by width, ms more for each further token
    of context, believed up to `reach` tokens; none: not measured.  bare: of a padded table, the one of decodes that are
    not padded.
    """

    widths: tuple[int, ...]
    ms: tuple[float, ...]
    depth: int = 0
    growth: tuple[float, ...] = ()
    reach: int = 0
    bare: CostTable | None = None

    def at(self, width: int, depth: int | None = None) -> float:
        """Measured, or interpolated between the neighbours that are. depth: tokens of context; None: as measured."""
        ms = self._between(self.ms, width)
        if depth is not None and self.growth:
            further = min(depth, self.reach * _FURTHEST) - self.depth
            ms += max(further, 0) * max(self._between(self.growth, width), 0.0)
        return max(ms, 1e-6)

    def _between(self, values: tuple[float, ...], width: int) -> float:
        i = bisect.bisect_left(self.widths, width)
        if i < len(self.widths) and self.widths[i] == width:
            return values[i]
        low = min(max(i - 1, 0), max(len(self.widths) - 2, 0))
        high = min(low + 1, len(self.widths) - 1)
        if i == len(self.widths):  # kernels work on groups of rows: the slope is that over several of them
            high = i - 1
            low = max(0, min(bisect.bisect_left(self.widths, self.widths[high] // 2), high - 1))
        if low == high:
            return values[low]
        slope = (values[high] - values[low]) / (self.widths[high] - self.widths[low])
        return max(values[low] + slope * (width - self.widths[low]), 0.0)

    @property
    def padding(self) -> dict[int, int]:
        """{rows: wider, measured number of rows that takes less time}: kernels work in groups of rows."""
        found = {}
        for width in range(self.widths[0], self.widths[-1]):
            wider = min((w for w in self.widths if w > width), key=self.at)
            if self.at(wider) < _CHEAPER * self.at(width):
                found[width] = wider
        return found

    def padded(self) -> CostTable:
        """The table of a context that pads its decodes so: every width, none dearer than one it is padded to."""
        padding = self.padding
        widths = tuple(range(self.widths[0], self.widths[-1] + 1))
        run = [padding.get(w, w) for w in widths]
        growth = tuple(self._between(self.growth, w) for w in run) if self.growth else ()
        return replace(
            self, widths=widths, ms=tuple(self.at(w) for w in run), growth=growth, bare=self if padding else None
        )


class Costs:
    """A cost table that follows what rounds really take: context grows, machines get busy."""

    def __init__(self, table: CostTable) -> None:
        self.table = table
        self._common = 1.0  # what has slowed or sped all widths alike
        self._own: dict[tuple[int, bool], float] = {}  # what is special to one
        self.rounds = 0

    def at(self, width: int, depth: int | None = None, *, padded: bool = True) -> float:
        """Milliseconds expected now of a decode of `width` rows behind `depth` tokens. padded: if that is faster."""
        table = self.table if padded or self.table.bare is None else self.table.bare
        return table.at(width, depth) * self._common * self._own.get((width, padded), 1.0)

    def observe(
        self, width: int, ms: float, depth: int | None = None, weight: float = 1.0, *, padded: bool = True
    ) -> None:
        """One decode of `width` rows took `ms`. Outliers are clipped: a few hiccups are no trend.

        weight: more than 1 where it stands for many, less where several tell of the same decode.
        """
        self.rounds += 1
        surprise = weight * min(max(ms / self.at(width, depth, padded=padded) - 1, -_MOST_SURPRISE), _MOST_SURPRISE)
        self._common *= 1 + 0.05 * surprise
        key = (width, padded)
        own = self._own.get(key, 1.0) * (1 + (0.15 if key in self._own else 0.3) * surprise)
        self._own[key] = 1 + 0.97 * (own - 1)  # leaks, so that what all widths share ends up in `common`

    def follow(self, ratio: float, weight: float = 1.0) -> None:
        """Decodes of several widths together took `ratio` of what was expected: so do all, a little."""
        self.rounds += 1
        self._common *= 1 + 0.05 * weight * min(max(ratio - 1, -_MOST_SURPRISE), _MOST_SURPRISE)

    def anchor(self, ms: float) -> None:
        """A decode of one row takes this long now: so all widths take more, or less, than the table says."""
        self._common = ms / self.table.at(1)

    @property
    def drift(self) -> float:
        """Now against the table, at width 1: far from 1 means that the table is out of date."""
        return self.at(1) / self.table.at(1)
