"""`edgespec chat --attach https://...`: which certificates are trusted, paths before /v1, redirects, the key."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from edgespec_command import Cli
from starlette.applications import Starlette
from starlette.routing import Mount

from certificates import made, shown
from edgespec.engine.local import LocalEngine
from edgespec.engine.protocol import LoadSpec
from edgespec.engine.scripted import load
from edgespec.server.app import Service
from edgespec.server.settings import ServerSettings
from foreign_server import foreign, frames, said

KEY = "a-key-of-some-length"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return made(tmp_path_factory.mktemp("tls"), "box")


@pytest.fixture
def own(cli: Cli, tmp_path: Path) -> Cli:
    """A home of its own, and the key of the server in its environment."""
    return Cli({**cli.env, "EDGESPEC_HOME": str(tmp_path / "home"), "EDGESPEC_API_KEY": KEY})


@contextmanager
def behind_tls(pair: tuple[Path, Path], prefix: str) -> Iterator[str]:
    """Our server, with a key, under a path of a server with TLS; its address."""
    engine = LocalEngine(load)
    service = Service(engine, ServerSettings(model="parrot", api_key=KEY))
    service.loaded = engine.load(LoadSpec(model="scripted:echo", draft="scripted"))
    app = Starlette(routes=[Mount(prefix, service.app())])
    options = {"ssl_certfile": pair[0], "ssl_keyfile": pair[1], "log_config": None, "lifespan": "off"}
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, **options))  # type: ignore[arg-type]
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        until = time.monotonic() + 60
        while not server.started:
            assert thread.is_alive(), "the server has ended"
            assert time.monotonic() < until, "the server has not begun"
            time.sleep(0.01)
        yield f"https://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}{prefix}"
    finally:
        server.should_exit = True
        thread.join(30)
        engine.close()


def test_our_server_behind_tls_and_a_path(own: Cli, pair: tuple[Path, Path]) -> None:
    with behind_tls(pair, "/models/small") as url:
        done = own.here("chat", "-q", "--attach", f"{url}/v1", "--ca-file", str(pair[0]), stdin=b"a heron")
        assert (done.code, done.out, done.err) == (0, "a heron\n", "")
        done = own.here("chat", "-q", "--attach", url, stdin=b"a heron")
        assert (done.code, done.out) == (1, "")
        assert "is not trusted: self-signed certificate; give its authority's with --ca-file" in done.err
        assert len(done.err.splitlines()) == 1


def test_the_system_may_be_told_of_a_certificate(own: Cli, pair: tuple[Path, Path]) -> None:
    with foreign(stream=frames(said("hello", finish_reason="stop")), tls=shown(pair)) as server:
        told = Cli({**own.env, "SSL_CERT_FILE": str(pair[0])})
        done = told.here("chat", "-q", "--attach", f"{server.url}/a/b/", stdin=b"hi")
    assert (done.code, done.out) == (0, "hello\n"), done.err
    assert server.paths == ["/a/b/v1/models", "/a/b/v1/chat/completions"]
    assert server.keys == [f"Bearer {KEY}"]


def test_certificates_that_are_not_for_this_server(own: Cli, pair: tuple[Path, Path], tmp_path: Path) -> None:
    other = made(tmp_path, "other", names="DNS:other.example")
    for tls, trusted, words in (
        (other, other, "not trusted: IP address mismatch, certificate is not valid for '127.0.0.1'; give"),
        (pair, other, "not trusted: self-signed certificate"),
    ):
        with foreign(tls=shown(tls)) as server:
            done = own.here("chat", "-q", "--attach", server.url, "--ca-file", str(trusted[0]), stdin=b"hi")
        assert (done.code, done.out, len(done.err.splitlines())) == (1, "", 1)
        assert words in done.err
        assert server.keys == []  # nothing was said to it


def test_https_where_there_is_none_and_the_other_way_round(own: Cli, pair: tuple[Path, Path]) -> None:
    with foreign() as plain, foreign(tls=shown(pair)) as guarded:
        done = own.here("chat", "-q", "--attach", plain.url.replace("http:", "https:"), stdin=b"hi")
        assert (done.code, done.err.count("\n")) == (1, 1)
        assert "does not speak TLS; give the address with http://" in done.err
        done = own.here("chat", "-q", "--attach", guarded.url.replace("https:", "http:"), stdin=b"hi")
        assert (done.code, done.err.count("\n")) == (1, 1)
        assert "is it https://?" in done.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--attach", "http://127.0.0.1:1", "--ca-file", "x.pem"], "certificates are for https://"),
        (["--attach", "https://127.0.0.1:1", "--ca-file", "no-such.pem"], "No such file"),
        (["--attach", "https://127.0.0.1:1", "--ca-file", "{text}"], "it has none in PEM form"),
        (["--ca-file", "x.pem"], "--ca-file goes with --attach URL"),
    ],
)
def test_what_does_not_go(own: Cli, tmp_path: Path, arguments: list[str], words: str) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("no certificate\n", "utf-8")
    done = own.here("chat", "-q", *(one.format(text=text) for one in arguments), stdin=b"hi")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done.err
    assert words in done.err


def test_a_redirect_is_told_and_not_followed(own: Cli) -> None:
    with foreign() as other, foreign(elsewhere=f"{other.url}/llm/v1/models") as first:
        done = own.here("chat", "-q", "--attach", first.url, stdin=b"hi")
        assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
        assert f"sends on (status 308) to {other.url}/llm; if that" in done.err
        assert other.keys == []  # above all not the key
