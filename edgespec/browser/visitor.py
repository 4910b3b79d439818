"""One page in a browser and the app process behind it."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence

import msgspec
from aiohttp import WSMsgType, web
from textual_serve.app_service import AppService
from textual_serve.download_manager import DownloadManager

from ..text import sanitize
from ..tui.browser_driver import CONVERSATION

_DRIVER = "edgespec.tui.browser_driver:BrowserDriver"
_PRELUDE = b"__GANGLION__\n"
_PRELUDE_LINES = 10
_WORDS = 4096  # bytes kept of what it says on standard error
_LEAVE_S, _TERM_S = 15.0, 5.0  # to save and end; after that it is told by signals
_LONGEST, _SHORTEST = 1000, 10  # columns and rows of a page that can be true


class _Told(msgspec.Struct):
    """What an app says beside what it draws."""

    type: str
    id: int = 0


class Visitor(AppService):
    """Begins with start() and ends with stop(), which waits for the process."""

    def __init__(
        self, arguments: Sequence[str], socket: web.WebSocketResponse, on_conversation: Callable[[int], object]
    ) -> None:
        """arguments: the command line of the app.  on_conversation: told which one the page shows, 0: none."""
        super().__init__(
            "",
            write_bytes=socket.send_bytes,
            write_str=socket.send_str,
            close=socket.close,  # type: ignore[arg-type]  # that it answers with a flag is nobody's concern
            download_manager=DownloadManager(),
        )
        self._arguments, self._socket, self._on_conversation = arguments, socket, on_conversation
        self._ready = False
        self._ending = asyncio.Lock()

    async def listen(self) -> None:
        """Take what the page sends, until it is gone."""
        async for message in self._socket:
            if message.type is WSMsgType.TEXT:
                await self._hear(message.data)

    async def _hear(self, text: str) -> None:
        try:
            kind, *rest = msgspec.json.decode(text, type=list[object])
        except (msgspec.DecodeError, ValueError, RecursionError):
            return  # no page of ours
        match kind, rest:
            case "stdin", [str(typed)]:
                await self.send_bytes(typed.encode("utf-8", "replace"))
            case "resize", [{"width": int(width), "height": int(height)}]:
                await self.set_terminal_size(_size(width), _size(height))
            case "ping", [str(data)]:
                with contextlib.suppress(ConnectionError):
                    await self._socket.send_json(["pong", data[:100]])
            case "focus", _:
                await self.focus()
            case "blur", _:
                await self.blur()

    async def start(self, width: int, height: int) -> None:
        await super().start(_size(width), _size(height))

    async def stop(self) -> None:
        """End the app in order: it saves what has come of an answer."""
        async with self._ending:
            if self._task is None:
                return
            if self._ready:
                await self.send_meta({"type": "quit"})
            else:
                self._signal("terminate")  # it does not listen yet, and has nothing to lose
            for how, seconds in (("terminate", _LEAVE_S), ("kill", _TERM_S)):
                if await self._ended(seconds):
                    break
                self._signal(how)
            await self._task
            self._task = None

    def kill(self) -> None:
        """End the app at once. At most the last second of an answer is not saved."""
        self._signal("kill")

    async def run(self) -> None:
        """Carry what the app writes to the page, until the app has ended."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        assert process.stderr is not None
        said = asyncio.create_task(_last_words(process.stderr))
        try:
            await self._begin(process.stdout)
            while True:
                kind, size = await process.stdout.readexactly(1), await process.stdout.readexactly(4)
                await self._carry(kind, await process.stdout.readexactly(int.from_bytes(size, "big")))
        except asyncio.IncompleteReadError:
            pass  # its end
        except (ValueError, msgspec.DecodeError):
            self._signal("terminate")  # no app of ours
        while await process.stdout.read(65536):  # a full pipe would keep it from ending
            pass
        words = sanitize((await said).decode("utf-8", "replace"))
        if await process.wait() and words.strip():
            await self._send("".join(f"\r\n{line}" for line in words.splitlines()[-8:]).encode())
        with contextlib.suppress(ConnectionError):
            await self._socket.close()

    async def _begin(self, stdout: asyncio.StreamReader) -> None:
        for _ in range(_PRELUDE_LINES):
            line = await stdout.readline()
            if line == _PRELUDE:
                self._ready = True
                return
            if not line:
                raise asyncio.IncompleteReadError(b"", 1)
        raise ValueError("no app")

    async def _carry(self, kind: bytes, payload: bytes) -> None:
        if kind == b"D":
            await self._send(payload)
        elif kind == b"M":
            message = msgspec.json.decode(payload, type=_Told)
            if message.type == CONVERSATION:
                self._on_conversation(message.id)

    async def _send(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionError, RuntimeError):  # the page is gone; the app is about to be told
            await self._socket.send_bytes(data)

    async def _open_app_process(self, width: int = 80, height: int = 24) -> Process:
        self._process = process = await asyncio.create_subprocess_exec(
            *self._arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**self._build_environment(width, height), "TEXTUAL_DRIVER": _DRIVER},
            start_new_session=True,  # Ctrl+C is for the server, which ends it in order
        )
        self._stdin = process.stdin
        return process

    async def _ended(self, seconds: float) -> bool:
        assert self._task is not None
        return bool((await asyncio.wait({self._task}, timeout=seconds))[0])

    def _signal(self, how: str) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                getattr(self._process, how)()


def _size(cells: int) -> int:
    return min(max(cells, _SHORTEST), _LONGEST)


async def _last_words(stderr: asyncio.StreamReader) -> bytes:
    kept = b""
    while data := await stderr.read(_WORDS):
        kept = (kept + data)[-_WORDS:]
    return kept
