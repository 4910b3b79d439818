"""Teacher forcing: the rows of logits that a model gives along a text that is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ..scoring import Rows, Scorer, ScoreRequest


def forced_rows(scorer: Scorer, tokens: Sequence[int], start: int) -> Iterator[tuple[int, Rows]]:
    """(i, rows) for i from `start` on: row j is what the model expects after tokens[: i + j].

    As many rows a decode as the scorer gives, together one for each of tokens[start:]. rows, shape (n, vocab.size),
    are overwritten by the next decode. start: 1 or more. The text must fit the context.
    """
    sequence = scorer.sequence(tokens)
    try:
        while start < len(tokens):
            count = min(scorer.max_width, len(tokens) - start)
            drafted = tuple(tokens[start : start + count - 1])
            with scorer.turn:
                yield start, scorer.score([ScoreRequest(sequence, list(tokens[:start]), drafted)])[0]
            start += count
    finally:
        sequence.truncate(0)
        sequence.close()


def log_probabilities(rows: Rows) -> NDArray[np.float64]:
    """Natural logs of the softmax of each row, same shape: the model's law at temperature 1."""
    logits = rows.astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    return np.asarray(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))
