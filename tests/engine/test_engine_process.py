"""The engine's process: it may die or hang in any way, and the next request is answered."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from asked import answered, finished, spec

from edgespec.engine.client import Limits, WorkerEngine
from edgespec.engine.endpoint import Endpoint
from edgespec.engine.protocol import Finished, LoadSpec, Queued
from edgespec.engine.wire import Generate, encode
from edgespec.errors import ContextFullError, EngineDied, EngineError, ModelLoadError
from edgespec.stats import TokenEvent
from engine_faults import LOADER

ECHO = LoadSpec(model="scripted:echo", drafter="none")
SLOW_ECHO = LoadSpec(model="scripted:echo?decodes_per_s=20", drafter="none")  # 50 ms a token; 20 ms of them may be lost
COUNT = LoadSpec(model="scripted:count?decodes_per_s=100", drafter="none")
QUICK = Limits(silent_s=1.5, stuck_s=1.5, beat_s=0.2, linger_s=0.3)
Open = Callable[..., WorkerEngine]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")


def gone(pid: int, within_s: float = 10.0) -> bool:
    """The process has ended by then."""

    def ended() -> bool:
        try:
            return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return True

    return eventually(ended, within_s)


def eventually(holds: Callable[[], bool], within_s: float = 10.0) -> bool:
    """It holds by then."""
    end = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


# fault: (how long until it is found out at most, what the error says)
DEATHS = {
    "!abort": (2.0, "SIGABRT"),
    "!kill": (2.0, "SIGKILL"),
    "!illegal": (2.0, "SIGILL.*edgespec doctor"),
    "!exit": (2.0, "exit code 3"),
    "!stop": (4.0, "no sign of life"),
    "!hold": (4.0, "no sign of life"),
    "!stuck": (4.0, "has not moved"),
}


@pytest.mark.parametrize("fault", DEATHS)
def test_a_death_or_hang_is_one_typed_error_and_the_next_request_is_answered(open_engine: Open, fault: str) -> None:
    within_s, says = DEATHS[fault]
    engine = open_engine(limits=QUICK)
    engine.load(SLOW_ECHO)
    first = engine.pid
    texts: list[str] = []
    begin = time.monotonic()
    running = engine.generate(spec(f"{fault} and more text"))
    with pytest.raises(EngineDied, match=says):
        texts.extend(event.text for event in running if isinstance(event, TokenEvent))
    assert time.monotonic() - begin < within_s
    assert texts  # what came before the fault is not lost, but for the last instant
    assert fault[:3].startswith("".join(texts))
    begin = time.monotonic()
    assert answered(engine, "still here").text == "still here"
    assert engine.start_s < 3.0
    assert engine.starts == 2
    assert engine.pid not in (None, first)
    assert first is not None
    assert gone(first)


def test_a_death_while_loading_is_an_error_of_load(open_engine: Open) -> None:
    engine = open_engine()
    with pytest.raises(EngineDied, match="SIGABRT"):
        engine.load(LoadSpec(model="scripted:fatal"))
    with pytest.raises(ModelLoadError, match="no model"):
        engine.load(LoadSpec(model="scripted:unloadable"))
    engine.load(ECHO)
    assert answered(engine, "still here").text == "still here"


def test_errors_of_requests_keep_their_types_and_the_process_lives(open_engine: Open) -> None:
    engine = open_engine()
    engine.load(LoadSpec(model="scripted:echo?n_ctx=64", drafter="none"))
    with pytest.raises(ContextFullError) as full:
        answered(engine, "x" * 100)
    assert (full.value.needed, full.value.available) == (103, 63)
    with pytest.raises(EngineError, match="RuntimeError: a fault of the model"):
        answered(engine, "!raise something")
    assert engine.starts == 1
    assert answered(engine, "still here").text == "still here"


@pytest.mark.parametrize("times", [10, pytest.param(200, marks=pytest.mark.soak)])
def test_killed_at_random_moments_it_always_answers_the_next_request(
    open_engine: Open, times: int, record_property: Callable[[str, object], None]
) -> None:
    rng = random.Random(times)
    engine = open_engine()
    engine.load(COUNT)
    starts = []
    for number in range(times):
        running = engine.generate(spec("go", max_tokens=200))
        pid, moment = engine.pid, rng.uniform(0, 0.25)
        assert pid is not None
        text, died = "", False
        begin = time.monotonic()
        try:
            while not running.finished:
                for event in running.take(max(0.0, begin + moment - time.monotonic())):
                    text += event.text if isinstance(event, TokenEvent) else ""
                if time.monotonic() - begin >= moment:
                    os.kill(pid, signal.SIGKILL)
                    for event in running:
                        text += event.text if isinstance(event, TokenEvent) else ""
        except EngineDied:
            died = True
        assert died, number
        assert "1 2 3 4 5 6 7 8 9 10 11 12".startswith(text[:26])
        assert answered(engine, "go", max_tokens=4).text == "1 2 "
        starts.append(engine.start_s)
    assert engine.starts == times + 1
    record_property("restart_s", sorted(starts))
    print(f"restarts: median {sorted(starts)[times // 2]:.2f} s, worst {max(starts):.2f} s")
    assert sorted(starts)[times // 2] < 3.0


def test_a_process_killed_between_requests_is_not_noticed(open_engine: Open) -> None:
    engine = open_engine()
    engine.load(ECHO)
    pid = engine.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert gone(pid)
    assert eventually(lambda: engine.pid is None)
    assert answered(engine, "still here").text == "still here"
    assert engine.starts == 2


def test_cancelling_takes_less_than_200_ms_while_writing_and_while_reading(open_engine: Open) -> None:
    engine = open_engine()
    engine.load(LoadSpec(model="scripted:count?decodes_per_s=100&reads_per_s=300", drafter="none"))
    times = []
    for text in ("go", "x" * 3000):
        for _ in range(5):
            running = engine.generate(spec(text))
            next(running)
            begin = time.monotonic()
            running.cancel()
            assert finished(running).finish_reason == "cancelled"
            times.append(time.monotonic() - begin)
    assert sorted(times)[7] < 0.2, times


# Several front ends ----------------------------------------------------------------------------------------------


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home of its own, so that the shared engine is of this test alone."""
    monkeypatch.setenv("EDGESPEC_HOME", str(tmp_path))


