"""Where an engine's process can be reached: a socket that only this user can open, and what lies beside it.

On Unix a socket in a folder of mode 0700, on Windows a named pipe, which is the user's own there. The name stands for
EDGESPEC_HOME, the version of EdgeSpec and the loader, so that both ends of a connection always speak one language.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import socket
import stat
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path

import psutil

from ..errors import EngineError
from ..paths import home

_SAME_START_S = 1.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The files of one engine: socket, lock (held by who starts it), pid (number and start of the process), log."""

    key: str

    @staticmethod
    def shared(loader: str) -> Endpoint:
        """The one that all front ends of this user, home and version meet at."""
        parts = (str(home().absolute()), version("edgespec"), loader)
        return Endpoint(hashlib.sha256(repr(parts).encode()).hexdigest()[:20])

    @staticmethod
    def private() -> Endpoint:
        """One that nobody else knows."""
        return Endpoint(f"p{secrets.token_hex(10)}")

    def file(self, suffix: str) -> Path:
        """A file of this engine, in a folder that is made now where it is missing. Raises EngineError."""
        return _folder() / f"{self.key}.{suffix}"

    @property
    def address(self) -> str:
        if sys.platform == "win32":
            return rf"\\.\pipe\edgespec-{self.key}"
        return str(self.file("sock"))

    def listen(self) -> Listener:
        """Open the socket. Raises OSError where another engine has it."""
        before = os.umask(0o177)
        try:
            return Listener(self.address, family=_FAMILY, backlog=64)
        finally:
            os.umask(before)

    def connect(self) -> Connection | None:
        """A connection; None where no engine listens, or not yet. Raises EngineError."""
        try:
            return Client(self.address, family=_FAMILY)
        except (FileNotFoundError, ConnectionRefusedError, ConnectionResetError):
            return None
        except OSError as error:
            raise EngineError(f"the engine's socket cannot be used: {error}") from None

    def clear(self) -> None:
        """Delete what an engine that is gone has left."""
        for suffix in ("sock", "pid"):
            with contextlib.suppress(OSError):
                self.file(suffix).unlink()

    def remove(self) -> None:
        """Delete all files, once nobody will use this endpoint again."""
        self.clear()
        for suffix in ("log", "lock"):
            with contextlib.suppress(OSError):
                self.file(suffix).unlink()

    def note_process(self) -> None:
        """Write down which process serves here."""
        self.file("pid").write_text(f"{os.getpid()} {psutil.Process().create_time()}", "utf-8")

    def kill(self) -> None:
        """Kill the process that serves here, which does not answer, and take its socket away."""
        with contextlib.suppress(OSError, ValueError, psutil.Error):
            number, started = self.file("pid").read_text("utf-8").split()
            process = psutil.Process(int(number))
            if abs(process.create_time() - float(started)) < _SAME_START_S:
                process.kill()
                process.wait(5)
        self.clear()


def shut(connection: Connection) -> None:
    """Make reads and writes on a connection end, in whichever threads they are."""
    with contextlib.suppress(OSError):
        if sys.platform == "win32":
            connection.close()
        else:
            with socket.socket(fileno=os.dup(connection.fileno())) as end:
                end.shutdown(socket.SHUT_RDWR)


def hang_up(connection: Connection) -> None:
    """Close a connection that another thread may be using."""
    shut(connection)
    with contextlib.suppress(OSError):
        connection.close()


_FAMILY = "AF_PIPE" if sys.platform == "win32" else "AF_UNIX"


def _folder() -> Path:
    """The folder of sockets: 0700, and this user's own. Short, since the name of a socket may have 100 characters."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    own = "edgespec" if sys.platform == "win32" else f"edgespec-{os.getuid()}"
    folder = Path(base) / "edgespec" if base else Path(tempfile.gettempdir()) / own
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
        if sys.platform != "win32":
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                raise EngineError(f"{folder} is not a folder of yours; set XDG_RUNTIME_DIR to one that is")
            if stat.S_IMODE(found.st_mode) & 0o077:
                folder.chmod(0o700)
    except OSError as error:
        raise EngineError(f"no folder for the engine's socket: {error}; set XDG_RUNTIME_DIR to one of yours") from None
    return folder
