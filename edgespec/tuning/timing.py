"""Decode times of a loaded model by rows, to be compared with those of other forms of it."""

from __future__ import annotations

import time

from ..api import LLM
from ..costs import CostTable
from ..scoring import ScoreRequest

_WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16)  # what drafts of up to eight tokens need, and what speeds are told at
_DEPTH = 64  # tokens in the cache
_TIMED = 2  # decodes of each width in a pass; one before is not counted, since llama.cpp plans a width anew
_PASSES, _LEAST_PASSES, _ENOUGH_S = 4, 2, 20.0


def decode_times(llm: LLM) -> CostTable:
    """Milliseconds by rows, behind a short text: the shortest of several, taken in passes over all widths.

    What else a machine does makes a decode longer, never shorter, and rarely for all of the passes. Decodes that a
    wider one beats count as the wider one, as they are run (Model.padding).
    """
    context = llm.target
    widths = [w for w in _WIDTHS if w <= min(context.max_width, context.n_ctx // 2)]
    # Any tokens do: the time of a decode does not depend on which they are.
    tokens = [(7 * i + 1) % context.vocab.size for i in range(min(_DEPTH, context.n_ctx - widths[-1]))]
    best = dict.fromkeys(widths, float("inf"))
    sequence = context.sequence()
    begin = time.perf_counter()
    with context.turn:
        for number in range(_PASSES):
            if number >= _LEAST_PASSES and time.perf_counter() - begin > _ENOUGH_S:
                break
            for width in widths:
                request = ScoreRequest(sequence, tokens, (tokens[0],) * (width - 1))
                context.score([request])
                for _ in range(_TIMED):
                    start = time.perf_counter()
                    context.score([request])
                    best[width] = min(best[width], 1000 * (time.perf_counter() - start))
    sequence.truncate(0)
    sequence.close()
    table = CostTable(tuple(widths), tuple(best.values()), len(tokens))
    return table if context.model.recurrent else table.padded()
