"""The requests that the model works on at once: their prompts in chunks, and between the chunks rounds for all."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ..api import Stream
from ..errors import Cancelled
from ..generation import Event, Generation
from ..rounds import step
from ..scoring import Scorer
from .jobs import Job
from .protocol import Reading
from .states import States

_DRAFT = 16  # tokens of cache that a round may take
_SLACK = 64  # that are free for one which begins, so that it is not set aside soon
_LEAST_CHUNK = 32  # tokens; a smaller decode reads all weights for too little
_ROUNDS = 2.0  # in whose time a chunk should be read: so long are running replies held up


class Running:
    """One request.

    aside: it waits until the cache has room for it, again or for the first time.  reading: the cache lacks more of its
    text than goes into a round.  latest: when it read a chunk, by a counter.
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
            self._tell_reading()

    def read(self, chunk: int) -> int:
        """Read a chunk of what the cache lacks; returns its number of tokens. An error ends the request."""
        before = len(self.generation.sequence.cached)
        try:
            self.reading = self.generation.read_ahead(chunk)
        except Cancelled:  # the round that follows ends it
            self.reading = False
        except Exception as error:
            self.reading = False
            self.generation.fail(error)
        if self.reading and not self.generation.completion:
            self._tell_reading()
        return len(self.generation.sequence.cached) - before

    def tell(self, events: list[Event]) -> None:
        for event in events:
            self.stream.note(event)
            self.job.tell(event)

    def _tell_reading(self) -> None:
        total = len(self.generation.request.prompt)
        held = min(len(self.generation.sequence.cached), total)
        self.reused = held if self.reused is None else self.reused
        self.job.tell(Reading(held, total, self.reused))


class Together:
    """Shares the model between requests. In one thread; the oldest have the first claim on the cache."""

    def __init__(self, states: States) -> None:
        self._states = states
        self._running: list[Running] = []  # oldest first
        self._chunks = 0
        self._round_s = 0.0  # of the latest round
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
        """A chunk for one that reads, and a round for all that do not. n_batch: tokens that a decode may read.

        A request that ends, also with an error, says so in its generation.
        """
        self._make_room(scorer)
        readers = [r for r in self._running if r.reading and not r.aside]
        talkers = [r for r in self._running if not r.reading and not r.aside]
        if readers:
            reader = min(readers, key=lambda r: r.latest)
            self._read(reader, self._chunk(n_batch) if talkers else n_batch)
            talkers += [] if reader.reading else [reader]
        if talkers:
            self._round(scorer, talkers)
        for running in self._running:  # one that is not at the model can be cancelled, too
            if running.job.cancelled.is_set() and running.generation.finish_reason is None:
                running.tell(running.generation.end_cancelled())

    def _round(self, scorer: Scorer, talkers: list[Running]) -> None:
        begin = time.monotonic()
        try:
            events = step(scorer, [r.generation for r in talkers])
        except Exception as error:
            for running in talkers:
                running.generation.fail(error)
            return
        self._round_s = time.monotonic() - begin
        for running, told in zip(talkers, events, strict=True):
            running.tell(told)

    def _read(self, reader: Running, chunk: int) -> None:
        self._chunks += 1
        reader.latest = self._chunks
        begin = time.monotonic()
        tokens = reader.read(chunk)
        if tokens > 0:
            self._token_s = (time.monotonic() - begin) / tokens

    def _chunk(self, n_batch: int) -> int:
        """Tokens that are read in the time of few rounds."""
        wanted = int(_ROUNDS * self._round_s / self._token_s) if self._token_s else 0
        return min(n_batch, max(_LEAST_CHUNK, wanted))

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
