"""`edgespec chat --serve` with scripted models, and its page without a browser: the socket that the page speaks."""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from edgespec.history import History, Message

PROGRAM = (sys.executable, str(Path(__file__).with_name("scripted_program.py")), "chat", "--serve", "--port", "0")
PATIENCE_S = 60.0
COLUMNS, ROWS = 90, 30  # too few columns for the list of conversations, which pages share
ENTER, ESC, CTRL_Q = "\r", "\x1b", "\x11"
_DRIVES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[PX^_\]][^\x07\x1b]*(?:\x07|\x1b\\)|.)")


class Served:
    """The running program. address: as it was printed, with the key."""

    def __init__(self, process: subprocess.Popen[str], env: Mapping[str, str]) -> None:
        self.process, self.env = process, env
        self.lines: list[str] = []
        assert process.stdout is not None
        for line in process.stdout:
            self.lines.append(line)
            if "Ctrl+C" in line:
                break
        found = re.search(r"http://127\.0\.0\.1:(\d+)/\?key=([\w-]+)", "".join(self.lines))
        assert found, (self.lines, process.stderr and process.stderr.read())
        self.address, self.port, self.key = found[0], int(found[1]), found[2]
        self.base = f"http://127.0.0.1:{self.port}"

    def processes(self) -> dict[str, list[psutil.Process]]:
        """All that it has started and that live, by kind: engine, app."""
        found: dict[str, list[psutil.Process]] = {"engine": [], "app": []}
        for process in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                command = process.cmdline()
                if process.status() != psutil.STATUS_ZOMBIE:
                    found["engine" if "edgespec.engine" in command else "app"].append(process)
        return found

    def saved(self) -> list[tuple[Message, ...]]:
        """The branch in use of each conversation, the latest first."""
        with History(Path(self.env["EDGESPEC_HOME"]) / "history" / "history.db") as history:
            return [history.path(one.id) for one in history.conversations()]


@contextlib.contextmanager
def serving(env: Mapping[str, str], *arguments: str) -> Iterator[Served]:
    """The program, until the block ends; then nothing of it is left."""
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, "text": True}
    with subprocess.Popen([*PROGRAM, *arguments], env=env, start_new_session=True, **pipes) as process:
        try:
            served = Served(process, env)
            yield served
        finally:
            for child in psutil.Process(process.pid).children(recursive=True) if process.poll() is None else ():
                with contextlib.suppress(psutil.Error):
                    child.kill()
            process.kill()


class Page:
    """What the page does: takes the key's cookie, opens its socket, sends keys, shows what comes."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self._session = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))  # of addresses, too
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._taking: asyncio.Task[None] | None = None
        self.address = ""
        self.written = b""

    async def get(self, path: str, **headers: str) -> tuple[int, str, Mapping[str, str]]:
        """Status, text and headers; with the cookie, if there is one."""
        async with self._session.get(f"{self.served.base}{path}", headers=headers, allow_redirects=False) as answer:
            return answer.status, (await answer.read()).decode("utf-8", "replace"), dict(answer.headers)

    async def open(self) -> None:
        """As from the printed address; again: as a reload, which draws everything anew."""
        if self._taking is not None:
            await self.close_socket()
        if not self.address:
            async with self._session.get(self.served.address) as answer:
                assert answer.status == 200, await answer.text()
                self.address = answer.url.path
        status, page, _ = await self.get(self.address)
        assert status == 200
        found = re.search(r'data-session-websocket-url="(ws://[^"]+)"', page)
        assert found, page
        self.written = b""
        size = f"width={COLUMNS}&height={ROWS}"
        self._socket = await self._session.ws_connect(f"{found[1]}?{size}", origin=self.served.base)
        await self._socket.send_json(["resize", {"width": COLUMNS, "height": ROWS}])
        self._taking = asyncio.create_task(self._take(self._socket))

    async def refused(self, path: str, **headers: str) -> int:
        """The status that a socket is refused with."""
        try:
            socket = await self._session.ws_connect(f"{self.served.base}{path}", headers=headers)
        except aiohttp.WSServerHandshakeError as error:
            return error.status
        await socket.close()
        return 101

    async def type(self, text: str) -> None:
        assert self._socket is not None
        await self._socket.send_json(["stdin", text])

    async def shows(self, *texts: str) -> None:
        """Wait until all of these have been drawn since the page was opened."""
        await self.until(lambda: all(text in self.text for text in texts), lambda: f"{texts} in {self.text[-3000:]!r}")

    async def until(self, condition: Callable[[], object], what: Callable[[], str]) -> None:
        end = asyncio.get_running_loop().time() + PATIENCE_S
        while not condition():
            assert asyncio.get_running_loop().time() < end, f"waited for {what()}"
            await asyncio.sleep(0.03)

    @property
    def text(self) -> str:
        """What was drawn, without what drives the terminal, and with single blanks."""
        return " ".join(_DRIVES.sub("", self.written.decode("utf-8", "replace")).split())

    @property
    def ended(self) -> bool:
        """The server has closed the socket."""
        return self._taking is not None and self._taking.done()

    async def close_socket(self) -> None:
        """Be gone, as a page that is closed."""
        if self._socket is not None and self._taking is not None:
            await self._socket.close()
            await self._taking
            self._socket = self._taking = None

    async def close(self) -> None:
        await self.close_socket()
        await self._session.close()

    async def _take(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        async for message in socket:
            if message.type is aiohttp.WSMsgType.BINARY:
                self.written += message.data
