"""The cost curve: milliseconds of one decode by its rows, timed in the run that uses it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median

from ..costs import CostTable
from ..scoring import Scorer, ScoreRequest

WIDTHS = (1, 2, 3, 4, 8, 12, 16)
_PASSES, _TIMED = 3, 4


def measure(scorer: Scorer, tokens: Sequence[int], widths: Sequence[int] = WIDTHS, *, depth: int = 128) -> CostTable:
    """Median time of decodes at each width that `scorer` can do, behind `depth` tokens of a prompt, over and over.

    Widths take turns, several decodes at a time: llama.cpp plans a decode anew when its width changes, and rounds
    of one K do not change it, so the first decode of each turn is not counted.
    """
    room = max(2, scorer.n_ctx - max(widths) - 1)
    known = [min(t, scorer.vocab.size - 1) for t in tokens]  # a draft model's vocabulary may be the smaller one
    base = [known[i % len(known)] for i in range(min(depth, room))]
    possible = [w for w in widths if w <= min(scorer.max_width, scorer.n_ctx - 3)] if scorer.can_roll_back else [1]
    times: dict[int, list[float]] = {width: [] for width in possible}
    sequence = scorer.sequence(base)
    text = list(base)
    try:
        with scorer.turn:
            scorer.score([ScoreRequest(sequence, text)])
            for number in range(_PASSES + 1):  # the first pass warms up
                for width in possible:
                    for turn in range(_TIMED + 1):
                        if len(text) + width >= scorer.n_ctx:
                            text = list(base)
                            scorer.score([ScoreRequest(sequence, text)])
                        text.append(base[len(text) % len(base)])
                        start = time.perf_counter()
                        scorer.score([ScoreRequest(sequence, text, tuple(base[:1] * (width - 1)))])
                        took = time.perf_counter() - start
                        sequence.truncate(len(text))
                        if number and turn:
                            times[width].append(1000 * took)
    finally:
        sequence.close()
    return CostTable(tuple(possible), tuple(median(times[width]) for width in possible))
