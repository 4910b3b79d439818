"""Stopping a decode that is running: cancel events and Ctrl+C reach llama.cpp through its abort callback."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # without the enums of `signal`, which take 0.08 ms a decode
import signal
import threading
from collections.abc import Generator, Sequence
from typing import Any

from . import binding

# A short decode ends sooner than a person notices; asking Python after every graph node costs ~1 ms a decode.
_WATCHED_FROM = 17
_SIGINT = int(signal.SIGINT)


class Held:
    """Ctrl+C that has been pressed and not been acted upon, from __enter__ to __exit__."""

    def __init__(self) -> None:
        self._before: Any = None
        self.possible = False  # else this thread is never interrupted
        self._kept: list[tuple[Any, ...]] = []

    def __enter__(self) -> Held:
        if threading.get_ident() == threading.main_thread().ident:
            before = _signal.getsignal(_SIGINT)
            if callable(before):
                self._before, self.possible = before, True
                _signal.signal(_SIGINT, self._keep)
        return self

    def __exit__(self, *error: object) -> None:
        if self.possible:
            _signal.signal(_SIGINT, self._before)
            self.deliver()

    def _keep(self, *arguments: object) -> None:
        self._kept.append(arguments)

    @property
    def pressed(self) -> bool:
        """Has it been pressed?"""
        return bool(self._kept)

    def deliver(self) -> None:
        """Do now what Ctrl+C does; raises what its handler raises."""
        if self._kept:
            arguments = self._kept[0]
            self._kept.clear()
            self._before(*arguments)


def held_back() -> Held:
    """Keep Ctrl+C until a call to C is over that calls Python: an exception raised there would be dropped.

    That goes for a line of llama.cpp's log as well, which any call may write.
    """
    return Held()


class Interrupt:
    """The abort callback of one context. error: what a signal handler raised during the latest decode."""

    def __init__(self) -> None:
        self._lib = binding.lib()
        self._type = type(self._lib.llama_context_default_params().abort_callback)
        self._callback: Any = None  # llama.cpp keeps the pointer; none: it asks nobody
        self.error: BaseException | None = None

    def watch(
        self, context: Any, size: int, events: Sequence[threading.Event], held: Held, *, slow: bool = False
    ) -> None:
        """Let Ctrl+C and any of `events` stop the next decode of `size` tokens, if it is long, or `slow` says so."""
        self.error = None
        if (events or held.possible) and (size >= _WATCHED_FROM or slow):
            asked = self._asked(events, held)
            next(asked)
            callback = self._type(asked.send)
        elif self._callback is None:  # as most decodes find it
            return
        else:
            callback = None
        self._lib.llama_set_abort_callback(context, self._type() if callback is None else callback, None)
        self._callback = callback  # the one before is let go only now

    def _asked(self, events: Sequence[threading.Event], held: Held) -> Generator[bool, object, None]:
        """The callback is this generator's send().

        Python runs signal handlers, those of other signals too, where a function begins: in a plain function that is
        before any `try`, and ctypes drops the exception. A generator resumes inside its `try`.
        """
        try:
            while True:
                held.deliver()
                yield any(event.is_set() for event in events)
        except GeneratorExit:
            return
        except BaseException as error:
            self.error = error
        while True:
            yield True
