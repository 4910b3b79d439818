"""From a socket to the end: the engine, the site, and who ends first."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Sequence

from aiohttp import web

from ..chat_session import check_chats
from ..engine.client import WorkerEngine
from ..engine.protocol import Loaded, Loading, LoadSpec
from .site import Site

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


class ChatServer:
    """Serves the app in browsers until a signal. The first one lets every page save and end, a second one does not."""

    def __init__(
        self,
        engine: WorkerEngine,
        spec: LoadSpec,
        command: Callable[[int | None], Sequence[str]],
        *,
        on_loading: Callable[[Loading], None],
    ) -> None:
        """engine: closed at the end.  spec: loaded before the first page is shown, if it names a model.  command: as
        Site has it.
        """
        self._engine, self._spec, self._command, self._on_loading = engine, spec, command, on_loading

    def serve_until_told(self, listener: socket.socket, on_ready: Callable[[str, Loaded | None], None]) -> None:
        """Run. on_ready: told the key, and what is loaded. Raises what loading failed with."""
        asyncio.run(self._serve(listener, on_ready))

    async def _serve(self, listener: socket.socket, on_ready: Callable[[str, Loaded | None], None]) -> None:
        site = Site(listener.getsockname()[1], self._command, self._engine.attach)
        runner = web.AppRunner(site.app(), access_log=None, shutdown_timeout=1.0)
        told = asyncio.Event()
        self._watch_signals(told, site)
        try:
            loading = asyncio.create_task(asyncio.to_thread(self._load))
            ending = asyncio.create_task(told.wait())
            await asyncio.wait({loading, ending}, return_when=asyncio.FIRST_COMPLETED)
            if told.is_set():
                loading.add_done_callback(lambda done: done.cancelled() or done.exception())  # its engine is closed
                return
            loaded = await loading
            await runner.setup()
            await web.SockSite(runner, listener).start()
            on_ready(site.key, loaded)
            await ending
        finally:
            await site.close()
            await runner.cleanup()
            await asyncio.to_thread(self._engine.close)

    def _load(self) -> Loaded | None:
        self._engine.attach()
        if self._spec.model is None:
            return None
        loaded = self._engine.load(self._spec, self._on_loading)
        check_chats(loaded)
        return loaded

    @staticmethod
    def _watch_signals(told: asyncio.Event, site: Site) -> None:
        def tell() -> None:
            if told.is_set():
                site.kill()
            told.set()

        for name in _SIGNALS:
            with contextlib.suppress(NotImplementedError, AttributeError):  # Windows: Ctrl+C cancels all tasks instead
                asyncio.get_running_loop().add_signal_handler(getattr(signal, name), tell)
