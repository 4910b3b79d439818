"""Tokens gather into frames, so that a front end is woken seldom; whatever is no token is never held back."""

from __future__ import annotations

import queue
import threading
from typing import Any, cast

import pytest

from edgespec.engine import wire, worker
from edgespec.engine.protocol import Done
from edgespec.stats import TokenEvent

MINUTES = 300.0


class Pipe:
    """A connection whose front end says nothing and notes what comes."""

    def __init__(self) -> None:
        self.frames: queue.SimpleQueue[list[wire.FromEngine]] = queue.SimpleQueue()
        self._closed = threading.Event()

    def send_bytes(self, frame: bytes) -> None:
        self.frames.put(wire.decode_from_engine(frame))

    def recv_bytes(self, most: int) -> bytes:
        self._closed.wait()
        raise EOFError

    def fileno(self) -> int:
        raise OSError("no socket")

    def close(self) -> None:
        self._closed.set()


class Left:
    """Stands for the worker, which is told of a front end that is gone."""

    def left(self, client: object) -> None: ...


def token(number: int) -> wire.Token:
    return wire.Token(1, TokenEvent("a", number, "target", 0.0, number))


def test_tokens_gather_and_an_end_takes_them_along_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_TOGETHER_S", MINUTES)
    pipe = Pipe()
    client = worker._Client(cast("Any", pipe), cast("Any", Left()))
    try:
        assert [type(message) for message in pipe.frames.get(timeout=30)] == [wire.Hello]
        client.tell(token(1))
        assert pipe.frames.get(timeout=30) == [token(1)]  # the first one waits for nothing
        while not client._resting:
            pass
        for number in (2, 3, 4):
            client.tell(token(number))
        assert pipe.frames.empty()
        client.tell(wire.told(1, Done()))
        assert pipe.frames.get(timeout=30) == [token(2), token(3), token(4), wire.told(1, Done())]
        client.tell(token(5))
        assert pipe.frames.get(timeout=30) == [token(5)]
    finally:
        client.drop()


def test_tokens_are_not_held_for_long() -> None:
    pipe = Pipe()
    client = worker._Client(cast("Any", pipe), cast("Any", Left()))
    try:
        for number in range(20):
            client.tell(token(number))
        got: list[wire.FromEngine] = []
        while len(got) < 21:
            got += pipe.frames.get(timeout=30)
        assert got[1:] == [token(number) for number in range(20)]
    finally:
        client.drop()
