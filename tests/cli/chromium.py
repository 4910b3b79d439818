"""A headless Chromium, driven over its own debugging protocol: real keys, the real terminal in the page, pictures."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import psutil

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_PATIENCE_S = 60.0
# The page's script keeps its terminal to itself; this is told of it when it is made.
_CATCH_TERMINAL = """
Object.defineProperty(Object.prototype, "websocket_url", {
  configurable: true,
  set(value) {
    window.shown = this;
    Object.defineProperty(this, "websocket_url", {value, writable: true});
  },
});
"""
_SCREEN = """
(() => {
  const buffer = window.shown && window.shown.terminal.buffer.active;
  if (!buffer) return "";
  const lines = [];
  for (let i = 0; i < window.shown.terminal.rows; i++) lines.push(buffer.getLine(i).translateToString(true));
  return lines.join("\\n");
})()
"""
_KEYS = {"Enter": (13, "\r"), "Escape": (27, "")}


def found() -> str | None:
    """The program: EDGESPEC_TEST_BROWSER, else what is installed."""
    named = os.environ.get("EDGESPEC_TEST_BROWSER")
    return named or next((path for name in _NAMES if (path := shutil.which(name))), None)


class Tab:
    """One page. fetched: all addresses that it asked for.  complaints: errors of its scripts, and what was blocked."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, session: str) -> None:
        self._socket, self._session = socket, session
        self._numbers = itertools.count(1000)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.fetched: list[str] = []
        self.complaints: list[str] = []

    async def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol, and its result."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters, "sessionId": self._session})
        return await asyncio.wait_for(answer, _PATIENCE_S)

    async def go(self, address: str) -> None:
        await self.ask("Page.navigate", url=address)

    async def reload(self) -> None:
        await self.evaluate("delete window.shown")
        await self.ask("Page.reload")

    async def evaluate(self, expression: str) -> Any:
        answer = await self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        return answer["result"].get("value")

    async def screen(self) -> str:
        """What the terminal in the page shows."""
        return str(await self.evaluate(_SCREEN))

    async def shows(self, condition: Callable[[str], object]) -> str:
        """Wait until the terminal shows this."""
        end = asyncio.get_running_loop().time() + _PATIENCE_S
        while not condition(text := await self.screen()):
            assert asyncio.get_running_loop().time() < end, f"{text}\n{self.complaints}"
            await asyncio.sleep(0.05)
        return text

    async def type(self, text: str) -> None:
        """As from the keyboard, into whatever has the focus."""
        for character in text:
            key = {"key": character, "text": character, "unmodifiedText": character}
            await self.ask("Input.dispatchKeyEvent", type="keyDown", **key)
            await self.ask("Input.dispatchKeyEvent", type="keyUp", key=character)

    async def press(self, name: str) -> None:
        code, text = _KEYS[name]
        key = {"key": name, "code": name, "windowsVirtualKeyCode": code}
        await self.ask("Input.dispatchKeyEvent", type="keyDown", text=text, **key)
        await self.ask("Input.dispatchKeyEvent", type="keyUp", **key)

    async def picture(self, file: Path) -> None:
        data = (await self.ask("Page.captureScreenshot", format="png"))["data"]
        file.write_bytes(base64.b64decode(data))

    async def take(self) -> None:
        """Read what the browser says, until it is gone."""
        async for message in self._socket:
            told = json.loads(message.data)
            if "id" in told:
                waiting = self._answers.pop(told["id"], None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(told.get("result", {"error": told.get("error")}))
                continue
            parameters = told.get("params", {})
            match told.get("method"):
                case "Network.requestWillBeSent":
                    self.fetched.append(parameters["request"]["url"])
                case "Network.webSocketCreated":
                    self.fetched.append(parameters["url"])
                case "Log.entryAdded" if parameters["entry"]["level"] == "error":
                    self.complaints.append(str(parameters["entry"]))
                case "Runtime.exceptionThrown":
                    self.complaints.append(str(parameters["exceptionDetails"]))


@contextlib.asynccontextmanager
async def browsing(program: str, folder: Path, *, width: int = 1000, height: int = 700) -> AsyncIterator[Tab]:
    """A browser of its own with one empty tab."""
    command = [program, "--headless=new", "--remote-debugging-port=0", f"--user-data-dir={folder}"]
    command += [f"--window-size={width},{height}", "--no-first-run", "--disable-background-networking"]
    command += ["--disable-component-update", "--disable-dev-shm-usage", "--no-proxy-server"]
    command += ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []  # it will not run as root else
    with subprocess.Popen([*command, "about:blank"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        try:
            address = await asyncio.to_thread(_address, process)
            async with aiohttp.ClientSession() as client, client.ws_connect(address, max_msg_size=0) as socket:
                tab = Tab(socket, await _attach(socket))
                taking = asyncio.create_task(tab.take())
                for domain in ("Page", "Network", "Log", "Runtime"):
                    await tab.ask(f"{domain}.enable")
                await tab.ask("Page.addScriptToEvaluateOnNewDocument", source=_CATCH_TERMINAL)
                yield tab
                taking.cancel()
        finally:
            with contextlib.suppress(psutil.Error):
                for child in psutil.Process(process.pid).children(recursive=True):
                    with contextlib.suppress(psutil.Error):
                        child.kill()
            process.kill()


def _address(process: subprocess.Popen[bytes]) -> str:
    said = b""
    assert process.stderr is not None
    for line in process.stderr:
        said += line
        if match := re.search(rb"DevTools listening on (ws://\S+)", line):
            return match[1].decode()
    raise AssertionError(f"the browser does not start: {said[-2000:]!r}")


async def _attach(socket: aiohttp.ClientWebSocketResponse) -> str:
    """The session of the browser's one tab."""
    await socket.send_json({"id": 1, "method": "Target.getTargets"})
    targets = (await _answer(socket, 1))["targetInfos"]
    (tab,) = (one["targetId"] for one in targets if one["type"] == "page")
    await socket.send_json({"id": 2, "method": "Target.attachToTarget", "params": {"targetId": tab, "flatten": True}})
    return str((await _answer(socket, 2))["sessionId"])


async def _answer(socket: aiohttp.ClientWebSocketResponse, number: int) -> dict[str, Any]:
    while True:
        told = json.loads((await socket.receive(_PATIENCE_S)).data)
        if told.get("id") == number:
            return dict(told["result"])
