"""Connections that send little or nothing do not hold up the others."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import numpy as np
import pytest

from measured import Record
from running_server import Running, running, worker


@contextmanager
def slow_connections(server: Running, count: int) -> Iterator[None]:
    """Connections in the middle of their headers or of their body."""
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
    with ExitStack() as stack:
        for number in range(count):
            connection = stack.enter_context(closing(socket.create_connection(("127.0.0.1", server.port), 10)))
            connection.sendall(head + (b"Content-Length: 1000\r\n\r\n{" if number % 2 else b"X-Slow: "))
        yield


def seconds(server: Running) -> float:
    begin = time.monotonic()
    assert server.chat("a short question").status == 200
    return time.monotonic() - begin


def test_a_server_with_slow_connections_answers() -> None:
    with running("scripted:echo") as server, slow_connections(server, 100):
        assert seconds(server) < 5


@pytest.mark.soak
def test_slow_connections_cost_the_others_little(record: Record) -> None:
    """300 requests, every other 25 with 100 slow connections beside them."""
    alone: list[float] = []
    beside: list[float] = []
    with running("scripted:echo?decodes_per_s=200", engine=worker(), body_s=600) as server:
        for _ in range(6):
            alone += [seconds(server) for _ in range(25)]
            with slow_connections(server, 100):
                beside += [seconds(server) for _ in range(25)]
    before, after = float(np.percentile(alone, 95)), float(np.percentile(beside, 95))
    record(p95_alone_s=before, p95_beside_s=after, ratio=after / before)
    assert after <= 1.2 * before
