"""The requests that the model works on at once: each turn is a decode with a round for all, and pieces of prompts."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ..api import Stream
from ..generation import Event, Generation
from ..rounds import Piece, step
from ..scoring import Scorer
from .jobs import Job
from .protocol import Reading
from .states import States

_DRAFT = 16  # tokens of cache that a round may take
_SLACK = 64  # that are free for one which begins, so that it is not set aside soon
_LEAST_PIECE = 32  # tokens: a prompt that is read in smaller pieces is never done
_ROUNDS = 2.0  # in whose time a piece should be read: so long are running replies held up


class Running:
    """One request.

    aside: it waits until the cache has room for it, again or for the first time.  reading: the cache may lack some of
    its text.  latest: when it read a piece, by a counter.
    """

    def __init__(self, job: Job, stream: Stream) -> None:
        self.job, self.stream = job, stream
        self.aside = self.reading = True
        self.latest = 0
        self.reused: int | None = None  # prompt tokens that the cache had

    @property
    def generation(self) -> Generation:
        return self.stream.generation

    def resume(self, states: States) -> None:
        """The cache has room for it. It begins from a saved state where that has more of the prompt than the cache."""
        self.aside, self.reading = False, True
        if self.reused is None:
            states.resume(self.generation.sequence, self.generation.request.prompt)
            self.tell_reading()

    def tell(self, events: list[Event]) -> None:
        for event in events:
            self.stream.note(event)
            self.job.tell(event)

    def tell_reading(self) -> None:
        """How much of its prompt the cache holds."""
        total = len(self.generation.request.prompt)
        held = min(len(self.generation.sequence.cached), total)
        self.reused = held if self.reused is None else self.reused
        self.job.tell(Reading(held, total, self.reused))


class Together:
    """Shares the model between requests. In one thread; the oldest have the first claim on the cache."""

    def __init__(self, states: States) -> None:
        self._states = states
        self._running: list[Running] = []  # oldest first
        self._pieces = 0
        self._round_s = 0.0  # of the latest round without a piece
        self._token_s = 0.0  # of reading one token; 0: not known

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[Running]:
        return iter(list(self._running))

    def add(self, job: Job, stream: Stream) -> None:
        """It takes part from the next turn on."""
        self._running.append(Running(job, stream))

    def remove(self, running: Running) -> None:
        """It has ended."""
        self._running.remove(running)

    def turn(self, scorer: Scorer, n_batch: int) -> None:
        """One decode: a round for all whose text is read, and pieces of what others have to read.

        n_batch: tokens that a decode may read. A request that ends, also with an error, says so in its generation.
        """
        self._make_room(scorer)
        talkers = [r for r in self._running if not r.reading and not r.aside]
        begun = bool(talkers)
        pieces: list[tuple[Running, int]] = []
        left = tokens = self._piece(max(n_batch // 2, n_batch - scorer.max_width)) if begun else n_batch
        for reader in sorted((r for r in self._running if r.reading and not r.aside), key=lambda r: r.latest):
            unread = reader.generation.unread
            if unread <= left - 1:  # its row needs a place, too
                reader.reading = False
                talkers.append(reader)
                left -= unread + 1
            elif left >= min(tokens, _LEAST_PIECE) and not reader.job.cancelled.is_set():
                pieces.append((reader, left))
                left = 0
        if talkers or pieces:
            self._round(scorer, talkers, pieces, tokens - left, begun=begun)
        for running in self._running:  # one that is not at the model can be cancelled, too
            if running.job.cancelled.is_set() and running.generation.finish_reason is None:
                running.tell(running.generation.end_cancelled())

    def _round(
        self, scorer: Scorer, talkers: list[Running], pieces: list[tuple[Running, int]], tokens: int, *, begun: bool
    ) -> None:
        """tokens: of prompts in this decode.  begun: somebody's reply goes on in it."""
        for reader, _ in pieces:
            self._pieces += 1
            reader.latest = self._pieces
        begin = time.monotonic()
        try:
            events = step(scorer, [r.generation for r in talkers], [Piece(r.generation, n) for r, n in pieces])
        except Exception as error:
            for running in (*talkers, *(r for r, _ in pieces)):
                running.generation.fail(error)
            return
        self._learn(time.monotonic() - begin, tokens, begun=begun)
        for running, told in zip(talkers, events, strict=True):
            running.tell(told)
        for reader, _ in pieces:
            if not reader.generation.completion and not reader.job.cancelled.is_set():
                reader.tell_reading()

    def _learn(self, seconds: float, tokens: int, *, begun: bool) -> None:
        """What a decode took, with so many tokens of prompts in it."""
        if not tokens:
            self._round_s = seconds
        elif tokens < _LEAST_PIECE // 2:
            return  # it is mostly the time of its rows
        elif not begun:
            self._token_s = seconds / tokens
        elif seconds > self._round_s > 0:
            self._token_s = (seconds - self._round_s) / tokens

    def _piece(self, most: int) -> int:
        """Tokens that are read in the time of few rounds."""
        wanted = int(_ROUNDS * self._round_s / self._token_s) if self._token_s else 0
        return min(most, max(_LEAST_PIECE, wanted))

    def _make_room(self, scorer: Scorer) -> None:
        """Set aside the youngest that the cache has no room for; take the oldest that it has room for.

        The oldest of all may always go on: its own limit ends it. Nobody begins before an older one that waits.
        """
        free, waits = scorer.cells, False
        for place, running in enumerate(self._running):
            needed = len(running.generation.tokens) + _DRAFT
            if not place or (not running.aside and needed <= free):
                if running.aside:
                    running.resume(self._states)
            elif running.aside and not waits and needed + _SLACK <= free:
                running.resume(self._states)
            else:
                running.aside = waits = True
                continue
            free -= needed
