"""A server in a thread of the test, on a free port, over an engine with a scripted model."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import openai

from edgespec.engine.client import WorkerEngine
from edgespec.engine.interface import Engine
from edgespec.engine.local import LocalEngine
from edgespec.engine.protocol import LoadSpec
from edgespec.engine.scripted import load
from edgespec.server.serving import Server, open_socket
from edgespec.server.settings import ServerSettings

MODEL = "parrot"


def worker() -> WorkerEngine:
    """The engine in its real process; starting that takes a second."""
    return WorkerEngine(shared=False, loader="edgespec.engine.scripted:load")


@dataclass(frozen=True, slots=True)
class Answered:
    """A response. json: its object, or that of an error."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        found = self.json["error"]
        assert isinstance(found, dict)
        return found

    @property
    def events(self) -> list[Any]:
        """Data of a stream; "[DONE]" is itself."""
        lines = [line[6:] for line in self.body.decode().split("\n") if line.startswith("data: ")]
        return [line if line == "[DONE]" else json.loads(line) for line in lines]


@dataclass(slots=True)
class Running:
    """A server that runs."""

    server: Server
    thread: threading.Thread
    port: int
    key: str = "none is needed"

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @contextmanager
    def client(self, **options: Any) -> Iterator[openai.OpenAI]:
        chosen = {"base_url": self.base, "api_key": self.key, "max_retries": 0, "timeout": 30, **options}
        with openai.OpenAI(**chosen) as client:
            yield client

    def open(self, method: str, path: str, body: Any = None, **headers: str) -> http.client.HTTPConnection:
        """A request that has been sent. body: bytes as they are, else JSON.  headers: `_` stands for `-`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, data, {name.replace("_", "-"): value for name, value in headers.items()})
        return connection

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answered:
        """A request and its whole response."""
        with closing(self.open(method, path, body, **headers)) as connection:
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answered(response.status, found, response.read())

    def post(self, body: Any, path: str = "/v1/chat/completions", **headers: str) -> Answered:
        return self.ask("POST", path, body, **headers)

    def chat(self, text: str, **fields: Any) -> Answered:
        return self.post({"messages": [{"role": "user", "content": text}], **fields})

    def figure(self, name: str, **labels: str) -> float:
        """A value of /metrics; 0 where there is none."""
        inside = ",".join(f'{label}="{value}"' for label, value in labels.items())
        wanted = f"edgespec_{name}{'{' + inside + '}' if labels else ''} "
        lines = self.ask("GET", "/metrics", Authorization=f"Bearer {self.key}").body.decode().splitlines()
        return next((float(line[len(wanted) :]) for line in lines if line.startswith(wanted)), 0.0)

    def reaches(self, name: str, value: float, within_s: float, **labels: str) -> float:
        """Wait until a figure has this value; returns the seconds that it took."""
        begin = time.monotonic()
        while self.figure(name, **labels) != value:
            assert time.monotonic() - begin < within_s, f"{name} is {self.figure(name, **labels)}, not {value}"
            time.sleep(0.01)
        return time.monotonic() - begin

    def stop(self) -> None:
        """As a signal does."""
        if self.thread.is_alive():
            self.server.stop()


def settings(**options: Any) -> ServerSettings:
    return ServerSettings(**{"model": MODEL, "port": 0, "grace_s": 5.0, "parallel": 1, **options})


@contextmanager
def running(
    model: str | LoadSpec, *, engine: Engine | None = None, wait: bool = True, **options: Any
) -> Iterator[Running]:
    """Serve a model until the block ends. model: a scripted one, or of the engine that is given.

    engine: else one in this process.  wait: until it is loaded.  options: of ServerSettings.
    """
    chosen = settings(**options)
    spec = LoadSpec(model=model, draft="scripted") if isinstance(model, str) else model
    engine = engine or LocalEngine(load)
    ready = threading.Event()
    with open_socket(chosen) as listener:
        server = Server(engine, spec, chosen, on_loading=lambda _: None)
        thread = threading.Thread(target=server.serve_until_told, args=(listener, lambda _: ready.set()), daemon=True)
        found = Running(server, thread, listener.getsockname()[1], chosen.api_key or "none is needed")
        thread.start()
        try:
            assert not wait or ready.wait(60), "the model was not loaded"
            yield found
        finally:
            found.stop()
            thread.join(30)
            assert not thread.is_alive(), "the server has not ended"
