"""HTTP connections that must get on: uvicorn by itself waits for the headers of a request for ever."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


class Connection(H11Protocol):
    """Closes itself where the headers of a request are not there headers_s after it was opened or has begun to come."""

    def __init__(self, headers_s: float, **options: Any) -> None:
        super().__init__(**options)
        self._headers_s = headers_s
        self._due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """The clock runs while a request is expected or half here, from its first sign on."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._forget()
        elif self._due is None and not self.transport.is_closing():
            self._due = self.loop.call_later(self._headers_s, self._late)

    def _forget(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _late(self) -> None:
        self._due = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
