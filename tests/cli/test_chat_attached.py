"""`edgespec chat --attach URL`, line by line: over a running server, and over what only looks like one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from edgespec_command import Cli
from terminal import Terminal

from edgespec.history import History, Message
from foreign_server import foreign, frames, said
from running_server import MODEL, Running, running

PROGRAM = (sys.executable, "-m", "edgespec", "chat", "--plain")
PROMPT = "\x1b[?2004h> "
KEY = "a-key-of-some-length"


@pytest.fixture(scope="module")
def echo() -> Iterator[Running]:
    with running("scripted:echo", parallel=1, api_key=KEY) as server:
        yield server


@pytest.fixture
def own(cli: Cli, tmp_path: Path) -> Cli:
    """A home of its own, and the key of the server in its environment."""
    return Cli({**cli.env, "EDGESPEC_HOME": str(tmp_path / "home"), "EDGESPEC_API_KEY": KEY})


def saved(env: Mapping[str, str]) -> tuple[Message, ...]:
    with History(Path(env["EDGESPEC_HOME"]) / "history" / "history.db") as history:
        latest = history.latest()
        return () if latest is None else history.path(latest.id)


@pytest.mark.skipif(os.name != "posix", reason="terminals as POSIX has them")
def test_a_whole_conversation(own: Cli, echo: Running) -> None:
    talk = Terminal([*PROGRAM, "--attach", echo.base], own.env)
    try:
        talk.expect(f"{MODEL} at http://127.0.0.1:{echo.port} answers, with the draft scripted-echo.gguf")
        talk.expect(PROMPT)
        for text, *expected in (
            ("a robin", "a robin\r\n", f"[{MODEL}]", "tokens/s", "drafted tokens accepted"),
            ("/set temperature 0", "temperature: 0"),
            ("/regenerate", "a robin\r\n"),
            ("/model", f"model: {MODEL} at http://127.0.0.1:{echo.port}"),
            ("/model other", "edgespec: this chat is attached to"),
            ("/drafter none", "edgespec: this chat is attached to"),
            ("/continue", "edgespec: an answer cannot go on through a server; /regenerate it"),
            ("/stats", "guessed"),
            ("a wren", "a wren\r\n"),
        ):
            talk.type(f"{text}\r")
            talk.expect("\n")
            for one in expected:
                talk.expect(one)
            talk.expect(PROMPT)
        talk.type("\x04")
        assert talk.end() == 0
    finally:
        talk.__exit__(None, None, None)
    assert [m.text for m in saved(own.env)] == ["a robin", "a robin", "a wren", "a wren"]
    assert {m.model for m in saved(own.env) if m.role == "assistant"} == {MODEL}


def test_what_is_piped_in_is_one_message(own: Cli, echo: Running, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("three birds", "utf-8")
    files = ("--attach", str(tmp_path / "notes.txt"))
    done = own.here("chat", "-q", "--attach", echo.base, *files, "--temperature", "0", stdin=b"Which?")
    assert (done.code, done.err) == (0, "")
    assert done.out == "notes.txt:\n```\nthree birds\n```\n\nWhich?\n"
    again = own.here("chat", "-q", "--attach", echo.base, "--continue", stdin=b"And?")
    assert (again.code, again.out) == (0, "And?\n")
    assert [m.text for m in saved(own.env)][2:] == ["And?", "And?"]


def test_a_model_of_several(own: Cli) -> None:
    models = {"data": [{"id": "one"}, {"id": "two"}]}
    with foreign(models=models, stream=frames(said("yes", finish_reason="stop"))) as server:
        done = own.here("chat", "--attach", server.url, "-m", "two", stdin=b"hello")
        assert (done.code, done.out) == (0, "yes\n")
        assert "[two] 1 token, plain: " in done.err
        assert server.asked[0]["model"] == "two"
        refused = own.here("chat", "--attach", server.url, "-m", "three", stdin=b"hello")
    assert refused.code == 2
    assert refused.err == f"edgespec: the server at {server.url} has no model 'three'; it has one, two\n"


def test_an_answer_that_breaks_off_is_kept(own: Cli) -> None:
    with foreign(stream=frames(said("half of"), said(" it"), done=False)) as server:
        done = own.here("chat", "-q", "--attach", server.url, stdin=b"hello")
    assert (done.code, done.out) == (1, "half of it\n")
    assert done.err == f"edgespec: the server at {server.url} broke off in the middle of the answer\n"
    assert [(m.text, m.finish_reason) for m in saved(own.env)][1:] == [("half of it", "error")]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--attach", "{url}", "--api-key", "wrong-key"], 2, "the API key is missing or wrong"),
        (["--attach", "{url}", "--attach", "http://127.0.0.1:1"], 2, "two servers"),
        (["--attach", "{url}", "--draft", "none"], 2, "--draft is for a model of this machine"),
        (["--attach", "{url}", "--heads", "none"], 2, "--heads is for a model of this machine"),
        (["--attach", "{url}", "--ctx-size", "512"], 2, "--ctx-size is for a model"),
        (["--attach", "{url}", "--threads", "1"], 2, "--threads is for a model"),
        (["--attach", "{url}", "--serve"], 2, "leave out --attach URL"),
        (["--attach", "{url}", "--temperature", "-1"], 2, "temperature"),
        (["--attach", "http://"], 2, "no address of a server"),
        (["--api-key", "x"], 2, "--api-key goes with --attach URL"),
    ],
)
def test_what_does_not_go_is_one_line(own: Cli, echo: Running, arguments: list[str], code: int, words: str) -> None:
    done = own.here("chat", *(one.format(url=echo.base) for one in arguments), stdin=b"hello")
    assert (done.code, done.out, len(done.err.splitlines())) == (code, "", 1), done.err
    assert words in done.err
    assert saved(own.env) == ()


def test_nobody_there_is_one_line(own: Cli) -> None:
    with foreign() as server:
        url = server.url
    done = own.here("chat", "--attach", url, stdin=b"hello")
    assert (done.code, done.out) == (1, "")
    assert done.err == f"edgespec: no server answers at {url}; is `edgespec serve` running, and is the address right?\n"
