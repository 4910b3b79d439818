"""One round of one or several generations: each proposes, one decode of the target scores all, each commits."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .drafting import NO_DRAFT, Draft
from .errors import Cancelled, ContextFullError
from .planning import ALONE, Beside
from .scoring import Rows, Scorer, ScoreRequest
from .stats import RoundEvent, TokenEvent

if TYPE_CHECKING:
    from .generation import Generation

Event = TokenEvent | RoundEvent


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds of a round before commit. beside: what the other generations had in the same decode."""

    draft_ms: float
    verify_ms: float
    other_ms: float
    beside: Beside = ALONE


def step(scorer: Scorer, generations: Sequence[Generation]) -> list[list[Event]]:
    """One round for every unfinished generation, in one target decode; events per generation, in order.

    All generations must be on `scorer`; more than it holds at once take several decodes. A cancelled one
    finishes without decoding. Where several share a decode and only one of them fails (its grammar leaves nothing,
    say), that one ends with `error` set and the others go on; what fails for all of them is raised.
    """
    events: list[list[Event]] = [[] for _ in generations]
    running = []
    for i, g in enumerate(generations):
        if g.finish_reason is None and g.cancelled.is_set():
            events[i] += g.end_cancelled()
        if g.finish_reason is None:
            running.append(i)
    at_once = min(scorer.max_width, scorer.max_sequences)
    for start in range(0, len(running), at_once):
        group = running[start : start + at_once]
        for i, new in zip(group, _round(scorer, [generations[i] for i in group]), strict=True):
            events[i] += new
    return events


class _Round:
    """What the generations of one decode put into it."""

    def __init__(self, scorer: Scorer, running: Sequence[Generation]) -> None:
        self.running = running
        self.drafts: list[Draft] = [NO_DRAFT] * len(running)
        self.draft_ms = [0.0] * len(running)
        self._more = [0.0] * len(running)  # tokens that each draft is expected to give beyond the first
        self._rows = len(running)
        self._depth = sum(len(g.tokens) for g in running)
        # Each may have one row; what is left of the decode and of the cache is for drafts.
        self._most = max(self._rows, min(scorer.max_width, scorer.cells - self._depth + self._rows))

    def propose(self) -> None:
        """Drafts, of those first whose latest was expected to gain most: as the decode fills, width gets dearer."""
        for i in sorted(range(len(self.running)), key=lambda i: -self.running[i].expects):
            g = self.running[i]
            begin = time.perf_counter()
            try:
                self.drafts[i] = g.propose(self._most - self._rows + 1, self.beside(i))
            except Exception as error:
                self._failed(g, error)
            self.draft_ms[i] = _ms(begin) if g.drafter is not None else 0.0
            self._more[i] = g.expects if self.drafts[i].tokens else 0.0
            self._rows += len(self.drafts[i].tokens)

    def beside(self, i: int) -> Beside:
        """What the others have, or will have at least, in this decode."""
        others = len(self.running) - 1
        if not others:
            return ALONE
        return Beside(
            requests=others,
            rows=self._rows - 1 - len(self.drafts[i].tokens),
            tokens=others + sum(self._more) - self._more[i],
            depth=self._depth - len(self.running[i].tokens),
        )

    def requests(self) -> list[ScoreRequest]:
        """Of those that have not failed. One that is cancelled meanwhile does not take the others' round with it."""
        alone = len(self.running) == 1
        return [
            ScoreRequest(g.sequence, g.tokens, draft.tokens, g.cancelled if alone else None, g.wants_states)
            for g, draft in zip(self.running, self.drafts, strict=True)
            if g.error is None
        ]

    def _failed(self, g: Generation, error: Exception) -> None:
        if len(self.running) == 1:
            raise error
        if isinstance(error, Cancelled):
            return  # without a draft; the next step ends it
        g.fail(error)

    def commit(self, g: Generation, i: int, rows: Rows, verify_ms: float, other_ms: float) -> list[Event]:
        try:
            return g.commit(self.drafts[i], rows, Timing(self.draft_ms[i], verify_ms, other_ms, self.beside(i)))
        except Exception as error:
            self._failed(g, error)
            return []


def _round(scorer: Scorer, running: Sequence[Generation]) -> list[list[Event]]:
    """Propose, decode, commit."""
    started = time.perf_counter()
    shared = _Round(scorer, running)
    try:
        shared.propose()
        requests = shared.requests()
        if not requests:
            return [[] for _ in running]
        with scorer.turn:
            begin = time.perf_counter()
            scored = iter(scorer.score(requests))
            verify_ms = _ms(begin)
            other_ms = max(0.0, _ms(started) - verify_ms - sum(shared.draft_ms)) / len(running)
            return [
                [] if g.error is not None else shared.commit(g, i, next(scored), verify_ms, other_ms)
                for i, g in enumerate(running)
            ]
    except Cancelled:
        return [g.end_cancelled() if g.cancelled.is_set() else [] for g in running]
    except ContextFullError:
        if len(running) == 1:
            raise
        # Each fits the context, not all at once: one by one they take each other's room.
        return [_round(scorer, [g])[0] if g.error is None else [] for g in running]


def _ms(since: float) -> float:
    return 1000 * (time.perf_counter() - since)
