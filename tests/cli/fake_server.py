"""A program that answers as llama-server does, and keeps what it was asked."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# /health once ready; /completion with timings: n tokens in a second. `act` sees how many requests came before.
_SCRIPT = """#!{python}
import json, os, pathlib, signal, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer

log = pathlib.Path({log!r})
with log.open("a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")

class Handler(BaseHTTPRequestHandler):
    asked = 0

    def reply(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.reply({{"status": "ok"}})

    def do_POST(self):
        request = self.rfile.read(int(self.headers["Content-Length"])).decode()
        with log.open("a") as file:
            file.write(request + "\\n")
        asked = Handler.asked
        Handler.asked += 1
        {act}
        n = json.loads(request)["n_predict"]
        self.reply({{"timings": {{"predicted_n": n, "predicted_ms": 1000.0}}, "stop_type": {stop_type!r}}})

    def log_message(self, *_):
        pass

HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


@dataclass(frozen=True, slots=True)
class FakeServer:
    """binary: the program.  log: its command lines and requests, one JSON value a line."""

    binary: Path
    log: Path

    @property
    def starts(self) -> list[list[str]]:
        """The arguments of each start."""
        return [line for line in self._lines if isinstance(line, list)]

    @property
    def requests(self) -> list[dict[str, Any]]:
        """All that it was asked to complete."""
        return [line for line in self._lines if isinstance(line, dict)]

    @property
    def _lines(self) -> list[Any]:
        return [json.loads(line) for line in self.log.read_text("utf-8").splitlines()]


def fake_server(folder: Path, *, act: str = "pass", stop_type: str = "limit") -> FakeServer:
    """Write the program. act: a statement run at each request, with `asked`, the number of requests before it."""
    folder.mkdir(exist_ok=True)
    server = FakeServer(folder / "server", folder / "log")
    script = _SCRIPT.format(python=sys.executable, log=str(server.log), act=act, stop_type=stop_type)
    server.binary.write_text(script, "utf-8")
    server.binary.chmod(0o755)
    return server