@pytest.mark.usefixtures("shared")
def test_two_front_ends_share_one_process_first_come_first_served(open_engine: Open) -> None:
    one, two = (open_engine(shared=True, limits=QUICK) for _ in range(2))
    one.load(COUNT)
    two.load(COUNT)
    assert one.pid == two.pid
    first = one.generate(spec("go"))  # has no end
    assert next(event for event in first if isinstance(event, TokenEvent))
    second = two.generate(spec("go", max_tokens=3))
    assert next(second) == Queued(1)
    first.cancel()
    assert finished(first).finish_reason == "cancelled"
    assert finished(second).stats.completion_tokens == 3
    state = two.state()
    assert state is not None
    assert (state.clients, state.totals.requests) == (2, 2)
    one.close()
    assert answered(two, "go", max_tokens=3).tokens


@pytest.mark.usefixtures("shared")
def test_each_front_end_gets_the_model_that_it_chose(open_engine: Open) -> None:
    one, two = (open_engine(shared=True, limits=QUICK) for _ in range(2))
    one.load(ECHO)
    two.load(COUNT)
    assert answered(one, "said").text == "said"
    assert answered(two, "said", max_tokens=4).text == "1 2 "


@pytest.mark.usefixtures("shared")
def test_a_front_end_that_leaves_takes_its_requests_with_it(open_engine: Open) -> None:
    one, two = (open_engine(shared=True, limits=QUICK) for _ in range(2))
    for engine in (one, two):
        engine.load(COUNT)
    endless = [one.generate(spec("go")) for _ in range(3)]
    next(endless[0])
    begin = time.monotonic()
    one.close()
    assert answered(two, "go", max_tokens=1).tokens
    assert time.monotonic() - begin < 1.0
    with pytest.raises(EngineError, match="was closed"):
        finished(endless[0])


@pytest.mark.usefixtures("shared")
def test_the_process_ends_when_nobody_uses_it_any_more(open_engine: Open) -> None:
    one, two = (open_engine(shared=True, limits=QUICK) for _ in range(2))
    one.load(ECHO)
    two.load(ECHO)
    pid = one.pid
    assert pid is not None
    one.close()
    assert answered(two, "said").text == "said"
    two.close()
    assert gone(pid)
    assert not Endpoint.shared(LOADER).file("sock").exists()


