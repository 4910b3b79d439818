"""One round of one or several generations: each proposes, one decode of the target scores all, each commits.

Pieces of prompts ride in the same decode: the weights are read once for all.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from . import proposing
from .beside import ALONE, Beside
from .drafting import NO_DRAFT, Draft
from .errors import Cancelled, ContextFullError
from .scoring import Rows, Scorer, ScoreRequest
from .sharing import NO_PROSPECT, lengths, reached
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


@dataclass(frozen=True, slots=True)
class Piece:
    """A generation that only reads in this round: at most `tokens` tokens of its text that the cache lacks."""

    generation: Generation
    tokens: int

    @property
    def text(self) -> list[int]:
        """What the cache is to hold then."""
        g = self.generation
        return g.tokens[: len(g.tokens) - 1 - max(0, g.unread - self.tokens)]


def step(scorer: Scorer, generations: Sequence[Generation], pieces: Sequence[Piece] = ()) -> list[list[Event]]:
    """One round for every unfinished generation, in one target decode; events per generation, in order.

    pieces: what others read in that decode. All must be on `scorer`; more than it holds at once take several decodes.
    A cancelled one finishes without decoding. Where several share a decode and only one of them fails (its grammar
    leaves nothing, say), that one ends with `error` set and the others go on; what fails for all of them is raised.
    """
    events: list[list[Event]] = [[] for _ in generations]
    running = []
    for i, g in enumerate(generations):
        if g.finish_reason is None and g.cancelled.is_set():
            events[i] += g.end_cancelled()
        if g.finish_reason is None:
            running.append(i)
    at_once = min(scorer.max_width, scorer.max_sequences)
    parts: list[int | Piece] = [*running, *(p for p in pieces if not p.generation.cancelled.is_set())]
    for start in range(0, len(parts), at_once):
        group = parts[start : start + at_once]
        talking = [i for i in group if isinstance(i, int)]
        reading = [p for p in group if isinstance(p, Piece)]
        for i, new in zip(talking, _round(scorer, [generations[i] for i in talking], reading), strict=True):
            events[i] += new
    return events


class _Round:
    """What the generations of one decode put into it."""

    def __init__(self, scorer: Scorer, running: Sequence[Generation], pieces: Sequence[Piece]) -> None:
        self.running = running
        self.drafts: list[Draft] = [NO_DRAFT] * len(running)
        self.draft_ms = [0.0] * len(running)
        # Of each draft, as planned for all until it is planned by itself:
        self._planned = [0] * len(running)  # its tokens
        self._taken = [0] * len(running)  # those that it may still have
        self._more = [0.0] * len(running)  # those that it is expected to give beyond the one of a plain round
        self._drafting = [False] * len(running)  # with a draft model
        self._pieces = [(piece.generation, piece.text) for piece in pieces]
        self._depth = sum(len(g.tokens) for g in running) + sum(len(text) for _, text in self._pieces)
        self._attends_to_all, self._splits = scorer.attends_to_all, scorer.splits
        self._others = len(running) + len(pieces) - 1
        self._rate = 0.0  # tokens per millisecond that all have reached; 0: not asked for
        # Tokens without rows, those of a prompt's last piece, which has one, included.
        self._reading = sum(min(p.tokens, p.generation.unread) for p in pieces) + sum(g.unread for g in running)
        # Each may have one row; what is left of the decode and of the cache is for drafts.
        rows = len(running)
        self._most = max(rows, min(scorer.max_width, scorer.cells - self._depth + rows)) - rows

    def propose(self) -> None:
        """Drafts: their lengths are planned for all together, then each by itself beside these, those first whose
        latest was expected to gain most.

        All are planned; then those of a draft model are made, a decode of it for a token of each. How long one gets may
        depend on the others, and on its own tokens only as far as they are kept.
        """
        if len(self.running) > 1:
            self._plan_together()
        begun = []
        for i in sorted(range(len(self.running)), key=lambda i: -self.running[i].expects):
            g = self.running[i]
            if g.error is not None:
                continue
            begin = time.perf_counter()
            try:
                room = self._room(self._most - sum(self._taken) + self._taken[i])
                one = proposing.begin(i, g.drafting(room + 1, self.beside(i)))
            except Exception as error:
                self._plan(i, 0, 0)
                self._drafting[i] = False
                self._failed(g, error)
                continue
            self._drafting[i] = isinstance(one, proposing.Begun)
            self.draft_ms[i] = _ms(begin) if g.drafter is not None else 0.0
            if isinstance(one, proposing.Begun):
                begun.append(one)
                self._plan(i, one.step.planned, one.step.most)
            else:
                self._drafted(i, one)
        proposing.finish(begun, self._made, self._lost)

    def _room(self, left: int) -> int:
        """Tokens that one draft may have. left: of the decode. Drafts of equal lengths are verified in one pass: where
        they are not planned together, each has its part.
        """
        return min(left, self._most // len(self.running)) if self._splits and not self._rate else left

    def _plan_together(self) -> None:
        """What each is to draft, for the most tokens per second of all."""
        found = [NO_PROSPECT] * len(self.running)
        for i, g in enumerate(self.running):
            beside = replace(self.beside(i), drafting=len(self.running) - 1)  # of a decode of the draft model for all
            try:
                found[i] = g.prospect(self._most + 1, beside) or NO_PROSPECT
            except Exception as error:
                self._failed(g, error)
        if any(prospect.gains for prospect in found):
            self._rate = reached(found)
            for i, k in enumerate(lengths(found, self._rate, self._most, splits=self._splits)):
                self._planned[i] = self._taken[i] = k
                self._more[i], self._drafting[i] = found[i].gain(k), k > 0 and found[i].steps[k - 1]

    def _made(self, one: proposing.Begun[int], draft: Draft) -> None:
        self.draft_ms[one.name] += one.ms
        self._drafted(one.name, draft)

    def _lost(self, one: proposing.Begun[int], error: Exception) -> None:
        self.draft_ms[one.name] += one.ms
        self._plan(one.name, 0, 0)
        self._failed(self.running[one.name], error)

    def _drafted(self, i: int, draft: Draft) -> None:
        self.drafts[i] = draft
        self._plan(i, len(draft.tokens), len(draft.tokens))

    def _plan(self, i: int, planned: int, most: int) -> None:
        self._planned[i], self._taken[i] = planned, most
        self._more[i] = self.running[i].expects if planned else 0.0

    def beside(self, i: int) -> Beside:
        """What the others have, or will have at least, in this decode."""
        if not self._others and not self._reading:
            return ALONE
        return Beside(
            requests=self._others,
            rows=len(self.running) - 1 + sum(self._planned) - self._planned[i],
            tokens=len(self.running) - 1 + sum(self._more) - self._more[i],
            depth=self._depth - len(self.running[i].tokens) if self._attends_to_all else 0,
            drafted=sum(self._planned) - self._planned[i],
            rate=self._rate,
            widths=tuple(1 + n for j, n in enumerate(self._planned) if j != i) if self._splits else (),
            reading=self._reading,
            drafting=sum(self._drafting) - self._drafting[i],
        )

    def requests(self) -> list[ScoreRequest]:
        """Of those that have not failed, and the pieces behind them."""
        stops = self._stops()
        requests = [
            ScoreRequest(g.sequence, g.tokens, draft.tokens, g.cancelled if g is stops else None, g.wants_states)
            for g, draft in zip(self.running, self.drafts, strict=True)
            if g.error is None
        ]
        return requests + [
            ScoreRequest(g.sequence, text, cancel=g.cancelled if g is stops else None, reads=True)
            for g, text in self._pieces
        ]

    def _stops(self) -> Generation | None:
        """Whoever may stop the decode. One that is cancelled meanwhile does not take the others' round with it; but
        it need not wait for the end of a long decode that is more its own than theirs, and that nobody's reply waits
        for.
        """
        readers = [*self.running, *(g for g, _ in self._pieces)]
        if not self._others:
            return readers[0]
        if any(g.completion_started for g in self.running):
            return None
        most = max(readers, key=lambda g: g.unread)
        return most if 2 * most.unread > sum(g.unread for g in readers) else None

    def _failed(self, g: Generation, error: Exception) -> None:
        if not self._others:
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


def _round(scorer: Scorer, running: Sequence[Generation], pieces: Sequence[Piece]) -> list[list[Event]]:
    """Propose, decode, commit."""
    started = time.perf_counter()
    shared = _Round(scorer, running, pieces)
    try:
        shared.propose()
        requests = shared.requests()
        if not requests:
            return [[] for _ in running]
        with scorer.turn:
            begin = time.perf_counter()
            scored = iter(scorer.score(requests))
            verify_ms = _ms(begin)
            for piece in pieces:
                piece.generation.has_read(verify_ms)
            other_ms = max(0.0, _ms(started) - verify_ms - sum(shared.draft_ms)) / max(1, len(running))
            return [
                [] if g.error is not None else shared.commit(g, i, next(scored), verify_ms, other_ms)
                for i, g in enumerate(running)
            ]
    except Cancelled:
        return [g.end_cancelled() if g.cancelled.is_set() else [] for g in running]
    except ContextFullError:
        if len(running) + len(pieces) == 1:
            raise
        # Each fits the context, not all at once: one by one they take each other's room.
        if not running:
            for piece in pieces:
                _round(scorer, [], [piece])
        return [_round(scorer, [g], [])[0] if g.error is None else [] for g in running]


def _ms(since: float) -> float:
    return 1000 * (time.perf_counter() - since)
