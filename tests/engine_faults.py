"""Scripted models that fail in every way a real one can, for tests of the engine's process and of front ends.

    WorkerEngine(loader="engine_faults:load", environment=ENVIRONMENT)

A message of the user that begins with the name of a fault brings it about, after three tokens of the reply: "!abort".
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from edgespec.api import LLM
from edgespec.engine.loaded import Progress
from edgespec.engine.protocol import LoadSpec
from edgespec.engine.scripted import Script, ScriptedLLM, ScriptedModel
from edgespec.errors import ModelLoadError
from edgespec.scoring import Rows, ScoreRequest

LOADER = "engine_faults:load"
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))}
_AFTER = 3  # tokens


def _raise() -> None:
    raise RuntimeError("a fault of the model")


def _hold() -> None:
    """Never give the interpreter back: no other thread of the process runs any more."""
    ctypes.PyDLL(None).pause()


FAULTS: dict[str, Callable[[], object]] = {
    "!abort": os.abort,
    "!exit": lambda: os._exit(3),
    "!kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "!illegal": lambda: os.kill(os.getpid(), signal.SIGILL),
    "!stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "!hold": _hold,
    "!stuck": threading.Event().wait,
    "!raise": _raise,
}


class FaultyModel(ScriptedModel):
    """Fails where the message says so."""

    def score(self, requests: Sequence[ScoreRequest]) -> list[Rows]:
        for r in requests:
            user, assistant = (self.last(r.tokens, role) for role in ("user", "assistant"))
            if user is None or assistant is None or len(r.tokens) - assistant <= _AFTER:
                continue
            said = self.vocab.detokenize(r.tokens[user + 1 : assistant]).decode("utf-8", "replace")
            fault = FAULTS.get(said.split()[0] if said.split() else "")
            if fault is not None:
                fault()
        return super().score(requests)


def load(spec: LoadSpec, progress: Progress) -> LLM:
    """A loader for engines. Model "scripted:unloadable" fails, "scripted:fatal" kills the process."""
    progress(str(spec.model), 0.0)
    if spec.model == "scripted:unloadable":
        raise ModelLoadError("this file is no model")
    if spec.model == "scripted:fatal":
        os.abort()
    script = Script.parse(str(spec.model))
    draft = ScriptedModel(script, sure=script.sure, speed=10) if spec.draft == "scripted" else None
    return ScriptedLLM(FaultyModel(script), draft, spec.drafter)
