"""Stopping a decode that is running: cancel events and Ctrl+C reach llama.cpp through its abort callback."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from . import binding

# A short decode ends sooner than a person notices; asking Python after every graph node costs ~1 ms a decode.
_WATCHED_FROM = 17


@contextmanager
def held_back() -> Iterator[Callable[[], bool]]:
    """Keep Ctrl+C until a call to C is over that calls Python often: an exception raised there would be dropped.

    Call what this yields to learn whether the call should end early.
    """
    kept: list[tuple[Any, ...]] = []
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield lambda: False  # such a thread is never interrupted, and nothing is raised
        return
    signal.signal(signal.SIGINT, lambda *arguments: kept.append(arguments))
    try:
        yield lambda: bool(kept)
    finally:
        signal.signal(signal.SIGINT, before)
        if kept:
            before(*kept[0])


class Interrupt:
    """The abort callback of one context. error: what a signal handler raised during the latest decode."""

    def __init__(self) -> None:
        self._lib = binding.lib()
        self._type = type(self._lib.llama_context_default_params().abort_callback)
        self._callback: Any = None  # llama.cpp keeps the pointer
        self.error: BaseException | None = None

    def watch(self, context: Any, size: int, events: Sequence[threading.Event], *, slow: bool = False) -> None:
        """Let any of `events` stop the next decode of `size` tokens, if it is a long one, or `slow` says so."""
        self.error = None
        if size >= _WATCHED_FROM or slow:
            asked = self._asked(events)
            next(asked)
            self._callback = self._type(asked.send)
        else:
            self._callback = self._type()
        self._lib.llama_set_abort_callback(context, self._callback, None)

    def _asked(self, events: Sequence[threading.Event]) -> Generator[bool, object, None]:
        """The callback is this generator's send().

        Python runs signal handlers where a function begins: in a plain function that is before any `try`, and
        ctypes drops the exception. A generator resumes inside its `try`.
        """
        try:
            while True:
                yield any(event.is_set() for event in events)
        except GeneratorExit:
            return
        except BaseException as error:
            self.error = error
        while True:
            yield True
