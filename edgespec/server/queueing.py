"""The line of requests before the engine: first come, first served, with a bound; and the way to it from asyncio.

The engine works on some requests at once. It is given these and one more, so that it never waits for the next, each
watched by a thread; the others wait here, where a client that leaves costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import msgspec

from ..engine.interface import Engine, Generating
from ..engine.protocol import EmbedSpec, Event, Finished, GenerateSpec
from ..errors import DeadlineError, QueueFullError
from .errors import ApiError, api_error, shutting_down

_LONGEST_RETRY_S = 60
_NEW_SHARE = 0.2  # of the latest request in the mean time of one


class Line:
    """All requests of a server. Used in its event loop only."""

    def __init__(self, engine: Engine, *, parallel: int, waiting: int, deadline_s: float) -> None:
        """parallel: requests that the engine works on.  waiting: that may wait for their turn.  deadline_s: for each,
        waiting included.
        """
        self._engine, self._most, self._deadline_s = engine, waiting, deadline_s
        self._given = parallel + 1
        self._pool = ThreadPoolExecutor(self._given, thread_name_prefix="edgespec-request")
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._asked: set[Asked] = set()
        self._mean_s = 1.0
        self.running = 0  # given to the engine
        self.closed = False

    @property
    def waiting(self) -> int:
        """Requests whose turn has not come."""
        return len(self._waiting)

    def ask(self, spec: GenerateSpec | EmbedSpec) -> Asked:
        """Enter the line, which leave() must end. Raises ApiError where it is full or closed."""
        if self.closed:
            raise shutting_down()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.running < self._given and not self._waiting:
            self.running += 1
            turn.set_result(None)
        elif len(self._waiting) < self._most:
            self._waiting.append(turn)
        else:
            raise self._full()
        asked = Asked(self, self._engine, spec, turn, self._deadline_s)
        self._asked.add(asked)
        return asked

    def _full(self) -> ApiError:
        full = api_error(QueueFullError(f"{len(self._waiting)} requests wait already; try again later"))
        expected = math.ceil(self._mean_s * (len(self._waiting) + 1) / (self._given - 1))
        full.headers["Retry-After"] = str(min(max(1, expected), _LONGEST_RETRY_S))
        return full

    def close(self) -> None:
        """Take no more requests, and refuse those that wait; what runs goes on."""
        self.closed = True
        while self._waiting:
            self._waiting.popleft().set_exception(shutting_down())

    def cancel(self) -> None:
        """End what runs."""
        for asked in list(self._asked):
            asked.end(shutting_down())

    def end(self) -> None:
        """Wait for the threads; nothing runs any more."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def start(self, asked: Asked) -> None:
        """Give it to the engine; its turn ends when the engine is done with it."""
        begin = time.monotonic()

        def done(_: object) -> None:
            self._mean_s += _NEW_SHARE * (time.monotonic() - begin - self._mean_s)
            self._next()

        asyncio.get_running_loop().run_in_executor(self._pool, asked.pump).add_done_callback(done)

    def leave(self, asked: Asked, turn: asyncio.Future[None], *, started: bool) -> None:
        """It is over for its client. turn: goes to the next where it came and was not used."""
        self._asked.discard(asked)
        if started:
            return
        if turn in self._waiting:
            self._waiting.remove(turn)
        elif turn.exception() is None:
            self._next()

    def _next(self) -> None:
        """A turn is free: it goes to the oldest, or nobody waits."""
        if self._waiting:
            self._waiting.popleft().set_result(None)
        else:
            self.running -= 1


class Asked:
    """One request in the line or in the engine: start(), take() up to Finished, and in any case leave()."""

    def __init__(
        self,
        line: Line,
        engine: Engine,
        spec: GenerateSpec | EmbedSpec,
        turn: asyncio.Future[None],
        deadline_s: float,
    ) -> None:
        """turn: done when it may start.  deadline_s: seconds from now in which it must be finished."""
        self._line, self._engine, self._spec, self._turn = line, engine, spec, turn
        self._deadline_s, self._due = deadline_s, time.monotonic() + deadline_s
        self._loop = asyncio.get_running_loop()
        self._news: asyncio.Queue[list[Event] | Exception] = asyncio.Queue()
        self._generating: Generating | None = None
        self._why: ApiError | None = None  # it was ended by us
        self._started = self._gone = False

    async def start(self) -> None:
        """Wait for the turn, and begin. Raises ApiError where the server ends meanwhile, DeadlineError."""
        done, _ = await asyncio.wait([self._turn], timeout=self._due - time.monotonic())
        if not done:
            raise DeadlineError(f"the request's turn did not come within {self._deadline_s:g} s; try again")
        self._turn.result()
        self._started = True
        self._line.start(self)

    def leave(self) -> None:
        """Nobody waits for it any more."""
        if not self._gone:
            self._gone = True
            self._line.leave(self, self._turn, started=self._started)
            self._stop()

    async def take(self, patience_s: float) -> list[Event]:
        """Events that have come; the last of all is Finished. Empty: none came for so long.

        Raises what the request failed with.
        """
        try:
            async with asyncio.timeout(patience_s):
                news = await self._news.get()
        except TimeoutError:
            return []
        if isinstance(news, Exception):
            raise self._why or news
        last = news[-1]
        if self._why is not None and isinstance(last, Finished) and last.reply.finish_reason == "cancelled":
            raise self._why
        return news

    def end(self, why: ApiError) -> None:
        """Cancel it; whoever reads its events is told why."""
        self._why = self._why or why
        self._stop()

    def _stop(self) -> None:
        if self._generating is not None and not self._generating.ended:
            self._loop.run_in_executor(None, self._generating.cancel)

    def pump(self) -> None:
        """In a thread: take the engine's events to the event loop."""
        try:
            spec = msgspec.structs.replace(self._spec, deadline_s=max(0.001, self._due - time.monotonic()))
            asked = self._engine.embed(spec) if isinstance(spec, EmbedSpec) else self._engine.generate(spec)
            with asked as self._generating:
                if self._gone or self._why is not None:  # before it could be cancelled
                    self._generating.cancel()
                while events := self._generating.take():
                    self._post(events)
        except Exception as error:
            self._post(error)

    def _post(self, news: list[Event] | Exception) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has been closed
            self._loop.call_soon_threadsafe(self._news.put_nowait, news)
