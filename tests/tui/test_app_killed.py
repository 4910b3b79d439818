"""The whole app is killed on its terminal during chats: no saved message is lost, and of a reply at most a second."""

from __future__ import annotations

import json
import random
import sqlite3
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from app_terminal import Terminal, app_terminal
from edgespec.history import History
from measured import Record

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
MODEL = "scripted:echo?decodes_per_s=150"
LOADER = "edgespec.engine.scripted:load"
KILLS = [(0, 3), *(pytest.param(n, 25, marks=pytest.mark.soak) for n in range(1, 9))]


@dataclass
class Said:
    """What the app had said of its history before it was killed."""

    asked: dict[int, str] = field(default_factory=dict)
    ended: dict[int, tuple[str, str]] = field(default_factory=dict)  # reply -> its text, its reason
    running: int | None = None
    tokens: list[tuple[str, float]] = field(default_factory=list)  # of the running reply

    @staticmethod
    def of(log: Path) -> Said:
        said = Said()
        for line in log.read_text().splitlines(keepends=True) if log.exists() else ():
            if line.endswith("\n"):
                said.hear(*json.loads(line))
        return said

    def hear(self, what: str, message: int, *more: str | float) -> None:
        match what, more:
            case "asked", (str(text),):
                self.asked[message] = text
            case "begun", _:
                self.running, self.tokens = message, []
            case "token", (str(text), float(when)):
                self.tokens.append((text, when))
            case "ended", (str(text), str(reason)):
                self.ended[message] = text, reason
                self.running = None


def _begun(log: Path) -> bool:
    return log.exists() and b'["begun"' in log.read_bytes()


def _chat(terminal: Terminal, log: Path, chance: random.Random) -> None:
    """Ask, stop, ask again: up to the moment of the kill."""
    terminal.until(lambda: "Message, or / for commands" in terminal.text)
    for length in chance.choices((2, 60, 250), k=3):  # those that come meanwhile wait
        terminal.press(" ".join(f"w{chance.randrange(1000)}" for _ in range(length)).encode())
        terminal.press(b"\r")
    if chance.random() < 0.9:  # else also while the model is loaded
        terminal.until(lambda: _begun(log))
    moment = time.monotonic() + (chance.uniform(0, 2.2) if chance.random() < 0.6 else chance.uniform(0, 0.1))
    while (left := moment - time.monotonic()) > 0:
        if chance.random() < 0.02:
            terminal.press(chance.choice((b"\x1b", b"\x12")))  # Escape; Ctrl+R
        terminal.read(min(left, 0.05))


@pytest.mark.parametrize(("number", "kills"), KILLS)
def test_the_app_is_killed_at_any_moment(tmp_path: Path, number: int, kills: int, record: Record) -> None:
    place, chance = tmp_path / "h.db", random.Random(number)
    asked: dict[int, str] = {}
    ended: dict[int, tuple[str, str]] = {}
    worst, cut = 0.0, 0
    for kill in range(kills):
        log = tmp_path / f"{kill}.log"
        with History(place) as saved:
            latest = saved.latest()
        last = None if latest is None or chance.random() < 0.2 else latest.id
        terminal = app_terminal(place, model=MODEL, loader=LOADER, log=log, conversation=last)
        try:
            _chat(terminal, log, chance)
            when = time.monotonic()
            terminal.process.kill()
            terminal.process.wait()
        finally:
            terminal.close()
        said = Said.of(log)
        asked |= said.asked
        ended |= said.ended
        _consistent(place)
        with History(place) as saved:
            assert {message: saved.message(message).text for message in asked} == asked
            found = {message: saved.message(message) for message in ended}
            assert {number: (m.text, m.finish_reason) for number, m in found.items()} == ended
            if said.running is not None:
                message = saved.message(said.running)
                texts = [text for text, _ in said.tokens]
                kept = len(saved.details(said.running).tokens)
                if message.finish_reason is None:  # else it was saved whole, and killed before it could say so
                    assert message.text == "".join(texts[:kept])
                    cut += 1
                    worst = max([worst, *(when - moment for _, moment in said.tokens[kept:])])
    record(kills=kills, questions_kept=len(asked), answers_kept=len(ended), cut_off=cut, oldest_token_lost_s=worst)
    assert worst <= 1.0
    assert asked


def _consistent(place: Path) -> None:
    with sqlite3.connect(place) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert raw.execute("PRAGMA foreign_key_check").fetchall() == []
        raw.execute("INSERT INTO search (search) VALUES ('integrity-check')")
    raw.close()
