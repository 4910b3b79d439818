"""A program on a terminal of its own: type, and wait for what it says."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from types import TracebackType

PATIENCE_S = 30.0


class Terminal:
    """Runs a command as the session leader of a pseudo terminal. said: all that has come, undecoded."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], *, rows: int = 40, columns: int = 100) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={"TERM": "xterm-256color", **env},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self.said = b""
        self._read = 0  # how far expect() has come

    def type(self, text: str) -> None:
        """As from the keyboard; Enter is "\\r"."""
        os.write(self._master, text.encode())

    def expect(self, text: str) -> str:
        """Wait for `text`; returns what came before it since the last call."""
        end = time.monotonic() + PATIENCE_S
        wanted = text.encode()
        while (at := self.said.find(wanted, self._read)) < 0:
            assert self._more(end), f"{text!r} did not come after {self.said[-600:]!r}"
        before = self.said[self._read : at].decode("utf-8", "replace")
        self._read = at + len(wanted)
        return before

    def interrupt(self, text: str) -> None:
        """Press Ctrl+C until `text` has come.

        Python notices one that comes just before it waits for a key only with the next key (its readline module checks
        for signals, then waits), so people press again, too.
        """
        end, wanted = time.monotonic() + PATIENCE_S, text.encode()
        while (at := self.said.find(wanted, self._read)) < 0:
            assert time.monotonic() < end, f"{text!r} did not come after {self.said[-600:]!r}"
            self.type("\x03")
            self._more(time.monotonic() + 1.0)
            self._more(time.monotonic() + 0.2)
        self._read = at + len(wanted)

    def end(self) -> int:
        """Wait for its end; the exit code."""
        end = time.monotonic() + PATIENCE_S
        while self._more(end):
            pass
        return self.process.wait(PATIENCE_S)

    def _more(self, end: float) -> bool:
        """Take what comes; False where nothing will."""
        if not select.select([self._master], [], [], max(0.0, end - time.monotonic()))[0]:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # EIO: the other side is closed
            return False
        self.said += data
        return bool(data)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)
