"""What the screen costs while a long reply is written: the app on a terminal, the model at a set pace."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest
from long_reply import FAST, LOADER, long_reply

from app_terminal import Terminal, app_terminal
from edgespec.history import History
from measured import Record

TOKENS, PACE = 20_000, 30


def _tokens(place: Path) -> int:
    """Of the reply, as far as it is saved."""
    with History(place) as saved:
        latest = saved.latest()
        path = saved.path(latest.id) if latest is not None else ()
        return len(saved.details(path[-1].id).tokens) if path and path[-1].role == "assistant" else 0


def _watch(terminal: Terminal, seconds: float) -> tuple[float, float]:
    """(Share of one core that the app takes, updates of its screen in a second), the engine not counted."""
    program = psutil.Process(terminal.process.pid)
    begin, before = time.monotonic(), program.cpu_times()
    frames, latest = 0, 0.0
    while time.monotonic() < begin + seconds and terminal.process.poll() is None:
        if terminal.read(0.2):
            now = time.monotonic()
            frames += now - latest > 0.03  # one update may come in several pieces
            latest = now
        terminal.written = terminal.written[-1000:]
    after, wall = program.cpu_times(), time.monotonic() - begin
    return (after.user + after.system - before.user - before.system) / wall, frames / wall


@pytest.mark.parametrize(
    ("fast", "seconds", "at_most"),
    [
        pytest.param(0, TOKENS / PACE, 0.05, marks=pytest.mark.soak, id="all"),
        pytest.param(TOKENS - 90 * PACE, 80, 0.05, marks=pytest.mark.soak, id="last_80_s"),
        pytest.param(0, 45, 0.05, marks=pytest.mark.soak, id="first_45_s"),
    ],
)
def test_a_long_reply_takes_little_of_a_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: Record, fast: int, seconds: float, at_most: float
) -> None:
    text, place = tmp_path / "reply.md", tmp_path / "history.db"
    text.write_text(long_reply(TOKENS))
    monkeypatch.setenv(FAST, str(fast))
    terminal = app_terminal(place, model=f"scripted:{text}?decodes_per_s={PACE}&n_ctx=32768", loader=LOADER)
    try:
        terminal.until(lambda: "Message, or / for commands" in terminal.text)
        terminal.press(b"write\r")
        end = time.monotonic() + 120
        while _tokens(place) <= max(fast, 1):
            assert time.monotonic() < end, "the beginning did not come"
            terminal.read(1.0)
        share, updates = _watch(terminal, seconds)
    finally:
        terminal.close()
    record(share_of_a_core=share, updates_per_s=updates)
    assert share <= at_most
