"""The queue of an engine: first come, first served, each waiting request told how many are before it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ..errors import Cancelled, DeadlineError, EngineError, QueueFullError
from .protocol import EmbedSpec, Event, GenerateSpec, LoadSpec, Queued, failure

MOST_WAITING = 256


@dataclass(eq=False, slots=True)
class Job:
    """One request.

    run: what the model's thread does for it; returns the last event, or None where rounds go on.
    tell: where its events go; called from any thread.
    load: the model it wants; None: whichever.  spec: what to generate, if anything.  embed: what embeddings are wanted
    of.  forgotten: conversation to forget.  place: the latest that was told.
    """

    run: Callable[[Job], Event | None]
    tell: Callable[[Event], None]
    load: LoadSpec | None = None
    spec: GenerateSpec | None = None
    embed: EmbedSpec | None = None
    forgotten: str | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    expired: bool = False
    timer: threading.Timer | None = None
    place: int = 0

    @property
    def deadline_s(self) -> float | None:
        """Seconds that it may take."""
        asked = self.spec or self.embed
        return None if asked is None else asked.deadline_s

    def tell_place(self, place: int) -> None:
        """Tell it how many are before it, if that is news."""
        if place != self.place:
            self.place = place
            self.tell(Queued(place))

    def check(self) -> None:
        """Raise DeadlineError or Cancelled where it is over."""
        if self.expired:
            limit = self.deadline_s
            raise DeadlineError(f"the request was not finished within {limit:g} s; give it more time, or ask for less")
        if self.cancelled.is_set():
            raise Cancelled("cancelled")


class JobQueue:
    """Jobs that wait, and those that run. Safe from any thread.

    at_once: so many of them run beside each other, if nothing else is in the way; for the places that are told.
    """

    def __init__(self) -> None:
        self._news = threading.Condition(threading.Lock())
        self._waiting: deque[Job] = deque()
        self.running: list[Job] = []
        self.at_once = 1
        self.closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, job: Job) -> None:
        """Add a job, with the clock of its deadline started. Raises QueueFullError, EngineError once closed."""
        with self._news:
            if self.closed:
                raise EngineError("the engine is closed; open another")
            if len(self._waiting) >= MOST_WAITING:
                raise QueueFullError(f"{MOST_WAITING} requests wait for the engine already; try again later")
            job.tell_place(self._place(len(self._waiting)))
            self._waiting.append(job)
            self._news.notify()
        if job.deadline_s is not None:
            job.timer = threading.Timer(job.deadline_s, self._expire, (job,))
            job.timer.daemon = True
            job.timer.start()

    def next(self, timeout_s: float | None, fits: Callable[[Job], bool]) -> Job | None:
        """The oldest job, which runs from now on; None: none came in time, it does not fit, or the queue is closed.

        fits: may it run beside those that do?
        """
        with self._news:
            if not self._waiting and not self.closed:
                self._news.wait(timeout_s)
            if not self._waiting or self.closed or not fits(self._waiting[0]):
                return None
            job = self._waiting.popleft()
            self.running.append(job)
            self._tell_places(0)
            return job

    def done(self, job: Job) -> None:
        """A job runs no more."""
        with self._news:
            if job.timer is not None:
                job.timer.cancel()
            self.running.remove(job)

    def remove(self, job: Job) -> bool:
        """Take out a job that waits; False where it does not wait any more."""
        with self._news:
            if job not in self._waiting:
                return False
            if job.timer is not None:
                job.timer.cancel()
            place = self._waiting.index(job)
            self._waiting.remove(job)
            self._tell_places(place)
            return True

    def close(self) -> list[Job]:
        """Take no more jobs, and cancel those that run; returns those that waited."""
        with self._news:
            self.closed = True
            left = list(self._waiting)
            self._waiting.clear()
            for job in self.running:
                job.cancelled.set()
            self._news.notify_all()
        return left

    def _place(self, waiting: int) -> int:
        """Requests before one that has so many waiting before it."""
        return max(0, waiting + len(self.running) - self.at_once + 1)

    def _tell_places(self, start: int) -> None:
        for waiting, job in enumerate(list(self._waiting)[start:], start):
            job.tell_place(self._place(waiting))

    def _expire(self, job: Job) -> None:
        job.expired = True
        job.cancelled.set()
        if self.remove(job):
            try:
                job.check()
            except DeadlineError as error:
                job.tell(failure(error))
