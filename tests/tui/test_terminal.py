"""The real command on a real terminal: what it writes, how it ends, what it leaves."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgespec.history import History
from edgespec.tiny_gguf import CHATML_TEMPLATE
from edgespec.tui.hangup import EXIT_CODE

PATIENCE_S = 60.0
HOSTILE = "\x1b]52;c;aGVsbG8=\x07 \x1b]8;;http://evil.example\x1b\\x\x1b]8;;\x1b\\ \x9b31m \x1b[5m [/INST] \u202eend"
RESTORED = (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?2004l")  # the shell's screen, the cursor, plain pastes


class Terminal:
    """A program on a terminal of 100 by 30. written: all that it has written."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._master, slave = pty.openpty()
        self.resize(100, 30)
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
        )
        os.close(slave)
        self.written = b""

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def read(self, seconds: float) -> None:
        """Take what comes in so long."""
        ready, _, _ = select.select([self._master], [], [], seconds)
        if ready:
            with contextlib.suppress(OSError):
                self.written += os.read(self._master, 1 << 16)

    def until(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, self.text[-2000:]
            self.read(0.05)

    def wait(self) -> int:
        """Its exit code, with all that it wrote."""
        self.until(lambda: self.process.poll() is not None)
        for _ in range(3):
            self.read(0.05)
        return self.process.returncode

    @property
    def text(self) -> str:
        """What was written, without what drives the terminal."""
        return re.sub(
            r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[PX^_\]][^\x07\x1b]*(?:\x07|\x1b\\)|.)",
            "",
            self.written.decode("utf-8", "replace"),
        )

    def vanish(self) -> None:
        """Be gone, as a window that is closed; no signal tells the program, whose controlling terminal it is not."""
        os.close(self._master)
        self._master = -1

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self._master >= 0:
            os.close(self._master)


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
