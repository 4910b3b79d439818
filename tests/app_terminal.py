"""A program on a terminal of its own, and the chat app as such a program, with any engine."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0
_PROGRAM = Path(__file__).with_name("app_program.py")


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

    def read(self, seconds: float) -> bool:
        """Take what comes in so long; whether something came."""
        ready, _, _ = select.select([self._master], [], [], seconds)
        if not ready:
            return False
        with contextlib.suppress(OSError):
            self.written += os.read(self._master, 1 << 16)
        return True

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


def app_terminal(
    history: Path, *, model: str, log: Path | None = None, load: dict[str, Any] | None = None, **settings: Any
) -> Terminal:
    """The app over the engine's process. load: more of its LoadSpec.  log, settings: of app_program.py."""
    spec = {"model": model, "draft": "none", "drafter": "none", **(load or {})}
    told = {"history": str(history), "spec": spec, **settings}
    if log is not None:
        told["log"] = str(log)
    paths = [str(_PROGRAM.parent), str(_PROGRAM.parent / "tui"), os.environ.get("PYTHONPATH", "")]
    usual = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return Terminal([sys.executable, str(_PROGRAM), json.dumps(told)], {**os.environ, **usual})
