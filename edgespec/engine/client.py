"""An engine in a process of its own: found or started, shared, watched, and started again after its death."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from filelock import FileLock, Timeout

from ..errors import EngineDied, EngineError
from .endpoint import Endpoint
from .interface import Generating, checked
from .link import Link
from .protocol import Done, EmbedSpec, EngineState, GenerateSpec, Loaded, Loading, LoadSpec, Texts
from .spawning import Spawned, WorkerSettings
from .state_files import forget, states_dir
from .wire import Ask, Embed, Forget, Generate, Load, ToEngine, Translate, Unload

LOADER = "edgespec.loading:load_for_engine"  # makes models where no other loader is named

_START_S = 60.0  # a process may take so long to begin, on a machine that is very busy
_GREET_S = 10.0  # one that runs already
_POLL_S = 0.02
_STATE_S = 1.0
_END_S = 15.0
_TRIES = 3


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds. silent_s: a process without a sign of life for so long counts as hung.  The others: WorkerSettings."""

    silent_s: float = 15.0
    stuck_s: float = 300.0
    stuck_loading_s: float = 1800.0
    linger_s: float = 10.0
    idle_s: float | None = 1800.0
    beat_s: float = 1.0


class WorkerEngine:
    """Implements Engine over a child process.

    A request that runs when the process dies raises EngineDied; the next one starts the process and loads the
    model again by itself. shared: use the process that this user's other front ends use, if one runs; it outlives
    this program while others need it. Otherwise the process is this object's own.
    """

    server = ""

    def __init__(
        self,
        *,
        shared: bool = True,
        loader: str = LOADER,
        limits: Limits | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """loader: "module:function" (loaded.Loader) that makes the models in the process; tests give their own.

        limits: those of the process are set by whoever starts it.  environment: variables for it beside the usual.
        """
        self._limits = limits or Limits()
        self._shared, self._loader = shared, loader
        self._environment = dict(environment or {})
        self._endpoint = Endpoint.shared(loader) if shared else Endpoint.private()
        self._turn = threading.RLock()
        self._link: Link | None = None
        self._spawned: Spawned | None = None
        self._spec: LoadSpec | None = None
        self._closed = False
        self.starts = 0  # connections made, the first one included
        self.start_s = 0.0  # seconds that the latest took

    @property
    def pid(self) -> int | None:
        """Of the process, while it is connected."""
        link = self._link
        return None if link is None or link.dead is not None else link.pid

    def attach(self) -> None:
        """Be connected to the process, started where there is none: it stays while this is open. Raises EngineError."""
        self._connected()

    def load(self, spec: LoadSpec, on_loading: Callable[[Loading], None] | None = None) -> Loaded:
        model = None if spec.model is None else _absolute(spec.model)
        spec = msgspec.structs.replace(spec, model=model, draft=_absolute(spec.draft), heads=_absolute(spec.heads))
        loaded = self._ask(lambda number: Load(number, spec)).result(Loaded, on_loading)
        self._spec = spec
        return loaded

    def generate(self, spec: GenerateSpec) -> Generating:
        load = checked(self._spec)
        return self._ask(lambda number: Generate(number, load, spec))

    def translate(self, spec: GenerateSpec) -> Texts:
        load = checked(self._spec)
        return self._ask(lambda number: Translate(number, load, spec)).result(Texts)

    def embed(self, spec: EmbedSpec) -> Generating:
        load = checked(self._spec)
        return self._ask(lambda number: Embed(number, load, spec))

    def state(self) -> EngineState | None:
        link = self._link
        if link is None or link.dead is not None:
            return None
        try:
            answer = link.request(Ask).take(_STATE_S)
        except EngineError:
            return None
        return next((event for event in answer if isinstance(event, EngineState)), None)

    def unload(self) -> None:
        self._tell(Unload)

    def forget(self, conversation: str) -> None:
        forget(states_dir(), conversation)
        self._tell(lambda number: Forget(number, conversation))  # it may be about to write some more

    def _tell(self, message: Callable[[int], ToEngine]) -> None:
        """Have the process do something, if one is connected."""
        link = self._link
        if link is not None and link.dead is None:
            with contextlib.suppress(EngineDied):
                link.request(message).result(Done)

    def close(self) -> None:
        with self._turn:
            self._closed = True
            link, self._link = self._link, None
            if link is not None:
                link.close()
            if not self._shared:
                if self._spawned is not None and not self._spawned.wait(_END_S):
                    self._spawned.kill()
                self._endpoint.remove()

    def _ask(self, message: Callable[[int], ToEngine]) -> Generating:
        """Send a request to the process, started where there is none. Raises EngineError."""
        for _ in range(_TRIES):
            link = self._connected()
            try:
                return link.request(message)
            except EngineDied:  # since it was last used: this request has lost nothing
                continue
        raise EngineError("the engine's process ends as soon as it is started; run `edgespec doctor`")

    def _connected(self) -> Link:
        with self._turn:
            if self._closed:
                raise EngineError("the engine is closed; open another")
            if self._link is None or self._link.dead is not None:
                begin = time.monotonic()
                self._link = self._open()
                self.starts += 1
                self.start_s = time.monotonic() - begin
            return self._link

    def _open(self) -> Link:
        """Find a process that answers, or start one."""
        why = "it does not answer"
        try:
            with FileLock(self._endpoint.file("lock"), timeout=2 * _START_S):  # of two programs, one starts it
                for _ in range(_TRIES):
                    link = self._find() or self._start()
                    if link.greeted.wait(_GREET_S) and link.dead is None:
                        return link
                    why = link.dead or why
                    link.close()
                    self._endpoint.kill()  # it does not answer, or has just ended
        except Timeout:
            why = "another program has been starting it for long"
        raise EngineError(f"the engine's process cannot be started: {why}; try again, or run `edgespec doctor`")

    def _find(self) -> Link | None:
        connection = self._endpoint.connect()
        if connection is None:
            return None
        return Link(self._endpoint, connection, self._own(), self._limits.silent_s)

    def _own(self) -> Spawned | None:
        return None if self._spawned is None or self._spawned.ended else self._spawned

    def _start(self) -> Link:
        limits = {name: getattr(self._limits, name) for name in Limits.__struct_fields__ if name != "silent_s"}
        if not self._shared:
            limits["linger_s"] = 0.0
        settings = WorkerSettings(key=self._endpoint.key, loader=self._loader, shared=self._shared, **limits)
        self._endpoint.clear()
        self._spawned = spawned = Spawned(self._endpoint, settings, self._environment)
        end = time.monotonic() + _START_S
        while time.monotonic() < end and not spawned.ended:
            connection = self._endpoint.connect()
            if connection is not None:
                link = Link(self._endpoint, connection, spawned, self._limits.silent_s)
                link.greeted.wait(_START_S)
                return link
            time.sleep(_POLL_S)
        if not spawned.ended:
            spawned.kill()
        raise EngineError(f"the engine's process cannot be started: {spawned.why()}")


def _absolute(name: str) -> str:
    """A path as the process sees it, whose working folder may be another; names as they are."""
    try:
        return str(Path(name).absolute()) if Path(name).is_file() else name
    except (OSError, ValueError):  # too long, or with a NUL in it: no path
        return name
