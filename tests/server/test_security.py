"""Who may ask: Host, Origin, key, size."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from edgespec.errors import BadRequestError
from running_server import Running, running, settings

KEY = "a-key-of-some-length"


@pytest.fixture(scope="module")
def guarded() -> Iterator[Running]:
    """With a key, one more host, one page that may ask, and small bodies."""
    with running(
        "scripted:echo",
        api_key=KEY,
        hosts=("box.lan",),
        origins=("https://notes.example",),
        max_body=5000,
        headers_s=0.3,
        body_s=0.3,
    ) as server:
        yield server


ASK = {"messages": [{"role": "user", "content": "hi"}]}


def test_the_key(guarded: Running) -> None:
    assert guarded.post(ASK, Authorization=f"Bearer {KEY}").status == 200
    for wrong in ("", "Bearer", "Bearer x", f"Bearer {KEY}x", f"Basic {KEY}", KEY, "Bearer \xff"):
        for path in ("/v1/chat/completions", "/v1/responses", "/v1/embeddings"):
            answer = guarded.post(ASK, path, Authorization=wrong)
            assert (answer.status, answer.error["code"]) == (401, "invalid_api_key"), wrong
    for path in ("/metrics", "/v1/models", "/nothing"):
        assert guarded.ask("GET", path).status == 401
    assert guarded.ask("GET", "/health").json == {"status": "ok"}


def test_foreign_hosts_are_refused(guarded: Running) -> None:
    port, key = guarded.port, f"Bearer {KEY}"
    for host in (f"localhost:{port}", "127.0.0.1", f"LOCALHOST:{port}", f"[::1]:{port}", f"box.lan:{port}"):
        assert guarded.ask("GET", "/v1/models", Host=host, Authorization=key).status == 200, host
    for host in (
        "evil.example",
        f"evil.example:{port}",
        "127.0.0.1.evil.example",
        "",
        "localhost@evil",
        "10.0.0.1",
        "a:b:c",
    ):
        answer = guarded.ask("GET", "/health", Host=host)
        assert (answer.status, answer.error["code"]) == (403, "foreign_host"), host


def test_foreign_origins_are_refused(guarded: Running) -> None:
    """Also where the body is one that a browser sends without asking first."""
    key = f"Bearer {KEY}"
    for origin in ("https://evil.example", "null", "http://notes.example", "https://notes.example.evil", "file://"):
        answer = guarded.post(ASK, Origin=origin, Content_Type="text/plain", Authorization=key)
        assert (answer.status, answer.error["code"]) == (403, "foreign_origin"), origin
        assert "access-control-allow-origin" not in answer.headers
    assert guarded.post(ASK, Origin=f"http://127.0.0.1:{guarded.port}", Authorization=key).status == 200


def test_a_page_that_may_ask(guarded: Running) -> None:
    origin = "https://notes.example"
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    before = guarded.ask("OPTIONS", "/v1/chat/completions", Origin=origin, **asks)
    assert before.status == 200
    assert before.headers["access-control-allow-origin"] == origin
    answer = guarded.post(ASK, Origin=origin, Authorization=f"Bearer {KEY}")
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, origin)


def test_no_cross_origin_access_by_default(echo: Running) -> None:
    answer = echo.ask("OPTIONS", "/v1/models", Origin="https://notes.example", Access_Control_Request_Method="GET")
    assert answer.status == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_bodies_that_are_too_large(guarded: Running) -> None:
    key = f"Bearer {KEY}"
    told = guarded.post(b"x" * 5001, Authorization=key)
    assert (told.status, told.error["code"]) == (413, "body_too_large")
    with closing(socket.create_connection(("127.0.0.1", guarded.port), 10)) as connection:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: {key}\r\n"
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        connection.sendall(b"1000\r\n" + b"x" * 4096 + b"\r\n1000\r\n" + b"x" * 4096 + b"\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


def test_a_body_that_does_not_come(guarded: Running) -> None:
    with closing(socket.create_connection(("127.0.0.1", guarded.port), 10)) as connection:
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
        begin = time.monotonic()
        connection.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 408 ")
        assert time.monotonic() - begin < 5


@pytest.mark.parametrize("sent", [b"", b"GET /health HTT", b"GET /health HTTP/1.1\r\nHost: localhost\r\n"])
def test_headers_that_do_not_come(guarded: Running, sent: bytes) -> None:
    with closing(socket.create_connection(("127.0.0.1", guarded.port), 10)) as connection:
        connection.sendall(sent)
        assert connection.recv(100) == b""


def test_headers_of_a_second_request_that_do_not_come(guarded: Running) -> None:
    with closing(guarded.open("GET", "/health")) as connection:
        assert connection.getresponse().read() == b'{"status":"ok"}'
        assert connection.sock is not None
        connection.sock.sendall(b"GET /health HTT")
        assert connection.sock.recv(100) == b""


def test_headers_that_are_too_large(guarded: Running) -> None:
    with closing(socket.create_connection(("127.0.0.1", guarded.port), 10)) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000)
        assert connection.recv(100).startswith(b"HTTP/1.1 400 ")
    assert guarded.ask("GET", "/health").status == 200


@pytest.mark.parametrize(
    "options",
    [
        {"host": "0.0.0.0"},
        {"host": "192.168.1.5"},
        {"host": "box.lan"},
        {"host": "::", "api_key": "short"},
        {"api_key": ""},
        {"api_key": "schlüssel"},
        {"port": 65536},
        {"port": -1},
        {"waiting": -1},
        {"deadline_s": 0},
        {"deadline_s": float("nan")},
        {"origins": ("*",)},
        {"origins": ("localhost",)},
    ],
)
def test_settings_that_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(BadRequestError):
        settings(**options)


def test_an_address_of_this_machine_is_a_host_where_others_can_reach_it() -> None:
    with running("scripted:echo", host="0.0.0.0", api_key=KEY) as server:
        assert server.ask("GET", "/health", Host="192.168.1.5").status == 200
        assert server.ask("GET", "/health", Host="evil.example").status == 403
