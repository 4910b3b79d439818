"""An engine in this process: the model's thread beside the caller's."""

from __future__ import annotations

from collections.abc import Callable

from .core import Core
from .interface import Generating, checked
from .jobs import Job
from .loaded import Loader
from .protocol import Done, EmbedSpec, EngineState, Event, GenerateSpec, Loaded, Loading, LoadSpec, Texts
from .states import States


class LocalEngine:
    """Implements Engine without a process of its own: what kills the model kills this program."""

    server = ""

    def __init__(self, load: Loader, *, states: States | None = None, idle_s: float | None = None) -> None:
        """load: makes the models (loading.load_for_engine: of files).  states: where states of conversations are kept;
        None: nowhere.  idle_s: free the model after so long without a request.
        """
        self._core = Core(load, states or States(None), idle_s=idle_s)
        self._spec: LoadSpec | None = None

    def load(self, spec: LoadSpec, on_loading: Callable[[Loading], None] | None = None) -> Loaded:
        loaded = self._asked(lambda tell: self._core.load(spec, tell)).result(Loaded, on_loading)
        self._spec = spec
        return loaded

    def generate(self, spec: GenerateSpec) -> Generating:
        load = checked(self._spec)
        return self._asked(lambda tell: self._core.generate(load, spec, tell))

    def translate(self, spec: GenerateSpec) -> Texts:
        load = checked(self._spec)
        return self._asked(lambda tell: self._core.translate(load, spec, tell)).result(Texts)

    def embed(self, spec: EmbedSpec) -> Generating:
        load = checked(self._spec)
        return self._asked(lambda tell: self._core.embed(load, spec, tell))

    def state(self) -> EngineState:
        return self._core.state()

    def unload(self) -> None:
        self._asked(self._core.unload).result(Done)

    def forget(self, conversation: str) -> None:
        self._asked(lambda tell: self._core.forget(conversation, tell))

    def close(self) -> None:
        self._core.close()

    def _asked(self, put: Callable[[Callable[[Event], None]], Job]) -> Generating:
        jobs: list[Job] = []
        generating = Generating(lambda: self._core.cancel(jobs[0]), lambda: None)
        jobs.append(put(generating.tell))
        return generating
