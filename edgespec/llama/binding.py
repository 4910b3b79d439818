"""The binding, imported once: backend start, log lines to logging, names of enums we use."""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# ggml_abort forks a debugger for a backtrace where one is installed; a crash must be quick and quiet.
os.environ.setdefault("GGML_NO_BACKTRACE", "1")

log = logging.getLogger("edgespec.llama")

KV_TYPES = {"f32": 0, "f16": 1, "bf16": 30, "q8_0": 8, "q5_1": 7, "q5_0": 6, "q4_1": 3, "q4_0": 2}
FLASH_ATTN = {"auto": -1, "off": 0, "on": 1}
LOAD_NONE, LOAD_MMAP = 0, 1

_LEVELS = {1: logging.DEBUG, 2: logging.DEBUG, 3: logging.WARNING, 4: logging.ERROR}
_recent_errors: deque[str] = deque(maxlen=8)


@functools.cache
def lib() -> Any:
    """llama_cpp's low-level module, with the backend started and its log sent to logging."""
    import llama_cpp.llama_cpp as module

    module.llama_log_set(_log_callback(), ctypes.c_void_p(0))
    module.llama_backend_init()
    return module


@functools.cache  # the library keeps the pointer: it must live as long as the process
def _log_callback() -> Any:
    def callback(level: int, text: bytes, _: object) -> None:
        line = text.decode("utf-8", "replace").strip()
        if not line or line == ".":
            return
        if level >= 3:
            _recent_errors.append(line)
        log.log(_LEVELS.get(level, logging.DEBUG), "%s", line)

    return ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(callback)


def take_errors() -> str:
    """The library's latest warnings and errors as one line, then forgotten."""
    text = "; ".join(dict.fromkeys(_recent_errors))
    _recent_errors.clear()
    return text


@contextmanager
def captured_stderr() -> Iterator[Callable[[], str]]:
    """Keep what C code writes straight to file descriptor 2; call the result for that text, as one line.

    The descriptor belongs to the whole process, so this is for calls of microseconds.
    """
    with _stderr_turn, tempfile.TemporaryFile() as file:
        try:
            kept = os.dup(2)
        except OSError:  # no standard error to begin with
            yield lambda: ""
            return
        os.dup2(file.fileno(), 2)

        def text() -> str:
            file.seek(0)
            lines = file.read().decode("utf-8", "replace").splitlines()
            return lines[0].strip() if lines else ""

        try:
            yield text
        finally:
            os.dup2(kept, 2)
            os.close(kept)


_stderr_turn = threading.Lock()


def version() -> str:
    """Version of llama-cpp-python."""
    from importlib.metadata import version as installed

    return installed("llama-cpp-python")


def has_amx() -> bool:
    """True where this build's CPU kernels use AMX."""
    return b"AMX_INT8 = 1" in lib().llama_print_system_info()


def has_repack() -> bool:
    """True where this build has kernels for interleaved rows of 4-bit types, and this CPU runs them."""
    info = lib().llama_print_system_info()
    return b"REPACK = 1" in info and (b"AVX2 = 1" in info or b"DOTPROD = 1" in info)


def supports_gpu_offload() -> bool:
    """True where this build of llama.cpp has a GPU backend."""
    return bool(lib().llama_supports_gpu_offload())
