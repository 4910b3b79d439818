"""Starting the engine's process, and saying why it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping

import msgspec

from .endpoint import Endpoint

if sys.platform == "win32":
    _NEW_GROUP = subprocess.CREATE_NEW_PROCESS_GROUP
else:
    _NEW_GROUP = 0
_REASONS = {
    "SIGKILL": "it was killed, perhaps because memory ran out; try a smaller model or --ctx-size",
    "SIGABRT": "llama.cpp gave up",
    "SIGILL": "it met an instruction that this CPU does not have; run `edgespec doctor`",
    "SIGSEGV": "it crashed",
    "SIGBUS": "it crashed; was the model's file changed while it was loaded?",
}


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an engine's process is started with.

    key: of its endpoint.  loader: "module:function" that makes its models.  shared: other front ends may find it,
    and states of conversations are kept on disk.  linger_s: how long it waits for another front end once the last
    one is gone.  idle_s: seconds without a request after which the model is freed; None: never.  beat_s: between signs
    of life.  stuck_s, stuck_loading_s: the process ends itself where the model's thread has not moved for so long.
    """

    key: str
    loader: str
    shared: bool
    linger_s: float
    idle_s: float | None
    beat_s: float
    stuck_s: float
    stuck_loading_s: float


class Spawned:
    """A process of the engine that this one has started. It is not a job of the terminal: Ctrl+C does not reach it."""

    def __init__(self, endpoint: Endpoint, settings: WorkerSettings, environment: Mapping[str, str]) -> None:
        """environment: variables beside those of this process."""
        with open(endpoint.file("log"), "wb", opener=_private) as errors:  # the opener sets the mode
            self._process = subprocess.Popen(
                [sys.executable, "-m", "edgespec.engine", msgspec.json.encode(settings).decode()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={**os.environ, **environment},
                start_new_session=True,
                creationflags=_NEW_GROUP,
            )
        self._endpoint = endpoint
        # Collects the exit code whenever it comes, so that no dead process is left behind.
        threading.Thread(target=self._process.wait, name="edgespec-engine-exit", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def wait(self, timeout_s: float) -> bool:
        """True once it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        return self.ended

    def kill(self) -> None:
        self._process.kill()

    def why(self) -> str:
        """Why it ended, in words, with what llama.cpp said last."""
        self.wait(1.0)
        code = self._process.returncode
        if code is None:
            return "it closed the connection"
        if code >= 0:
            return f"exit code {code}{self._last_words()}"
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"{name}: {_REASONS.get(name, 'it was ended')}{self._last_words()}"

    def _last_words(self) -> str:
        """The line that tells most of its log."""
        try:
            lines = self._endpoint.file("log").read_text("utf-8", "replace")[-8000:].splitlines()
        except OSError:
            return ""
        telling = [line for line in lines if "GGML_ASSERT" in line or "Error" in line]
        return f" ({telling[-1].strip()[:200]})" if telling else ""


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_TRUNC, 0o600)