PROGRAM = f"""
import sys, time
sys.path[:0] = [{str(Path(__file__).parent)!r}, {str(Path(__file__).parents[1])!r}]
from asked import spec
from engine_faults import ENVIRONMENT, LOADER
from edgespec.engine.client import WorkerEngine
from edgespec.engine.protocol import LoadSpec
engine = WorkerEngine(shared=False, loader=LOADER, environment=ENVIRONMENT)
engine.load(LoadSpec(model="scripted:count?decodes_per_s=100", drafter="none"))
running = engine.generate(spec("go"))
next(running)
print(engine.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_process_ends_with_the_program_that_started_it(number: signal.Signals) -> None:
    program = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert program.stdout is not None
    with program.stdout:
        pid = int(program.stdout.readline())
        program.send_signal(number)
        program.wait(10)
    assert gone(pid, 3.0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_process_says_so_and_leaves_nothing_behind(open_engine: Open, number: signal.Signals) -> None:
    engine = open_engine()
    engine.load(COUNT)
    running = engine.generate(spec("go"))
    next(running)
    pid = engine.pid
    assert pid is not None
    os.kill(pid, number)
    with pytest.raises(EngineDied, match="was stopped"):
        finished(running)
    assert gone(pid, 5.0)
    assert not engine._endpoint.file("sock").exists()
    assert answered(engine, "go", max_tokens=4).text == "1 2 "


# The socket ------------------------------------------------------------------------------------------------------


def test_only_its_user_can_open_the_socket(open_engine: Open) -> None:
    engine = open_engine()
    engine.load(ECHO)
    for suffix, mode in (("sock", 0o600), ("log", 0o600)):
        assert engine._endpoint.file(suffix).stat().st_mode & 0o777 == mode
    assert engine._endpoint.file("sock").parent.stat().st_mode & 0o777 == 0o700


def test_a_folder_of_somebody_else_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "edgespec").symlink_to(tmp_path)
    with pytest.raises(EngineError, match="not a folder of yours"):
        WorkerEngine(shared=False).load(ECHO)


def test_garbage_on_the_socket_never_ends_the_engine(open_engine: Open) -> None:
    engine = open_engine()
    engine.load(COUNT)
    running = engine.generate(spec("go", max_tokens=60))
    next(running)
    rng = random.Random(3)
    frames = [b"", b"\x00" * 10, b"GET / HTTP/1.1\r\n\r\n", rng.randbytes(100_000), b"\x93" * 4000]
    beginnings = [b"\x00", b"\x7f\xff\xff\xff", b"\xff" * 12, rng.randbytes(9)]
    for _ in range(20):
        connection = engine._endpoint.connect()
        assert connection is not None
        with connection:
            raw = os.dup(connection.fileno())
            try:
                if rng.random() < 0.5:
                    connection.send_bytes(rng.choice(frames))
                else:  # not even a frame: a length that is never delivered, or one that is too large
                    os.write(raw, rng.choice(beginnings))
            finally:
                os.close(raw)
    reply = finished(running)
    assert reply.finish_reason == "length"
    assert engine.starts == 1
    assert answered(engine, "go", max_tokens=4).text == "1 2 "


def test_a_front_end_that_was_stopped_itself_does_not_take_the_engine_for_hung() -> None:
    program = PROGRAM.replace("ENVIRONMENT)", "ENVIRONMENT, limits=Limits(silent_s=1.5, beat_s=0.2))")
    program = program.replace("import WorkerEngine", "import Limits, WorkerEngine")
    counted = "print(sum(1 for _ in zip(running, range(500))), engine.starts, flush=True)"
    program = program.replace("time.sleep(60)", counted)
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert child.stdout is not None
    with child.stdout:
        child.stdout.readline()
        child.send_signal(signal.SIGSTOP)
        time.sleep(2.0)  # what a person does with Ctrl+Z
        child.send_signal(signal.SIGCONT)
        assert child.stdout.readline() == b"500 1\n"
        child.wait(10)


def test_a_process_that_cannot_start_is_an_error_with_a_reason(open_engine: Open) -> None:
    engine = open_engine(loader="no_such_module:load")
    with pytest.raises(EngineError, match=r"cannot be started: exit code 1 .*no_such_module"):
        engine.load(ECHO)


def test_a_front_end_that_reads_nothing_does_not_stop_the_others(open_engine: Open) -> None:
    engine = open_engine()
    engine.load(LoadSpec(model="scripted:count", drafter="none"))
    connection = engine._endpoint.connect()
    assert connection is not None
    with connection:  # asks for a long reply, and never looks at it
        load = LoadSpec(model="scripted:count", drafter="none")
        connection.send_bytes(encode([Generate(1, load, spec("go", max_tokens=4000))]))
        assert answered(engine, "go", max_tokens=4).text == "1 2 "


def test_a_long_reply_arrives_whole_and_in_order(open_engine: Open) -> None:
    engine = open_engine()
    engine.load(LoadSpec(model="scripted:count", draft="scripted"))
    events: list[Any] = []
    running = engine.generate(spec("go", max_tokens=3000))
    while not running.finished:
        events += running.take()
    assert isinstance(events[-1], Finished)
    tokens = [event for event in events if isinstance(event, TokenEvent)]
    reply = events[-1].reply
    assert [event.id for event in tokens] == list(reply.tokens)
    assert "".join(event.text for event in tokens) == reply.text
    assert json.dumps(reply.to_json())
