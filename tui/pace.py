"""How often a running answer is drawn: ten times a second, or as often as leaves the machine to the model."""

from __future__ import annotations

import time

FASTEST_S, SLOWEST_S = 0.1, 0.8
SHARE = 0.03  # of one core, for the screen's thread; the threads that take and save the answer need a little too

_MEMORY = 0.9  # one look is cheap and the next, with another line, costs ten times as much: their mean is what counts


class Pace:
    """Of one answer. Counts the processor's time of the thread that calls it."""

    def __init__(self) -> None:
        self._processor = time.thread_time()
        self._used = self._looks = 0.0  # of the processor, and how often; later looks count more

    def wait(self) -> float:
        """Seconds until the next look: so many that looks as dear as the latest ones keep to the share."""
        processor = time.thread_time()
        self._used = _MEMORY * self._used + processor - self._processor
        self._looks = _MEMORY * self._looks + 1
        self._processor = processor
        return min(SLOWEST_S, max(FASTEST_S, self._used / self._looks / SHARE))
