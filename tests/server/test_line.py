"""Many clients at once, clients that leave, and the end of the server."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import psutil
import pytest

from edgespec.engine.scripted import ScriptedModel
from edgespec.scoring import Rows, ScoreRequest
from running_server import Answered, Running, running, worker


def wait_until_it_runs(server: Running) -> None:
    server.reaches("requests_running", 1, 10)


def test_each_of_64_clients_gets_its_own_answer_or_429() -> None:
    def ask(number: int) -> tuple[int, Answered]:
        text = f"question {number}: {'ab' * (number % 7)}"
        answer = server.chat(text, stream=number % 2 == 1)
        if answer.status == 200:
            told = (
                "".join(c["choices"][0]["delta"].get("content", "") for c in answer.events[:-1])
                if number % 2
                else answer.json["choices"][0]["message"]["content"]
            )
            assert told == text
        return number, answer

    with running("scripted:echo?decodes_per_s=500", engine=worker(), waiting=20) as server:
        with ThreadPoolExecutor(64) as pool:
            answers = [answer for _, answer in pool.map(ask, range(64))]
        statuses = [answer.status for answer in answers]
        assert set(statuses) == {200, 429}
        assert statuses.count(200) >= 22
        full = next(answer for answer in answers if answer.status == 429)
        assert full.error["code"] == "queue_full"
        assert 1 <= int(full.headers["retry-after"]) <= 60
        assert server.figure("requests_running") == server.figure("requests_waiting") == 0
        again = [server.figure("requests_total", endpoint="/v1/chat/completions", status=s) for s in ("200", "429")]
        assert again == [statuses.count(200), statuses.count(429)]


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_its_place_at_once(slow: Running, stream: bool) -> None:
    body = {"messages": [{"role": "user", "content": "count"}], "stream": stream}
    connection = slow.open("POST", "/v1/chat/completions", body)
    wait_until_it_runs(slow)
    if stream:
        assert connection.getresponse().read(10)
    connection.close()
    assert slow.reaches("requests_running", 0, 1) < 1


def test_a_client_that_leaves_while_its_prompt_is_read(slow: Running) -> None:
    """Ten seconds of reading; a request behind it is answered long before."""
    body = {"messages": [{"role": "user", "content": "x" * 20_000}], "stream": True}
    connection = slow.open("POST", "/v1/chat/completions", body)
    wait_until_it_runs(slow)
    connection.close()
    begin = time.monotonic()
    assert slow.chat("count", max_tokens=1).status == 200
    assert time.monotonic() - begin < 2


def test_clients_that_leave_the_line(slow: Running) -> None:
    body = {"messages": [{"role": "user", "content": "count"}]}
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(closing(slow.open("POST", "/v1/chat/completions", body)))
        slow.reaches("requests_waiting", 2, 5)
        assert slow.chat("one too many").status == 429
    slow.reaches("requests_waiting", 0, 1)
    slow.reaches("requests_running", 0, 1)
    assert slow.chat("count", max_tokens=2).status == 200


def test_first_come_first_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first is held until all are there. The order is the model's: clients may hear of their ends in another."""
    order: list[int] = []
    decode, may_decode = ScriptedModel.score, threading.Event()

    def held(model: ScriptedModel, requests: Sequence[ScoreRequest]) -> list[Rows]:
        may_decode.wait(60)
        for request in requests:
            text = bytes(token for token in request.tokens if token < 256)
            number = int(text.split(b"request ")[1][:1])
            if number not in order:
                order.append(number)
        return decode(model, requests)

    monkeypatch.setattr(ScriptedModel, "score", held)

    with running("scripted:echo") as server, ThreadPoolExecutor(5) as pool:
        answers = []
        for number in range(5):
            answers.append(pool.submit(server.chat, f"request {number}"))
            if number < 2:
                server.reaches("requests_running", number + 1, 5)
            else:
                server.reaches("requests_waiting", number - 1, 5)
        may_decode.set()
        assert [answer.result(30).status for answer in answers] == [200] * 5
    assert order == [0, 1, 2, 3, 4]


