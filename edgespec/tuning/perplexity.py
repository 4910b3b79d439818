"""Perplexity of a model on the fixed text, and how much a requantization changes it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..scoring import Scorer
from ..tuned import Perplexity
from .forcing import forced_rows, log_probabilities


def surprise(scorer: Scorer, tokens: Sequence[int]) -> NDArray[np.float64]:
    """Negative log-likelihood of each token but the first, in nats, shape (len(tokens) - 1,)."""
    found = [
        -log_probabilities(rows)[np.arange(len(rows)), list(tokens[i : i + len(rows)])]
        for i, rows in forced_rows(scorer, tokens, 1)
    ]
    return np.concatenate(found)


def perplexity(own: NDArray[np.float64], original: NDArray[np.float64]) -> Perplexity:
    """exp of the mean surprise, against the original's on the same tokens.

    The error is that of the paired difference by token: most of what makes a token hard is common to both.
    """
    difference = own - original
    ratio = math.exp(difference.mean())
    error = ratio * float(difference.std(ddof=1)) / math.sqrt(len(difference))
    return Perplexity(math.exp(own.mean()), ratio - 1, error)
