"""The engine's process: serves front ends over a private socket, and ends when the last of them is gone."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from multiprocessing.connection import Connection, Listener

from .core import Core
from .endpoint import Endpoint, hang_up, shut
from .jobs import Job
from .loaded import loader
from .protocol import ENDS, Event, failure
from .spawning import WorkerSettings
from .state_files import states_dir
from .states import States
from .wire import (
    MAX_FRAME,
    Ask,
    Beat,
    Cancel,
    Dying,
    Embed,
    Forget,
    FromEngine,
    Generate,
    Hello,
    Load,
    ProtocolError,
    Round,
    ToEngine,
    Token,
    Translate,
    Unload,
    decode_to_engine,
    encode,
    told,
)

log = logging.getLogger(__name__)

_TOGETHER_S = 0.05  # tokens of so long go in one frame: waking a front end for each would slow the model down
_MOST_CLIENTS = 64
_MOST_UNREAD = 200_000  # messages that a front end may leave unread before it is given up
_CLOSE_S = 10.0
_FIRST_CLIENT_S = 60.0  # a process that nobody ever used
_STUCK = 70  # exit code


class _Client:
    """One connected front end: a thread that reads, and one that writes."""

    def __init__(self, connection: Connection, worker: Worker) -> None:
        self._connection, self._worker = connection, worker
        self._jobs: dict[int, Job | None] = {}
        self._out: list[FromEngine] = []
        self._news = threading.Condition(threading.Lock())
        self._gone = False
        self._urgent = self._resting = False  # something is to be sent at once; the writer lets tokens gather
        self.tell(Hello(os.getpid()))
        self._writer = threading.Thread(target=self._write, name="edgespec-writer", daemon=True)
        self._writer.start()
        threading.Thread(target=self._read, name="edgespec-reader", daemon=True).start()

    @property
    def waits(self) -> bool:
        """True while requests of it have not ended."""
        return bool(self._jobs)

    def tell(self, message: FromEngine) -> None:
        """Send a message soon. From any thread; never waits for the front end."""
        with self._news:
            if self._gone:
                return
            self._out.append(message)
            self._urgent = self._urgent or not isinstance(message, (Token, Round))
            if self._urgent or not self._resting:
                self._news.notify()
            full = len(self._out) > _MOST_UNREAD
        if full:
            log.warning("a front end that does not read was given up")
            shut(self._connection)  # the thread that reads drops it; here, locks may be held

    def finish(self, timeout_s: float) -> None:
        """Send what is left, and hang up."""
        with self._news:
            self._gone = True
            self._news.notify()
        self._writer.join(timeout_s)
        self.drop()

    def drop(self) -> None:
        """The front end is gone, or is made to go: its requests end."""
        with self._news:
            self._gone = True
            self._out.clear()
            self._news.notify()
        jobs, self._jobs = self._jobs, {}
        for job in jobs.values():
            if job is not None:
                self._worker.core.cancel(job)
        hang_up(self._connection)
        self._worker.left(self)

    def _write(self) -> None:
        while out := self._take():
            try:
                self._connection.send_bytes(encode(out))
            except (OSError, ValueError):
                self.drop()
                return

    def _take(self) -> list[FromEngine]:
        """What is to be sent now; nothing once the front end is gone and has been told all."""
        with self._news:
            if self._resting:
                self._news.wait_for(lambda: self._urgent or self._gone, _TOGETHER_S)
                self._resting = False
            self._news.wait_for(lambda: self._out or self._gone)
            out, self._out = self._out, []
            self._urgent, self._resting = False, bool(out) and isinstance(out[-1], (Token, Round))
            return out

    def _read(self) -> None:
        try:
            while True:
                for message in decode_to_engine(self._connection.recv_bytes(MAX_FRAME)):
                    self._serve(message)
        except ProtocolError as error:
            log.warning("a connection that sent garbage was closed: %s", error)
        except (EOFError, OSError):
            pass
        except Exception:
            log.exception("a connection was closed")
        self.drop()

    def _serve(self, message: ToEngine) -> None:
        core = self._worker.core
        match message:
            case Cancel(id):
                job = self._jobs.get(id)
                if job is not None:
                    core.cancel(job)
            case Ask(id):
                self.tell(told(id, core.state(self._worker.clients)))
            case _:
                self._begin(message)

    def _begin(self, message: Load | Generate | Translate | Embed | Unload | Forget) -> None:
        id, core = message.id, self._worker.core
        if id in self._jobs:
            raise ProtocolError(f"request {id} is still running")

        def tell(event: Event) -> None:
            if isinstance(event, ENDS):
                self._jobs.pop(id, None)
            self.tell(told(id, event))

        self._jobs[id] = None
        try:
            match message:
                case Load(_, spec):
                    job = core.load(spec, tell)
                case Generate(_, load, wanted):
                    job = core.generate(load, wanted, tell)
                case Translate(_, load, wanted):
                    job = core.translate(load, wanted, tell)
                case Embed(_, load, texts):
                    job = core.embed(load, texts, tell)
                case Unload():
                    job = core.unload(tell)
                case Forget(_, conversation):
                    job = core.forget(conversation, tell)
        except Exception as error:
            tell(failure(error))
            return
        if id in self._jobs:  # else it has ended already
            self._jobs[id] = job


class Worker:
    """Accepts front ends, watches over the model's thread, and knows when to end."""

    def __init__(self, settings: WorkerSettings, listener: Listener) -> None:
        self._settings, self._listener = settings, listener
        states = States(states_dir() if settings.shared else None)
        self.core = Core(loader(settings.loader), states, idle_s=settings.idle_s)
        self._clients: set[_Client] = set()
        self._turn = threading.Lock()
        self._stop = threading.Event()
        self._why = "the engine was stopped"
        self._alone_since: float = time.monotonic()
        self._used = False

    @property
    def clients(self) -> int:
        return len(self._clients)

    def left(self, client: _Client) -> None:
        """A front end is gone."""
        with self._turn:
            if client in self._clients:
                self._clients.discard(client)
                self._alone_since = time.monotonic()
        if self._used and not self._clients and not self._settings.linger_s:
            self._stop.set()

    def stop(self, *_: object) -> None:
        """End soon; a second time: at once."""
        if self._stop.is_set():
            os._exit(1)
        self._stop.set()

    def serve(self) -> None:
        """Run until it is stopped, or until nobody needs it. In the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.stop)
        threading.Thread(target=self._accept, name="edgespec-accept", daemon=True).start()
        while not self._stop.wait(self._settings.beat_s):
            self._beat()
        Endpoint(self._settings.key).clear()  # from here on whoever looks for an engine starts another
        self._end(self._why)
        ended = self.core.close(_CLOSE_S)
        for client in list(self._clients):
            client.finish(1.0)
        if not self._settings.shared:
            Endpoint(self._settings.key).remove()
        os._exit(0 if ended else 1)

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:
                if self._stop.is_set():
                    return
                time.sleep(0.05)  # out of file descriptors, or a front end that left at once
                continue
            if self._stop.is_set() or len(self._clients) >= _MOST_CLIENTS:
                hang_up(connection)
                continue
            with self._turn:
                self._used = True
                self._clients.add(_Client(connection, self))

    def _beat(self) -> None:
        for client in list(self._clients):
            if client.waits:
                client.tell(Beat())
        stuck, loading = self.core.stuck_s()
        limit = self._settings.stuck_loading_s if loading else self._settings.stuck_s
        if stuck > limit:
            log.error("the model's thread has not moved for %.0f s", stuck)
            Endpoint(self._settings.key).clear()
            self._end(f"the model has not moved for {stuck:.0f} s")
            for client in list(self._clients):
                client.finish(1.0)
            os._exit(_STUCK)
        alone = time.monotonic() - self._alone_since
        if not self._clients and alone >= (self._settings.linger_s if self._used else _FIRST_CLIENT_S):
            self._stop.set()

    def _end(self, why: str) -> None:
        for client in list(self._clients):
            client.tell(Dying(why))
