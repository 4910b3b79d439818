"""Programs that are killed, and programs that write at once: nothing committed is lost, and nobody is locked out."""

from __future__ import annotations

import json
import multiprocessing
import random
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from history_writers import question, word, write_messages

from edgespec.history import History
from measured import Record

WRITER = Path(__file__).with_name("history_writers.py")
KILLS = [(0, 10), *(pytest.param(n, 40, marks=pytest.mark.soak) for n in range(1, 6))]
WRITES = [25, pytest.param(1000, marks=pytest.mark.soak)]


@dataclass
class Said:
    """What a writer had said before it was killed."""

    questions: dict[int, int] = field(default_factory=dict)  # message -> number
    finished: dict[int, int] = field(default_factory=dict)  # reply -> its tokens
    running: int | None = None  # reply
    taken: list[float] = field(default_factory=list)  # when its tokens were

    def hear(self, line: str) -> None:
        kind, *rest = line.split()
        if kind == "m":
            self.questions[int(rest[0])] = int(rest[1])
        elif kind == "b":
            self.running, self.taken = int(rest[0]), []
        elif kind == "t":
            self.taken.append(float(rest[0]))
        elif self.running is not None:
            self.finished[self.running] = int(rest[0])
            self.running = None


def killed(place: Path, seconds: float) -> tuple[Said, float]:
    """Start a writer and kill it `seconds` after its first message."""
    command = [sys.executable, str(WRITER), str(place)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        first = program.stdout.readline()
        assert first.startswith("m "), "the writer did not start"
        time.sleep(seconds)
        when = time.monotonic()
        program.kill()
        lines = (first + program.stdout.read()).splitlines(keepends=True)
    said = Said()
    for line in lines:
        if line.endswith("\n"):  # the last one may be cut off
            said.hear(line)
    return said, when


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
@pytest.mark.parametrize(("number", "kills"), KILLS)
def test_a_kill_at_any_moment(tmp_path: Path, number: int, kills: int, record: Record) -> None:
    place, draw = tmp_path / "h.db", random.Random(number)
    questions: dict[int, int] = {}
    finished: dict[int, int] = {}
    worst = 0.0
    for _ in range(kills):
        said, when = killed(place, draw.uniform(0, 2.2) if draw.random() < 0.6 else draw.uniform(0, 0.1))
        questions |= said.questions
        finished |= said.finished
        with sqlite3.connect(place) as raw:
            assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert raw.execute("PRAGMA foreign_key_check").fetchall() == []
            raw.execute("INSERT INTO search (search) VALUES ('integrity-check')")
        raw.close()
        with History(place) as saved:
            assert {m: saved.message(m).text for m in questions} == {m: question(n) for m, n in questions.items()}
            for reply, tokens in finished.items():
                message = saved.message(reply)
                assert (message.text, message.finish_reason) == ("".join(map(word, range(tokens))), "stop")
            if said.running is not None:
                message = saved.message(said.running)
                kept = len(message.text.split())
                assert message.text == "".join(map(word, range(kept)))
                assert [t.text for t in saved.details(said.running).tokens] == list(map(word, range(kept)))
                lost = [t for t in said.taken[kept:] if message.finish_reason is None]
                worst = max(worst, *(when - t for t in lost), 0.0)
            assert len(saved.search("question", 10)) > 0
    record(kills=kills, questions_kept=len(questions), answers_kept=len(finished), oldest_token_lost_s=worst)
    assert worst <= 1.0
    assert len(questions) >= kills


@pytest.mark.parametrize("writes", WRITES)
def test_programs_that_write_at_once(tmp_path: Path, writes: int, record: Record) -> None:
    place = tmp_path / "h.db"
    started = time.monotonic()
    with ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("spawn")) as pool:  # all make the file at once
        work = [pool.submit(write_messages, str(place), n, writes) for n in range(4)]
        assert [job.result(timeout=300) for job in work] == [writes] * 4  # and nobody was told that it is locked
    record(writes=4 * writes, seconds=time.monotonic() - started)
    with History(place) as saved:
        kept = json.loads(saved.export_json())["conversations"]
    found = sorted(message["text"] for one in kept for message in one["messages"])
    assert found == sorted(f"writer {n} message {i}" for n in range(4) for i in range(writes))
