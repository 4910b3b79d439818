"""Which weight buffers run on this CPU: tried once per build and machine, in a child process.

A build whose AMX or other kernels do not run here dies with SIGILL at its first decode. The child
loads a tiny Q4_0 model and decodes four tokens; if it dies, the next choice is tried.

    python -m edgespec.llama           print the result; exit 1 if "auto" crashes
    python -m edgespec.llama --again   the same, ignoring the remembered result
"""

from __future__ import annotations

import functools
import json
import logging
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import cast

from ..errors import EdgeSpecError
from ..machine import identity
from ..paths import cache_dir, write_whole
from ..profile import Buffers

log = logging.getLogger(__name__)

ORDER: tuple[Buffers, ...] = ("auto", "repack", "none")
_TIMEOUT_S = 120
REMEDY = (
    "reinstall llama-cpp-python with CFLAGS and CXXFLAGS set to '-fno-tree-dse -fno-dse' and pip's --no-cache-dir "
    "(GCC drops stores that AMX kernels need)"
)


def usable(wanted: Buffers) -> Buffers:
    """`wanted` if its kernels run on this CPU, else the next choice that does, with a warning.

    Raises EdgeSpecError where none runs.
    """
    runs_here = working()
    for choice in ORDER[ORDER.index(wanted) :]:
        if choice in runs_here:
            if choice != wanted:
                log.warning("buffers %r crash on this CPU; using %r. To mend it: %s", wanted, choice, REMEDY)
            return choice
    raise EdgeSpecError(f"this build of llama.cpp does not run on this CPU; {REMEDY}")


@functools.cache
def working(*, again: bool = False) -> tuple[Buffers, ...]:
    """The choices that ran here, from memory, from disk or by trying."""
    remembered = cache_dir() / "probe.json"
    build = identity()
    if not again:
        try:
            record = json.loads(remembered.read_text("utf-8"))
            if record["identity"] == build:
                return tuple(cast(Buffers, b) for b in record["working"] if b in ORDER)
        except (OSError, ValueError, KeyError, TypeError):
            pass
    found = tuple(b for b in ORDER if _try(b))
    try:
        write_whole(remembered, json.dumps({"identity": build, "working": found}))
    except OSError as error:
        log.info("the probe's result is not remembered: %s", error)
    return found


def _try(buffers: Buffers) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "edgespec.llama", "--child", buffers, folder]
        try:
            done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            return False
    if done.returncode:
        log.info("probe of %s: exit %s, %s", buffers, done.returncode, done.stderr.decode("utf-8", "replace")[-500:])
    return done.returncode == 0


def _child(buffers: Buffers, folder: str) -> None:
    from ..scoring import ScoreRequest
    from ..tiny_gguf import write_tiny
    from .context import Context
    from .model import Model
    from .settings import LoadSettings

    path = write_tiny(Path(folder) / "probe.gguf", quant="q4_0")
    settings = LoadSettings(n_ctx=64, buffers=buffers, gpu_layers=0)
    with Model(path, settings, trust_kernels=True) as model, Context(model) as context:
        sequence = context.sequence()
        for n in (1, 2, 4):  # GEMV and GEMM kernels differ
            context.score([ScoreRequest(sequence, [1] * n, (2, 3, 4)[: n - 1])])


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--child"]:
        _child(cast(Buffers, arguments[1]), arguments[2])
        return 0
    found = working(again="--again" in arguments)
    print(f"weight buffers that run here: {', '.join(found) or 'none'}")  # noqa: T201
    return 0 if "auto" in found else 1
