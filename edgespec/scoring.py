"""What the loop and the drafters need of a model; llama.Context and testing.TableModel provide it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]


class Vocab(Protocol):
    """A tokenizer and its special tokens. Ids run from 0 to size - 1."""

    @property
    def size(self) -> int: ...

    def is_eog(self, token: int) -> bool:
        """True for any end-of-generation token (a set, not the one EOS id)."""
        ...

    def piece(self, token: int) -> bytes:
        """The token's bytes as they appear in output: empty for control tokens."""
        ...


class ScoredSequence(Protocol):
    """One KV-cache sequence.

    ear: where the scorer has rows for heads that read every token, called after each decode of this sequence's tokens
    with the first one's place in the text and their rows, which the next decode overwrites.
    """

    ear: Callable[[int, Rows], None] | None

    @property
    def cached(self) -> Sequence[int]:
        """The tokens whose keys and values the cache holds now."""
        ...

    def sync(self, tokens: Sequence[int], cancel: threading.Event | None = None) -> int:
        """Make the cache hold exactly `tokens`; returns how many were decoded for it."""
        ...

    def truncate(self, length: int) -> None:
        """Forget everything after the first `length` tokens."""
        ...

    def close(self) -> None:
        """Give the sequence back to its context; what it cached may serve a later one."""
        ...


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """Score `drafted` after `tokens` on `sequence`; `cancel`, once set, stops a long decode.

    states: the hidden states of the rows are wanted, too (Scorer.states). Where they are not, they cost nothing.
    reads: a piece of a text that rides in the decode of others: it brings the cache to all of `tokens`, and has no row.
    """

    sequence: Any  # the ScoredSequence type of the Scorer it is given to
    tokens: Sequence[int]
    drafted: tuple[int, ...] = ()
    cancel: threading.Event | None = None
    states: bool = False
    reads: bool = False

    @property
    def width(self) -> int:
        """Its rows."""
        return 0 if self.reads else len(self.drafted) + 1

    @property
    def before(self) -> Sequence[int]:
        """What the cache is to hold before its rows; they begin with the next token."""
        return self.tokens if self.reads else self.tokens[:-1]


class Scorer(Protocol):
    """A model with a KV cache for one or several sequences."""

    @property
    def vocab(self) -> Vocab: ...

    @property
    def n_ctx(self) -> int:
        """Tokens one sequence may hold."""
        ...

    @property
    def cells(self) -> int:
        """Tokens all sequences together may hold."""
        ...

    @property
    def max_width(self) -> int:
        """Rows one score() call may ask for, over all its requests."""
        ...

    @property
    def attends_to_all(self) -> bool:
        """True where the time of a row grows with what all sequences hold; False: with what its own one holds."""
        ...

    @property
    def splits(self) -> bool:
        """True where requests of a decode that have different numbers of rows are decoded in several passes."""
        ...

    @property
    def turn(self) -> AbstractContextManager[Any]:
        """A re-entrant lock: hold it from score() until its rows are read, where threads share the scorer."""
        ...

    @property
    def max_sequences(self) -> int:
        """Requests one score() call may hold."""
        ...

    @property
    def state_size(self) -> int:
        """Numbers of one hidden state."""
        ...

    @property
    def can_roll_back(self) -> bool:
        """False where the cache cannot forget single tokens: then only plain decoding is possible."""
        ...

    def sequence(self, tokens: Sequence[int] = ()) -> ScoredSequence:
        """Open a sequence, preferring an idle one whose cache shares a prefix with `tokens`."""
        ...

    def score(self, requests: Sequence[ScoreRequest]) -> list[Rows]:
        """Raw logits for every request, in one decode.

        Request r gets rows of shape (len(drafted) + 1, vocab.size): row i is the logits after
        tokens + drafted[:i]. The cache is first brought to tokens[:-1] (common prefix kept, the
        rest decoded in chunks, the last of them in the decode of the rows). Rows are views, overwritten by the next
        call (see `turn`). Afterwards the cache holds tokens + drafted. A request that only reads gets no rows.
        """
        ...

    def states(self, sequence: Any) -> Rows:
        """Hidden states of the rows that the latest score() gave `sequence`: shape (rows, state_size), float32.

        Row i is what the output matrix makes row i of the logits of. For requests with `states` alone; views,
        overwritten by the next decode, as the rows are.
        """
        ...


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest common prefix of two token lists."""
    n = min(len(a), len(b))
    if _beginning(a, n) == _beginning(b, n):  # the usual case, compared in C
        return n
    low, high = 0, n
    while high - low > 1:
        middle = (low + high) // 2
        if list(a[low:middle]) == list(b[low:middle]):
            low = middle
        else:
            high = middle
    return low


def _beginning(tokens: Sequence[int], n: int) -> list[int]:
    """The first n tokens; copied only where there are more."""
    return tokens if isinstance(tokens, list) and len(tokens) == n else list(tokens[:n])
