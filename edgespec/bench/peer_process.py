"""A peer's process: started with a log of its own, ended for certain."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from typing import IO, Any

from ..errors import BadRequestError

_PATIENCE_S = 10.0  # for a process to end when it was asked to


class PeerProcess:
    """A running program. What it writes to standard error (without pipes: to both outputs) goes to a log."""

    def __init__(self, name: str, command: list[str], *, pipes: bool) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as the process
        ends = subprocess.PIPE if pipes else None
        try:
            self._child = subprocess.Popen(
                command, stdin=ends or subprocess.DEVNULL, stdout=ends or self._log, stderr=self._log, text=pipes
            )
        except OSError as error:
            self._log.close()
            raise BadRequestError(f"peer {name}: cannot run {command[0]}: {error.strerror}") from error

    @property
    def pipes(self) -> tuple[IO[Any], IO[Any]]:
        """Its standard input and output."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        return self._child.stdin, self._child.stdout

    def ended(self, within: float = 0.0) -> bool:
        """Whether it is no more, or will not be in so many seconds."""
        try:
            self._child.wait(within)
        except subprocess.TimeoutExpired:
            return False
        return True

    def last_words(self) -> str:
        """The last line that it wrote to its log, and how it ended."""
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - 2000))
        lines = self._log.read().decode("utf-8", "replace").split("\n")
        line = next((line.strip() for line in reversed(lines) if line.strip()), "it gave no reason")
        code = self._child.poll()
        return f"{line} (killed by signal {-code})" if code is not None and code < 0 else line

    def end(self) -> None:
        """Close its input and, if that does not end it, stop it. May be called again."""
        if self._child.stdin is not None:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                self._child.stdin.close()
                self._child.wait(_PATIENCE_S)
        self._child.terminate()
        try:
            self._child.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        if self._child.stdout is not None:
            self._child.stdout.close()
        self._log.close()
