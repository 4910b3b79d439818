"""From a socket to the end: loads the model, serves, and shuts down in order."""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
from collections.abc import Callable
from types import FrameType

import msgspec
import uvicorn

from ..engine.interface import Engine
from ..engine.protocol import Loaded, Loading, LoadSpec
from ..errors import EdgeSpecError
from . import listening
from .app import Service
from .connections import Connection
from .settings import MAX_CONNECTIONS, MAX_HEADERS, ServerSettings

log = logging.getLogger(__name__)

_KEEP_ALIVE_S = 75  # for an idle connection
_SPARE = 2  # caches of conversations that nobody asks about just now
_LAST_S = 5  # between cancelling what runs and cutting connections


def open_socket(settings: ServerSettings) -> socket.socket:
    """Listen where the settings say. Raises EdgeSpecError where that is not possible."""
    return listening.open_socket(settings.host, settings.port, MAX_CONNECTIONS, "give another --port or --host")


class Server(uvicorn.Server):
    """Serves one model on one socket.

    The first signal (SIGTERM, Ctrl+C) takes no more requests, refuses those that wait, and gives those that run their
    grace; the second one ends these, too. Clients are told so. A model that cannot be loaded ends the server.
    """

    def __init__(
        self, engine: Engine, spec: LoadSpec, settings: ServerSettings, *, on_loading: Callable[[Loading], None]
    ) -> None:
        self._service = Service(engine, settings)
        config = uvicorn.Config(
            self._service.app(),
            interface="asgi3",
            http=functools.partial(Connection, settings.headers_s),  # type: ignore[arg-type]  # called as a class is
            ws="none",
            lifespan="off",
            log_config=None,
            log_level=None if log.isEnabledFor(logging.DEBUG) else logging.ERROR,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=MAX_HEADERS,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=int(settings.grace_s) + _LAST_S,
        )
        super().__init__(config)
        self._engine, self._settings = engine, settings
        # Where each has its own share, spare ones would make the others smaller.
        sequences = settings.parallel if spec.split_cache else max(spec.parallel, settings.parallel + _SPARE)
        self._spec = msgspec.structs.replace(spec, at_once=settings.parallel, parallel=sequences)
        self._on_loading = on_loading
        self._stops = 0
        self.error: EdgeSpecError | None = None

    def serve_until_told(self, listener: socket.socket, on_ready: Callable[[Loaded], None]) -> None:
        """Run until a signal or stop(). on_ready: called in the event loop. Raises what loading failed with."""
        asyncio.run(self._serve_all(listener, on_ready))
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        """As the first signal does, the second time as the second; from any thread."""
        self._loop.call_soon_threadsafe(self._stop)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called by the signal. uvicorn would raise it again at the end, and the exit code would be the signal's."""
        self.stop()

    async def _serve_all(self, listener: socket.socket, on_ready: Callable[[Loaded], None]) -> None:
        self._loop = asyncio.get_running_loop()
        loading = asyncio.create_task(self._load(on_ready))
        try:
            await self.serve(sockets=[listener])
        finally:
            loading.cancel()
            self._service.line.cancel()
            await asyncio.to_thread(self._engine.close)  # ends a load that is running, and every request
            await asyncio.gather(loading, return_exceptions=True)
            self._service.line.end()

    async def _load(self, on_ready: Callable[[Loaded], None]) -> None:
        def told(event: Loading) -> None:
            self._service.loading = event.line
            self._on_loading(event)

        try:
            loaded = await asyncio.to_thread(self._engine.load, self._spec, told)
        except Exception as error:
            if self._stops:  # its engine was closed
                return
            self.error = (
                error if isinstance(error, EdgeSpecError) else EdgeSpecError(f"the model was not loaded: {error}")
            )
            self.should_exit = True
            return
        self._service.loaded = loaded
        on_ready(loaded)

    def _stop(self) -> None:
        self._stops += 1
        line = self._service.line
        if self._stops == 1:
            log.info("ending: running requests have %g s to finish", self._settings.grace_s)
            line.close()
            self._loop.call_later(self._settings.grace_s, line.cancel)
            self.should_exit = True
        elif self._stops == 2:
            line.cancel()
        else:
            self.force_exit = True
