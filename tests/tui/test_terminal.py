"""The real command on a real terminal: what it writes, how it ends, what it leaves."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app_terminal import PATIENCE_S, Terminal
from edgespec.history import History
from edgespec.tiny_gguf import CHATML_TEMPLATE
from edgespec.tui.hangup import EXIT_CODE

HOSTILE = "\x1b]52;c;aGVsbG8=\x07 \x1b]8;;http://evil.example\x1b\\x\x1b]8;;\x1b\\ \x9b31m \x1b[5m [/INST] \u202eend"
RESTORED = (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?2004l")  # the shell's screen, the cursor, plain pastes


@pytest.fixture
def started(probed: Path, tiny: Callable[..., Path]) -> Iterator[Callable[..., Terminal]]:
    """`edgespec chat` with a small model."""
    model = tiny(chat_template=CHATML_TEMPLATE, n_ctx_train=4096)
    running: list[Terminal] = []

    def start(*arguments: str, **variables: str) -> Terminal:
        usual = {"EDGESPEC_HOME": str(probed), "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        command = [sys.executable, "-m", "edgespec", "chat", "-m", str(model), "--threads", "1", *arguments]
        running.append(Terminal(command, {**os.environ, **usual, **variables}))
        return running[-1]

    yield start
    for terminal in running:
        terminal.close()


def test_what_was_saved_cannot_drive_the_terminal(home: Path, started: Callable[..., Terminal]) -> None:
    with History(home / "history" / "history.db") as saved:
        number = saved.new_conversation(title=HOSTILE, model=HOSTILE)
        question = saved.add_message(number, None, "user", HOSTILE)
        saved.add_message(number, question, "assistant", f"# {HOSTILE}\n\n```\n{HOSTILE}\n```\n", model=HOSTILE)
    terminal = started("--conversation", "1")
    terminal.until(lambda: "[/INST]" in terminal.text)
    terminal.press(b"\x11")  # Ctrl+Q
    assert terminal.wait() == 0
    assert b"\x1b]52" not in terminal.written
    assert b"\x1b]8" not in terminal.written
    assert b"\x1b[5m" not in terminal.written
    assert "\x9b" not in terminal.written.decode()
    assert "\u202e" not in terminal.written.decode()
    assert all(code in terminal.written for code in RESTORED)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP], ids=lambda how: how.name)
def test_a_signal_ends_it_with_all_saved(home: Path, started: Callable[..., Terminal], how: signal.Signals) -> None:
    terminal = started()
    terminal.until(lambda: "Write a message" in terminal.text)
    terminal.press(b"hello\r")
    terminal.until(lambda: "Esc stops" in terminal.text)
    for size in ((40, 12), (140, 50), (80, 24)):
        terminal.resize(*size)
        terminal.process.send_signal(signal.SIGWINCH)
    terminal.process.send_signal(how)
    assert terminal.wait() == 0
    assert all(code in terminal.written for code in RESTORED)
    with History(home / "history" / "history.db") as saved:
        (conversation,) = saved.conversations()
        asked, answered = saved.path(conversation.id)
        assert asked.text == "hello"
        assert answered.finish_reason == "cancelled"
        assert answered.text


def test_a_terminal_that_vanishes_ends_it_with_all_saved(home: Path, started: Callable[..., Terminal]) -> None:
    terminal = started()
    terminal.until(lambda: "Write a message" in terminal.text)
    terminal.press(b"hello\r")
    terminal.until(lambda: "Esc stops" in terminal.text)
    terminal.vanish()
    assert terminal.process.wait(PATIENCE_S) in (0, EXIT_CODE)  # in order, or at once where the writer was stuck
    with History(home / "history" / "history.db") as saved:
        (conversation,) = saved.conversations()
        asked, answered = saved.path(conversation.id)
        assert asked.text == "hello"
        assert answered.finish_reason == "cancelled"


def test_without_colours_and_mouse(started: Callable[..., Terminal]) -> None:
    terminal = started("--no-mouse", NO_COLOR="1")
    terminal.until(lambda: "Write a message" in terminal.text)
    terminal.press(b"\x11")
    assert terminal.wait() == 0
    assert b"\x1b[?1000h" not in terminal.written
    assert not re.search(rb"\x1b\[(?:[\d;]*;)?(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;[\d;]*)?m", terminal.written)
