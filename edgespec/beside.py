"""What other requests have in the decode that a request plans for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .costs import Costs


@dataclass(frozen=True, slots=True)
class Beside:
    """What other requests have in the same decode: their number, their rows, the tokens expected of these, and the
    tokens of context that they hold.  drafted: of their rows, those of drafts.  reading: tokens of prompts that are in
    it, without rows.  drafting: how many of them draft with the draft model.  widths: the rows of each, where different
    ones are several passes (see passes()).  rate: tokens per millisecond that all have reached; 0: not known.

    A row more then costs what it adds to a decode that is run anyway, and a millisecond more delays everybody's tokens:
    tokens and rates below are those of all requests together. What is read has to be read in some decode, so it counts
    in no plan.
    """

    requests: int = 0
    rows: int = 0
    tokens: float = 0.0
    depth: int = 0
    drafted: int = 0
    reading: int = 0
    drafting: int = 0
    widths: tuple[int, ...] = ()
    rate: float = 0.0

    @property
    def plain_rows(self) -> int:
        """Rows that the others have if none of them drafts."""
        return self.rows - self.drafted

    def decode_ms(self, costs: Costs, widths: Sequence[int], depth: int) -> float:
        """Time of a decode with so many rows of each request: in passes, which are not padded, or all together.

        depth: tokens of context beside those of the others.
        """
        depth += self.depth
        if not self.widths:
            return costs.at(sum(widths), depth)
        return sum(costs.at(rows, depth, padded=False) for rows in passes(widths))


ALONE = Beside()


def passes(widths: Sequence[int]) -> list[int]:
    """Rows of each pass, where one takes equally many rows of all that have some left."""
    found, before = [], 0
    left = sorted(widths)
    for i, width in enumerate(left):
        if width > before:
            found.append((width - before) * (len(left) - i))
            before = width
    return found
