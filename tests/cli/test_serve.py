"""`edgespec serve` as a shell starts it: what it prints, what it answers, how it ends."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from edgespec_command import EDGESPEC, Cli, Models

import edgespec

GREEDY = {"temperature": 0, "max_tokens": 12}
SEEDED = {"temperature": 0.9, "seed": 7, "max_tokens": 12}
QUESTION = "Tell me something."


@contextlib.contextmanager
def serving(cli: Cli, *arguments: str | Path) -> Iterator[tuple[subprocess.Popen[str], int, list[str]]]:
    """(process, port, lines that it printed until it was ready); killed where the test has not ended it."""
    command = [*EDGESPEC, "serve", "--threads", "1", "--port", "0", *map(str, arguments)]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, env=cli.env, **pipes) as process:
        try:
            assert process.stdout is not None
            lines = []
            for line in process.stdout:
                lines.append(line)
                if "Ctrl+C" in line:
                    break
            found = re.search(r"http://127\.0\.0\.1:(\d+)/v1", "".join(lines))
            assert found, process.stderr and process.stderr.read()
            yield process, int(found[1]), lines
        finally:
            process.kill()


def chat(port: int, **fields: Any) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = {"messages": [{"role": "user", "content": QUESTION}], **fields}
    with contextlib.closing(connection):
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        return str(json.loads(connection.getresponse().read())["choices"][0]["message"]["content"])


def test_it_says_where_it_is_and_answers_as_run_and_the_api_do(cli: Cli, models: Models, llm: edgespec.LLM) -> None:
    with serving(cli, "-m", models.chat, "--ctx-size", "512", "--parallel", "1") as (process, port, lines):
        shown = "".join(lines)
        assert lines[0] == f"chat at http://127.0.0.1:{port}/v1\n"
        assert "512 tokens of context" in shown
        assert f"curl http://127.0.0.1:{port}/v1/chat/completions -d '" in shown
        assert "one after the other" in shown
        for fields in (GREEDY, SEEDED):
            options = [str(x) for name, value in fields.items() for x in (f"--{name.replace('_', '-')}", value)]
            told = cli("-m", models.chat, "--ctx-size", "512", "--json", *options, QUESTION).json["text"]
            mine = llm.chat([{"role": "user", "content": QUESTION}], **fields).text
            assert chat(port, **fields) == told == mine
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert process.stderr is not None
        assert process.stderr.read().splitlines()[-1] == "the server has ended"


def test_the_printed_curl_command_works(cli: Cli, models: Models) -> None:
    with serving(cli, "-m", models.chat, "--ctx-size", "64", "--alias", "mine") as (process, port, lines):
        (command,) = (line.strip() for line in lines if line.strip().startswith("curl"))
        body = re.search(r"-d '(.*)'$", command)
        assert body
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        with contextlib.closing(connection):
            # As curl sends it: as a form, without a word about JSON.
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            connection.request("POST", "/v1/chat/completions", body[1], headers)
            answer = json.loads(connection.getresponse().read())
        assert (answer["model"], answer["choices"][0]["finish_reason"]) == ("mine", "length")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


def test_a_port_that_is_taken(cli: Cli, models: Models) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = cli.here("serve", "-m", models.chat, "--port", str(taken.getsockname()[1]))
    assert result.code == 1
    assert "give another --port or --host" in result.err
    assert len(result.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--host", "0.0.0.0"], 2, "needs a key"),
        (["--host", "0.0.0.0", "--api-key", "short"], 2, "at least 8"),
        (["--port", "70000"], 2, "65535"),
        (["--timeout", "nan"], 2, "above 0"),
        (["--parallel", "0"], 2, "give 1 to 32"),
        (["--allow-origin", "*"], 2, "no origin"),
        (["--ctx-size", "1"], 2, "context"),
        (["--drafter", "magic"], 2, "magic"),
        (["-m", "no-such-model"], 3, "no-such-model"),
    ],
)
def test_what_cannot_be_served_is_one_line(
    cli: Cli, models: Models, arguments: list[str], code: int, words: str
) -> None:
    result = cli.here("serve", "-m", models.chat, *arguments)
    assert (result.code, len(result.err.splitlines())) == (code, 1), result.err
    assert words in result.err
    assert not result.out


def test_a_file_that_is_no_model_ends_the_server(cli: Cli, tmp_path: Path) -> None:
    (file := tmp_path / "broken.gguf").write_bytes(b"GGUF" + b"\0" * 100)
    result = cli.run([*EDGESPEC, "serve", "-m", str(file), "--port", "0"])
    assert result.code == 4
    assert "broken.gguf" in result.err.splitlines()[-1]
    assert not result.out


def test_without_the_extra_it_says_what_to_install(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("edgespec.server")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    result = cli.here("serve")
    assert result.code == 1
    assert result.err.splitlines() == [
        "edgespec: the server needs the package uvicorn, which is not installed; run: pip install starlette uvicorn"
    ]


def test_the_key_comes_from_the_environment(cli: Cli, models: Models) -> None:
    own = Cli({**cli.env, "EDGESPEC_API_KEY": "a-key-of-some-length"})
    with serving(own, "-m", models.chat, "--ctx-size", "64") as (_, port, lines):
        assert "your API key" in "".join(lines)
        assert "a-key-of-some-length" not in "".join(lines)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", "/v1/models")
            assert connection.getresponse().status == 401


def test_several_are_answered_at_once(cli: Cli, models: Models) -> None:
    """Four clients over a context that does not hold all of their answers: each gets the whole of its own."""
    with (
        serving(cli, "-m", models.chat, "--ctx-size", "256", "--parallel", "3") as (_, port, lines),
        ThreadPoolExecutor(4) as pool,
    ):
        assert "Requests are answered up to 3 at once." in "".join(lines)
        alone = chat(port, temperature=0, max_tokens=90)
        assert list(pool.map(lambda _: chat(port, temperature=0, max_tokens=90), range(4))) == [alone] * 4
