"""Python's garbage collector is kept from stopping the screen while an answer comes."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_NEVER = 1_000_000_000
_waiting: list[tuple[int, int, int]] = []  # the thresholds before, once for each answer that is being shown


@contextmanager
def no_full_collections() -> Iterator[None]:
    """Only young objects are looked at: a look at all that a screen is made of takes up to a third of a second, and a
    long answer brings one every few seconds. What is left over is found afterwards.
    """
    _waiting.append(gc.get_threshold())
    gc.set_threshold(*_waiting[0][:2], _NEVER)
    try:
        yield
    finally:
        first = _waiting[0]
        _waiting.pop()
        if not _waiting:
            gc.set_threshold(*first)