def test_the_end_lets_a_running_request_finish_and_refuses_those_that_wait() -> None:
    with running("scripted:echo?decodes_per_s=30") as server, ThreadPoolExecutor(3) as pool:
        first = pool.submit(server.chat, "a running request " * 3)
        server.reaches("requests_running", 1, 5)
        second = pool.submit(server.chat, "the next")
        server.reaches("requests_running", 2, 5)
        third = pool.submit(server.chat, "one that waits")
        server.reaches("requests_waiting", 1, 5)
        server.stop()
        assert (third.result(5).status, third.result().error["code"]) == (503, "shutting_down")
        assert first.result(30).json["choices"][0]["message"]["content"] == "a running request " * 3
        assert second.result(30).status == 200


def test_the_end_cancels_what_does_not_finish_and_says_so() -> None:
    with (
        running("scripted:count?decodes_per_s=50", engine=worker(), grace_s=0.3) as server,
        ThreadPoolExecutor(2) as pool,
    ):
        streamed = pool.submit(server.chat, "count", stream=True)
        server.reaches("requests_running", 1, 5)
        whole = pool.submit(server.chat, "count")
        server.reaches("requests_running", 2, 5)
        server.stop()
        answer = streamed.result(10)
        assert answer.status == 200
        assert answer.events[-1]["error"]["code"] == "shutting_down"
        assert (whole.result(10).status, whole.result().error["code"]) == (503, "shutting_down")


def test_a_second_signal_ends_it_at_once() -> None:
    asked = {"messages": [{"role": "user", "content": "count"}], "stream": True}
    with (
        running("scripted:count?decodes_per_s=50", grace_s=60) as server,
        closing(server.open("POST", "/v1/chat/completions", asked)) as connection,
    ):
        response = connection.getresponse()
        assert response.readline().startswith(b"data:")
        server.stop()
        server.stop()
        begin = time.monotonic()
        assert b'"shutting_down"' in response.read()
        assert time.monotonic() - begin < 5


def test_an_engine_that_dies_fails_its_request_and_serves_the_next() -> None:
    engine = worker()
    with running("scripted:echo?decodes_per_s=50", engine=engine) as server, ThreadPoolExecutor(2) as pool:
        whole = pool.submit(server.chat, "x" * 200)
        server.reaches("requests_running", 1, 5)
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGKILL)
        assert (whole.result(20).status, whole.result().error["code"]) == (500, "engine_died")
        assert server.chat("again").json["choices"][0]["message"]["content"] == "again"


def test_nothing_is_left_behind() -> None:
    engine = worker()
    with running("scripted:echo", engine=engine) as server:
        assert server.chat("hi").status == 200
        assert engine.pid is not None
        process = psutil.Process(engine.pid)
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_several_clients_are_answered_in_the_same_rounds() -> None:
    """64 of them, eight at a time: each answer is its client's own, and all of the others' work goes on."""

    def ask(number: int) -> None:
        text = f"client {number} says {'na ' * (number % 9)}"
        answer = server.chat(text, stream=number % 2 == 1, temperature=0)
        assert answer.status == 200
        if number % 2:
            told = "".join(c["choices"][0]["delta"].get("content", "") for c in answer.events[:-1])
        else:
            told = answer.json["choices"][0]["message"]["content"]
        assert told == text

    with running("scripted:echo?decodes_per_s=1000", engine=worker(), parallel=8) as server:
        with ThreadPoolExecutor(64) as pool:
            list(pool.map(ask, range(64)))
        assert server.figure("requests_running") == server.figure("requests_waiting") == 0


def test_a_short_answer_does_not_wait_for_a_long_one() -> None:
    body = {"messages": [{"role": "user", "content": "count"}], "stream": True}
    with (
        running("scripted:count?decodes_per_s=200", engine=worker(), parallel=2) as server,
        closing(server.open("POST", "/v1/chat/completions", body)) as connection,
    ):
        assert connection.getresponse().read(10)
        assert server.chat("count", max_tokens=5).json["usage"]["completion_tokens"] == 5
        assert server.figure("requests_running") == 1
