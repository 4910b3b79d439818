"""The web site: one page, what it is made of, and the socket to the app behind it.

Whoever gets in can read the saved conversations and, with /attach, the files of this user. So it takes the key that
the program prints, in a cookie that its address sets; and no page of another server may ask (server/callers.py).
"""

from __future__ import annotations

import asyncio
import hmac
import html
import re
import secrets
from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files
from pathlib import Path

import textual_serve
from aiohttp import web

from ..errors import EdgeSpecError
from ..server.callers import Callers
from ..text import sanitize
from .visitor import Visitor

MOST_VISITORS = 16  # each is a process of some 100 MB
_MOST_VISITS = 1000  # pages whose conversation is remembered
_HEARTBEAT_S = 15.0
_VISIT = "[A-Za-z0-9_-]{12}"
_OWN = {"page.css": "text/css", "page.js": "text/javascript"}
_REFUSED = {
    "host": "The Host header names another machine. Open the address that the program has printed.",
    "origin": "Pages of other servers may not ask.",
}
_NO_KEY = "Open the address that `edgespec chat --serve` has printed in its terminal: the key is part of it."


class Visit:
    """What is remembered of one page. conversation: None where it has never shown one."""

    def __init__(self) -> None:
        self.conversation: int | None = None
        self.visitor: Visitor | None = None
        self.turn = asyncio.Lock()

    def moved(self, conversation: int) -> None:
        self.conversation = conversation


class Site:
    """Pages and their visitors. A page that is loaded again goes on with its conversation, in a new process."""

    def __init__(self, port: int, command: Callable[[int | None], Sequence[str]], attach: Callable[[], object]) -> None:
        """command: the app's command line; with the conversation of a page that is loaded again, 0: a new one.

        attach: makes sure that the engine runs; may take a while.
        """
        self.key = secrets.token_urlsafe(18)
        self._cookie = f"edgespec-chat-{port}"  # a browser gives cookies to all ports of a name
        self._command, self._attach = command, attach
        self._callers = Callers()
        self._visits: dict[str, Visit] = {}
        self._ending = False

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard])
        folder = Path(textual_serve.__file__).parent / "static"
        app.add_routes(
            [
                web.get("/", self._enter),
                web.get(f"/chat/{{visit:{_VISIT}}}", self._page),
                web.get(f"/live/{{visit:{_VISIT}}}", self._live),
                web.get("/own/{name}", self._file),
                web.static("/static", folder),
            ]
        )
        return app

    async def close(self) -> None:
        """End all visitors, in order; no others come in."""
        self._ending = True
        await asyncio.gather(*(visitor.stop() for visitor in self._visitors()))

    def kill(self) -> None:
        """End all visitors at once."""
        for visitor in self._visitors():
            visitor.kill()

    def _visitors(self) -> list[Visitor]:
        return [visit.visitor for visit in self._visits.values() if visit.visitor is not None]

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        headers = request.headers
        foreign = self._callers.foreign(headers.getall("Host", []), headers.getall("Origin", []), request.scheme)
        response: web.StreamResponse
        if foreign is not None:
            response = web.Response(status=403, text=_REFUSED[foreign])
        elif not self._admitted(request):
            response = web.Response(status=401, text=_NO_KEY)
        else:
            try:
                response = await handler(request)
            except web.HTTPException as error:
                response = error
        if not response.prepared:
            response.headers.update(_headers(request.host if foreign is None else ""))
        return response

    def _admitted(self, request: web.Request) -> bool:
        given = request.cookies.get(self._cookie, "")
        if request.path == "/" and "key" in request.query:
            given = request.query["key"]
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.key.encode())

    async def _enter(self, request: web.Request) -> web.StreamResponse:
        """Every time it is opened, another page; the key does not stay in the address."""
        response = web.Response(status=303, headers={"Location": f"/chat/{secrets.token_urlsafe(9)}"})
        response.set_cookie(self._cookie, self.key, httponly=True, samesite="Lax", path="/")
        return response

    async def _page(self, request: web.Request) -> web.StreamResponse:
        socket = f"ws://{request.host}/live/{request.match_info['visit']}"
        page = files(__package__).joinpath("page.html").read_text("utf-8")
        return web.Response(text=page.replace("{{socket}}", html.escape(socket)), content_type="text/html")

    async def _file(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if name not in _OWN:
            raise web.HTTPNotFound
        text = files(__package__).joinpath(name).read_text("utf-8")
        return web.Response(text=text, content_type=_OWN[name])

    async def _live(self, request: web.Request) -> web.StreamResponse:
        """The socket of a page: an app runs as long as it is open."""
        visit = self._visit(request.match_info["visit"])
        width, height = (_number(request.query.get(name, "")) for name in ("width", "height"))
        socket = web.WebSocketResponse(heartbeat=_HEARTBEAT_S)
        await socket.prepare(request)
        async with visit.turn:
            if visit.visitor is not None:  # the page was loaded again, or opened a second time: the newest has it
                await visit.visitor.stop()
                visit.visitor = None
            if (trouble := await self._trouble()) or self._ending:
                await socket.send_bytes(f"{trouble}\r\n".encode())
                await socket.close()
                return socket
            visitor = visit.visitor = Visitor(self._command(visit.conversation), socket, visit.moved)
            starting = asyncio.create_task(visitor.start(width, height))
            await asyncio.wait({starting})
        try:
            await starting
            await visitor.listen()
        finally:
            await asyncio.shield(visitor.stop())
            if visit.visitor is visitor:
                visit.visitor = None
        return socket

    async def _trouble(self) -> str:
        """Why no other app can be started now, or nothing."""
        if len(self._visitors()) >= MOST_VISITORS:
            return f"{MOST_VISITORS} pages are open, and more there cannot be; close one, then load this one again."
        try:
            await asyncio.to_thread(self._attach)
        except EdgeSpecError as error:
            return sanitize(str(error))
        return ""

    def _visit(self, name: str) -> Visit:
        visit = self._visits.pop(name, None) or Visit()
        self._visits[name] = visit  # the latest last
        for old in [key for key, one in self._visits.items() if one.visitor is None][:-_MOST_VISITS]:
            del self._visits[old]
        return visit


def _number(text: str) -> int:
    return int(text) if re.fullmatch("[0-9]{1,4}", text) else 80


def _headers(host: str) -> dict[str, str]:
    """Nothing is fetched from elsewhere, and no other page can show this one."""
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self'; img-src data:; "
        f"connect-src 'self' {f'ws://{host}' if host else ''}; frame-ancestors 'none'; base-uri 'none'; "
        "form-action 'none'"
    )
    return {
        "Content-Security-Policy": policy,
        "Cache-Control": "no-store",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
