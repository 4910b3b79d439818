"""Who may ask, and how much: Host and Origin (callers.py), API key, size of the body."""

from __future__ import annotations

import asyncio
import hmac
import re
from typing import TYPE_CHECKING

from starlette.requests import Request

from .answering import error_response
from .callers import Callers
from .errors import ApiError
from .settings import ServerSettings

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

OPEN_PATHS = ("/health",)  # for whoever watches over it; says nothing but that it is there


class Guard:
    """ASGI middleware that refuses foreign hosts and origins."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._app = app
        self._callers = Callers(settings.host, settings.hosts, settings.origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # no web sockets, no lifespan
        # Clients join a base address and a path with one slash too many, and lose the key where they are sent on.
        scope = {**scope, "path": re.sub("/{2,}", "/", scope["path"]).rstrip("/") or "/"}
        try:
            self._check(scope)
        except ApiError as error:
            await error_response(error)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        foreign = self._callers.foreign(_headers(scope, b"host"), _headers(scope, b"origin"), scope["scheme"])
        if foreign == "host":
            raise ApiError(
                403,
                "the Host header names another machine; use the address that the server prints, or start it with "
                "--allow-host",
                code="foreign_host",
            )
        if foreign == "origin":
            raise ApiError(
                403,
                "pages of this origin may not ask this server; start it with --allow-origin to let them",
                code="foreign_origin",
            )


class KeyCheck:
    """ASGI middleware that wants the API key, where there is one."""

    def __init__(self, app: ASGIApp, key: str | None) -> None:
        self._app = app
        self._key = None if key is None else key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._key is not None and scope["path"] not in OPEN_PATHS and not self._fits(scope):
            error = ApiError(
                401,
                "the API key is missing or wrong; send it as `Authorization: Bearer KEY`",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )
            await error_response(error)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _fits(self, scope: Scope) -> bool:
        assert self._key is not None
        given = _headers(scope, b"authorization")
        kind, _, key = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        return hmac.compare_digest(key.strip().encode(), self._key) and kind.lower() == "bearer"


async def read_body(request: Request, most: int, within_s: float) -> bytes:
    """The whole body. Raises ApiError where it is packed, too large or late; nothing of a larger one is kept."""
    packed = request.headers.get("content-encoding", "identity")
    if packed.lower() not in ("", "identity"):
        raise ApiError(415, f"the body is packed as {packed[:20]!r}; send it as it is", code="unsupported_encoding")
    length = request.headers.get("content-length", "0")
    if not length.isdigit() or int(length) > most:
        raise _too_large(most)
    body = bytearray()
    try:
        async with asyncio.timeout(within_s):
            async for part in request.stream():
                body += part
                if len(body) > most:
                    raise _too_large(most)
    except TimeoutError:
        raise ApiError(408, f"the body did not come within {within_s:g} s", code="slow_body") from None
    return bytes(body)


def _too_large(most: int) -> ApiError:
    return ApiError(
        413, f"the body may have {most} bytes at most", code="body_too_large", headers={"Connection": "close"}
    )


def _headers(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]
