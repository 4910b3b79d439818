"""How often a running answer is drawn: ten times a second, or as often as leaves the machine to the model."""

from __future__ import annotations

import time

FASTEST_S, SLOWEST_S = 0.1, 0.8
SHARE = 0.035  # of one core, for the screen's thread; the threads that take and save the answer need a little too

_STEPS = 0.7, 1.4  # by which the pace changes at most
_MEMORY = 0.9  # one look is cheap and the next, with another line, costs ten times as much: their mean is what counts


class Pace:
    """Of one answer. Counts the processor's time of the thread that calls it."""

    def __init__(self) -> None:
        self._wait = FASTEST_S
        self._processor, self._clock = time.thread_time(), time.monotonic()
        self._used = self._passed = 0.0  # of the processor and of the clock, later looks count more

    def wait(self) -> float:
        """Seconds until the next look."""
        processor, clock = time.thread_time(), time.monotonic()
        self._used = _MEMORY * self._used + processor - self._processor
        self._passed = _MEMORY * self._passed + clock - self._clock
        if self._passed > 0:
            share = self._used / self._passed
            self._wait *= min(_STEPS[1], max(_STEPS[0], share / SHARE))
            self._wait = min(SLOWEST_S, max(FASTEST_S, self._wait))
        self._processor, self._clock = processor, clock
        return self._wait
