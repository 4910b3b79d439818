"""What a sampler makes of the rows of a round, where most of them may not be needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from .sampling import Walk
from .scoring import Rows

T = TypeVar("T")


class Lazy(Sequence[T], Generic[T]):
    """Row i's winner or distribution, computed when a verifier first asks: most rejections are early."""

    def __init__(self, walk: Walk, drafted: tuple[int, ...], rows: Rows, compute: Callable[[Walk, Rows], T]) -> None:
        self._walk, self._drafted, self._rows, self._compute = walk, drafted, rows, compute
        self.known: list[T] = []

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, i: int) -> T:  # type: ignore[override]  # verifiers index, they never slice
        while len(self.known) <= i:
            n = len(self.known)
            if n:
                self._walk.advance(self._drafted[n - 1])
            self.known.append(self._compute(self._walk, self._rows[n]))
        return self.known[i]
