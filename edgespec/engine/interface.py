"""What a front end holds: an Engine to ask, and a Generating for each request that runs.

LocalEngine has the model in this process, WorkerEngine in a child process, ServerEngine behind an address. All are used
alike, from any thread.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Protocol, TypeVar

from ..errors import BadRequestError, EngineError
from ..reply import Reply
from .protocol import (
    ENDS,
    EmbedSpec,
    EngineState,
    Event,
    Failed,
    Finished,
    GenerateSpec,
    Loaded,
    Loading,
    LoadSpec,
    Texts,
    raised,
)

_WATCH_S = 0.5  # how often whoever waits looks whether the engine lives
T = TypeVar("T")


class Generating(Iterator[Event]):
    """The events of one request, in order; the last is Finished. Errors are raised where they came in that order.

    Any thread may iterate, one at a time, and any thread or signal handler may cancel. Closing it, or leaving its
    `with` block, cancels what still runs.
    """

    def __init__(self, cancel: Callable[[], None], watch: Callable[[], None]) -> None:
        """watch: called while nothing comes; it may end the request through tell()."""
        self._cancel, self._watch = cancel, watch
        self._events: deque[Event] = deque()
        self._news = threading.Condition(threading.Lock())
        self._ended = False  # nothing more will be told
        self.reply: Reply | None = None  # once it has finished

    @property
    def ended(self) -> bool:
        """True once the last event has come, whether or not it was looked at."""
        return self._ended

    @property
    def finished(self) -> bool:
        """True once the last event was taken."""
        return self._ended and not self._events

    def tell(self, event: Event) -> None:
        """Called by the engine."""
        with self._news:
            if self._ended:
                return
            self._ended = isinstance(event, ENDS)
            self._events.append(event)
            if len(self._events) == 1 or self._ended:
                self._news.notify_all()

    def take(self, timeout_s: float | None = None) -> list[Event]:
        """All events that have come; waits for at least one. Empty: it has ended, or nothing came in time."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            with self._news:
                if not self._events and not self._ended:
                    left = _WATCH_S if deadline is None else min(_WATCH_S, deadline - time.monotonic())
                    if left > 0:
                        self._news.wait(left)
                failed = bool(self._events) and isinstance(self._events[0], Failed)
                taken = [self._events.popleft()] if failed else self._waiting()
                ended = self._ended
            if taken:
                return [self._opened(event) for event in taken]
            if ended or (deadline is not None and time.monotonic() >= deadline):
                return []
            self._watch()

    def _waiting(self) -> list[Event]:
        taken = []
        while self._events and not isinstance(self._events[0], Failed):
            taken.append(self._events.popleft())
        return taken

    def _opened(self, event: Event) -> Event:
        if isinstance(event, Failed):
            raise raised(event)
        if isinstance(event, Finished):
            self.reply = event.reply
        return event

    def __next__(self) -> Event:
        while True:
            with self._news:
                event = self._events.popleft() if self._events else None
                if event is None:
                    if self._ended:
                        raise StopIteration
                    self._news.wait(_WATCH_S)
            if event is not None:
                return self._opened(event)
            self._watch()

    def cancel(self) -> None:
        """End soon, keeping what was said: Finished comes with finish_reason "cancelled"."""
        if not self._ended:
            self._cancel()

    def close(self) -> None:
        """Cancel, and wait for nothing."""
        self.cancel()

    def __enter__(self) -> Generating:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def result(self, kind: type[T], on_loading: Callable[[Loading], None] | None = None) -> T:
        """Wait for the last event, which is of this type. Raises what the request failed with."""
        for event in self:
            if isinstance(event, kind):
                return event
            if on_loading is not None and isinstance(event, Loading):
                on_loading(event)
        raise EngineError("the engine ended a request without its result; ask again")


class Engine(Protocol):
    """Serves one model at a time to any number of requests, first come, first served. Safe from any thread.

    server: the address of the server that has the model; empty where this program may choose it. Such a model cannot
    be changed, translate() or embed().
    """

    @property
    def server(self) -> str: ...

    def load(self, spec: LoadSpec, on_loading: Callable[[Loading], None] | None = None) -> Loaded:
        """Have a model loaded, and use it for generate() from here on. Raises as edgespec.load() does, and EngineDied.

        on_loading: told how far it is, in this thread. Where this model is loaded already, nothing is done.
        """
        ...

    def generate(self, spec: GenerateSpec) -> Generating:
        """Start a request. Iterating over it raises its errors: BadRequestError, ContextFullError, EngineDied ..."""
        ...

    def translate(self, spec: GenerateSpec) -> Texts:
        """Ids of a prompt or of messages as the model would read them, and the text of ids."""
        ...

    def embed(self, spec: EmbedSpec) -> Generating:
        """Ask for embeddings, which the last event, Embedded, has. Iterating raises BadRequestError, EngineDied ..."""
        ...

    def state(self) -> EngineState | None:
        """What the engine does now, whatever it does; None: there is no process, or it does not answer in a second."""
        ...

    def unload(self) -> None:
        """Free the model's memory. The next request loads it again."""
        ...

    def forget(self, conversation: str) -> None:
        """Delete what is kept on disk of a conversation's state."""
        ...

    def close(self) -> None:
        """End this front end's requests. An engine that nobody uses any more ends by itself."""
        ...


def checked(spec: LoadSpec | None) -> LoadSpec:
    """The model that load() chose."""
    if spec is None:
        raise BadRequestError("no model is chosen yet; call load() first")
    return spec
