"""Answers one request, and ends it when its client is gone; one that generates text: at once or as a stream."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response

from ..engine.protocol import Event, Finished, Loading, Queued, Reading
from ..errors import EdgeSpecError
from ..stats import TokenEvent
from . import sse
from .errors import ApiError, api_error
from .forms import Form
from .pieces import Piece, Pieces
from .queueing import Asked
from .schema import Wanted
from .telling import engine_event

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from .metrics import Metrics

log = logging.getLogger(__name__)

PATIENCE_S = 15.0  # between two looks at a request of which nothing comes


class Answering(ABC):
    """An ASGI application for one request that is in line: until it is answered, or its client is gone."""

    def __init__(self, asked: Asked, given: frozenset[str], metrics: Metrics, endpoint: str) -> None:
        """given: names of the fields that were sent."""
        self._asked, self._given = asked, given
        self._metrics, self._endpoint = metrics, endpoint
        self._started = False  # a status has been sent

    @abstractmethod
    async def _tell(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer; the request has its turn. Raises what it failed with."""

    def _failed(self, error: ApiError) -> list[bytes]:
        """The end of an answer whose status has been sent."""
        return []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        work = asyncio.create_task(self._work(scope, receive, send))
        gone = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            left = not work.done()
            for task in (work, gone):
                task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)
            self._asked.leave()
        if left:
            self._metrics.answered(self._endpoint, 499)
        elif not work.cancelled() and (error := work.exception()) is not None:
            raise error

    async def _work(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._asked.start()
            await self._tell(scope, receive, send)
            status = 200
        except Exception as error:
            if not isinstance(error, ApiError | EdgeSpecError):
                log.exception("a request failed")
            told = api_error(error, self._given)
            status = told.status
            if self._started:
                await _put(send, self._failed(told), more=False)
            else:
                await error_response(told)(scope, receive, send)
        self._metrics.answered(self._endpoint, status)


class Answer(Answering):
    """Answers with text."""

    def __init__(
        self, asked: Asked, form: Form, wanted: Wanted, metrics: Metrics, endpoint: str, *, silence_s: float
    ) -> None:
        """silence_s: after which a stream says that it is alive."""
        super().__init__(asked, wanted.given, metrics, endpoint)
        self._silence_s, self._due = silence_s, 0.0
        self._form, self._wanted = form, wanted
        self._begin = time.monotonic()
        self._reused = 0
        self._pieces = Pieces() if wanted.logprobs else None

    async def _tell(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._stream(send) if self._wanted.stream else self._whole(scope, receive, send))

    def _failed(self, error: ApiError) -> list[bytes]:
        return self._form.failed(error)

    async def _whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        pieces: list[Piece] = []
        while True:
            for event in await self._asked.take(PATIENCE_S):
                pieces += self._shown(event)
                if isinstance(event, Finished):
                    pieces += self._last(event)
                    told = self._form.whole(event.reply, pieces, self._reused)
                    await json_response(told)(scope, receive, send)
                    return

    async def _stream(self, send: Send) -> None:
        """The status waits until the engine has begun: an error has its own as long as that is possible."""
        while True:
            left = max(0.001, self._due - time.monotonic()) if self._started else PATIENCE_S
            events = await self._asked.take(left)
            frames: list[bytes] = []
            if not self._started and any(not isinstance(event, Queued | Loading) for event in events):
                self._started = True
                self._due = time.monotonic() + self._silence_s
                await send({"type": "http.response.start", "status": 200, "headers": list(sse.HEADERS)})
                frames += self._form.begin()
            if self._wanted.events and (told := [found for event in events if (found := engine_event(event))]):
                frames += self._form.events(told)
            for event in events:
                pieces = [*self._shown(event)]
                if isinstance(event, Finished):
                    pieces += self._last(event)
                for piece in pieces:
                    if piece.text or (self._wanted.logprobs and piece.logprob is not None):
                        frames += self._form.more(piece)
                if isinstance(event, Finished):
                    await _put(send, frames + self._form.end(event.reply, self._reused), more=False)
                    return
            if not frames and self._started and time.monotonic() >= self._due:  # also where what comes is held back
                frames = [sse.KEEP_ALIVE]
            if frames:
                self._due = time.monotonic() + self._silence_s
                await _put(send, frames)

    def _shown(self, event: Event) -> Iterator[Piece]:
        """What one event adds to the answer."""
        if isinstance(event, Reading):
            self._reused = event.reused
        elif isinstance(event, TokenEvent):
            marker = self._wanted.reading.markers.get(event.id)
            if marker is not None:
                event = replace(event, text=event.text + marker)
            self._metrics.first_token(self._begin)
            self._begin = 0.0
            if self._pieces is None:
                yield Piece.of(event)
            else:
                yield from self._pieces.push(event)

    def _last(self, event: Finished) -> Iterator[Piece]:
        self._metrics.generated(event.reply, self._reused)
        if self._pieces is not None:
            yield from self._pieces.finish(event.reply)


def json_response(data: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Any object as JSON."""
    return Response(msgspec.json.encode(data), status, headers, "application/json")


def error_response(error: ApiError) -> Response:
    return json_response(error.body, error.status, error.headers)


async def _gone(receive: Receive) -> None:
    """Returns when the client has hung up."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _put(send: Send, frames: list[bytes], *, more: bool = True) -> None:
    if frames or not more:
        await send({"type": "http.response.body", "body": b"".join(frames), "more_body": more})
