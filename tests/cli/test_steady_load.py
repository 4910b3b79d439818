"""`edgespec serve` under a steady load: every client gets its own answer, and nothing is left behind.

16 seconds with the warm-up in `make test`; in `make soak` two hours, or EDGESPEC_TEST_LOAD_SECONDS.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from edgespec_command import Cli

from measured import Record

SHORT_S, LONG_S = 8.0, 7200.0
QUICK, STEADY = 300, 30  # decodes per second; a model of 1.5B on a laptop has about 10
CLIENTS = 6
SERVE = (sys.executable, str(Path(__file__).with_name("scripted_program.py")), "serve", "--port", "0", "-m")


@contextlib.contextmanager
def serving(cli: Cli, decodes_per_s: int) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The command with its engine in a process of its own, and its port."""
    program = (*SERVE, f"scripted:echo?decodes_per_s={decodes_per_s}")
    with subprocess.Popen(program, env=cli.env, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://127\.0\.0\.1:(\d+)/v1", process.stdout.readline())
            assert found
            yield process, int(found[1])
        finally:
            process.terminate()
            assert process.wait(30) == 0


def connected(port: int, path: str, body: dict[str, Any]) -> contextlib.closing[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", path, json.dumps(body))
    return contextlib.closing(connection)


def asked(port: int, kind: str, text: str) -> str:
    """The answer to a text, by one of the doors; what hangs up gets none."""
    messages = [{"role": "user", "content": text}]
    if kind == "responses":
        with connected(port, "/v1/responses", {"input": text}) as connection:
            answer = json.loads(connection.getresponse().read())
            return str(answer["output"][0]["content"][0]["text"])
    stream = kind in ("stream", "leaves")
    with connected(port, "/v1/chat/completions", {"messages": messages, "stream": stream}) as connection:
        if kind == "leaves":
            return text
        data = connection.getresponse().read()
    if not stream:
        return str(json.loads(data)["choices"][0]["message"]["content"])
    chunks = [json.loads(line[6:]) for line in data.decode().split("\n") if line.startswith("data: {")]
    return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)


def client(port: int, number: int, until: float) -> int:
    """Ask one thing after the other; returns how many answers came."""
    kinds = itertools.cycle(("stream", "leaves") if number == 0 else ("stream", "whole", "responses"))
    for count in itertools.count():
        if time.monotonic() >= until:
            return count
        text = f"client {number}, question {count}: " + "of the and " * (count % 17)
        assert asked(port, next(kinds), text) == text
    raise AssertionError


def settled(processes: list[psutil.Process], port: int) -> list[tuple[int, int]]:
    """(resident bytes, file descriptors) of each, once nothing runs."""
    end = time.monotonic() + 60
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        if re.search(r"^edgespec_requests_running 0", text, re.MULTILINE):
            time.sleep(0.5)  # for connections to be closed at the other end
            return [(p.memory_info().rss, p.num_fds()) for p in processes]
        assert time.monotonic() < end, text
        time.sleep(0.05)


def run_load(cli: Cli, record: Record, seconds: float, decodes_per_s: int) -> None:
    with serving(cli, decodes_per_s) as (process, port), ThreadPoolExecutor(CLIENTS) as pool:
        server = psutil.Process(process.pid)
        processes = [server, *server.children()]
        assert len(processes) == 2  # and the engine's

        def load(duration: float) -> int:
            until = time.monotonic() + duration
            return sum(pool.map(client, [port] * CLIENTS, range(CLIENTS), [until] * CLIENTS))

        load(max(8.0, seconds / 12))
        before = settled(processes, port)
        requests = load(seconds)
        after = settled(processes, port)
    growth = [now[0] / then[0] - 1 for then, now in zip(before, after, strict=True)]
    more = [now[1] - then[1] for then, now in zip(before, after, strict=True)]
    record(requests=requests, rss_growth=growth, descriptors=more)
    assert requests > CLIENTS
    assert max(growth) < 0.05, (before, after)
    assert max(more) <= 2, (before, after)


@pytest.mark.skipif(os.name != "posix", reason="counts file descriptors")
def test_a_steady_load_leaves_nothing_behind(cli: Cli, record: Record) -> None:
    run_load(cli, record, SHORT_S, QUICK)


@pytest.mark.soak
@pytest.mark.skipif(os.name != "posix", reason="counts file descriptors")
def test_a_long_load_leaves_nothing_behind(cli: Cli, record: Record) -> None:
    run_load(cli, record, float(os.environ.get("EDGESPEC_TEST_LOAD_SECONDS", LONG_S)), STEADY)
