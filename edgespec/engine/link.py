"""One connection to an engine's process that lives: requests go out, events come in and find their request."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from ..errors import EngineDied, EngineError
from .endpoint import Endpoint, hang_up
from .interface import Generating
from .protocol import Event, failure
from .spawning import Spawned
from .wire import (
    MAX_FRAME,
    Beat,
    Cancel,
    Dying,
    FromEngine,
    Hello,
    ProtocolError,
    Round,
    ToEngine,
    Token,
    Told,
    decode_from_engine,
    encode,
)

_STEP_S = 1.0
_RESTARTS = "it is started again with the next request"


class Link:
    """A connection. Once it is dead, it stays so; whoever wants to go on opens another."""

    def __init__(self, endpoint: Endpoint, connection: Connection, spawned: Spawned | None, silent_s: float) -> None:
        """spawned: the process, if this program started it.  silent_s: without a sign of life it counts as hung."""
        self._endpoint, self._connection, self._spawned = endpoint, connection, spawned
        self._silent_s = silent_s
        self._numbers = itertools.count(1)
        self._requests: dict[int, Generating] = {}
        self._turn = threading.Lock()
        self._sending = threading.Lock()
        self._heard = self._watched = time.monotonic()
        self._silence = 0.0  # seconds without a sign of life, while somebody waited for one
        self._closed = False
        self.dead: str | None = None  # why
        self.pid = 0
        self.greeted = threading.Event()  # also set when it dies before
        self._reader = threading.Thread(target=self._read, name="edgespec-link", daemon=True)
        self._reader.start()

    def request(self, message: Callable[[int], ToEngine]) -> Generating:
        """Send a request, made with the number that it gets. Raises EngineDied, BadRequestError."""
        number = next(self._numbers)
        frame = encode([message(number)])
        asked = Generating(lambda: self._cancel(number), self._watch)
        with self._turn:
            if self.dead is not None:
                raise EngineDied(f"the engine is gone ({self.dead}); {_RESTARTS}")
            if not self._requests:  # it owes no sign of life to whoever waits for nothing
                self._watched, self._silence = time.monotonic(), 0.0
            self._requests[number] = asked
        if not self._send(frame):
            raise EngineDied(f"the engine is gone ({self.dead}); {_RESTARTS}")
        return asked

    def close(self) -> None:
        """Hang up; what still runs is cancelled by the engine."""
        self._closed = True
        hang_up(self._connection)
        self._reader.join(5)

    def _cancel(self, number: int) -> None:
        if number in self._requests:
            self._send(encode([Cancel(number)]))

    def _send(self, frame: bytes) -> bool:
        """False where nobody reads it any more."""
        try:
            with self._sending:
                self._connection.send_bytes(frame)
        except (OSError, ValueError):
            hang_up(self._connection)  # the reader finds out, and tells everyone
            self._reader.join(5)
            return False
        return True

    def _watch(self) -> None:
        """Called by whoever waits: an engine that gives no sign of life is ended."""
        now = time.monotonic()
        with self._turn:
            since = max(self._watched, self._heard)
            self._silence = 0.0 if self._heard > self._watched else self._silence
            self._silence += min(now - since, _STEP_S)  # this program may have been stopped itself for a while
            self._watched = now
            hung = self.dead is None and self._silence > self._silent_s
        if hung:
            self._die(f"no sign of life for {self._silent_s:g} s, so it was ended")
            self._endpoint.kill()
            hang_up(self._connection)

    def _read(self) -> None:
        why = None
        try:
            while True:
                messages = decode_from_engine(self._connection.recv_bytes(MAX_FRAME))
                self._heard = time.monotonic()
                for message in messages:
                    if isinstance(message, Dying):
                        why = message.why
                        self._die(why)
                    else:
                        self._hear(message)
        except ProtocolError as error:
            why = str(error)
        except (EOFError, OSError):
            pass
        if self.dead is None and not self._closed:
            why = why or ("it closed the connection" if self._spawned is None else self._spawned.why())
        self._die(why or "the connection was closed")
        hang_up(self._connection)

    def _hear(self, message: FromEngine) -> None:
        match message:
            case Token(number, event) | Round(number, event):
                self._tell(number, event)
            case Told(number, event):
                self._tell(number, event)
            case Hello(pid):
                self.pid = pid
                self.greeted.set()
            case Beat():
                pass

    def _tell(self, number: int, event: Event) -> None:
        asked = self._requests.get(number)
        if asked is not None:
            asked.tell(event)
            if asked.ended:
                self._requests.pop(number, None)

    def _die(self, why: str) -> None:
        with self._turn:
            if self.dead is None:
                self.dead = why
            left, self._requests = self._requests, {}
        died: EngineError = EngineDied(f"the engine died: {self.dead}; {_RESTARTS}")
        if self._closed:
            died = EngineError("the engine was closed before this request had ended")
        for asked in left.values():
            asked.tell(failure(died))
        self.greeted.set()
