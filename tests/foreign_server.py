"""A server of the test's own, which sends what it is told, whatever that is."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODELS: dict[str, Any] = {"object": "list", "data": [{"id": "stranger", "object": "model", "owned_by": "somebody"}]}
OURS: dict[str, Any] = {
    "data": [{"id": "parrot", "owned_by": "edgespec", "meta": {"n_ctx": 512, "drafter": "lookup", "chat": True}}]
}


def frames(*chunks: Any, done: bool = True) -> list[bytes]:
    """Of a stream: each object as data."""
    return [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks] + [b"data: [DONE]\n\n"] * done


def said(text: str, **more: Any) -> dict[str, Any]:
    """A chunk of chat."""
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None, **more}]}


def told(*events: dict[str, Any]) -> dict[str, Any]:
    """A chunk with events."""
    return {"choices": [], "edgespec": list(events)}


def token(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "token", "text": text, "id": 65, "source": "target", "logprob": -0.5, "round": 0, **more}


END = {
    "type": "reply",
    "finish_reason": "stop",
    "usage": {"prompt_tokens": 3, "completion_tokens": 1},
    "stats": {"prompt_ms": 1.0, "why": ""},
}


@dataclass(slots=True)
class Foreign:
    """models: what /v1/models answers with, object or bytes.  stream: pieces of the body of an answer.  status: of it.
    kind: its content type.  hold: an answer waits for it before its end.  asked: bodies of requests.
    cut: the connection ends without the end of the body.  paths: that were asked for.  elsewhere: what every answer
    redirects to.  tls: what the server shows itself with."""

    models: Any = field(default_factory=lambda: MODELS)
    stream: Sequence[bytes] = ()
    status: int = 200
    kind: str = "text/event-stream"
    hold: threading.Event | None = None
    cut: bool = False
    asked: list[Any] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    elsewhere: str = ""
    tls: ssl.SSLContext | None = None
    url: str = ""


@contextlib.contextmanager
def foreign(**options: Any) -> Iterator[Foreign]:
    """Until the block ends."""
    server = Foreign(**options)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            server.keys.append(self.headers.get("Authorization"))
            server.paths.append(self.path)
            if server.elsewhere:
                self.begin(308, "text/plain", 0)
                return
            body = server.models if isinstance(server.models, bytes) else json.dumps(server.models).encode()
            self.begin(200, "application/json", len(body))
            self.wfile.write(body)

        def do_POST(self) -> None:
            server.paths.append(self.path)
            server.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            with contextlib.suppress(OSError):
                self.begin(server.status, server.kind, 10**6 if server.cut else None)
                for piece in server.stream:
                    self.wfile.write(piece)
                    self.wfile.flush()
                if server.hold is not None:
                    server.hold.wait(60)
            self.close_connection = True

        def begin(self, status: int, kind: str, length: int | None) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            if server.elsewhere:
                self.send_header("Location", server.elsewhere)
            if length is not None:
                self.send_header("Content-Length", str(length))
            self.send_header("Connection", "close")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    class Listener(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """Nothing is printed of clients that hang up, or do not trust it."""

    listener = Listener(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    if server.tls is not None:  # a handshake that fails is the thread's own, and does not end the server
        listener.socket = server.tls.wrap_socket(listener.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=listener.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    server.url = f"{'http' if server.tls is None else 'https'}://127.0.0.1:{listener.server_address[1]}"
    try:
        yield server
    finally:
        if server.hold is not None:
            server.hold.set()
        listener.shutdown()
        listener.server_close()
        thread.join(30)
