"""Runs batches on one llama_context: times them, lets them be cancelled, and turns what they fail with into errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import Cancelled, ContextFullError, DecodeError
from ..scoring import Rows
from . import binding
from .batch import Batch
from .interrupt import Interrupt, held_back
from .views import RowsView

KV_FULL, _ABORTED = 1, 2
_SLOW_S = 0.1  # a decode that takes longer can be stopped in the middle, however few its tokens


class Decodes:
    """batch: what the next one holds.  seconds: total wall time inside llama.cpp; what is left of a round is ours.

    The lock of the context is held by whoever calls.
    """

    def __init__(self, lib: Any, handle: Any, *, capacity: int, n_ctx: int, vocab_size: int) -> None:
        """capacity: most tokens of a batch.  n_ctx: of one sequence, for the error that says so."""
        self._lib, self._handle, self._n_ctx = lib, handle, n_ctx
        self.batch = Batch(capacity)
        self._logits = RowsView(vocab_size, "logits")
        self._vocab_size = vocab_size
        self._interrupt = Interrupt()
        self._slow = False  # the latest one took so long that a person would notice
        self.seconds = 0.0

    def run(self, cancels: list[threading.Event], again: Callable[[int], bool]) -> None:
        """Decode the batch. Raises Cancelled, ContextFullError, DecodeError.

        again: called with the code of a decode that failed: it puts the caches right, and says whether to try again.
        """
        if any(c.is_set() for c in cancels):
            raise Cancelled("cancelled")
        with held_back() as held:
            self._interrupt.watch(self._handle, self.batch.size, cancels, held, slow=self._slow)
            while (code := self.attempt()) != 0 and again(code):
                pass
        if code == 0:
            return
        if self._interrupt.error is not None:
            raise self._interrupt.error
        if code == _ABORTED:
            raise Cancelled("cancelled")
        if code == KV_FULL:
            raise ContextFullError(
                f"the context of {self._n_ctx} tokens is full; shorten the text or raise --ctx-size",
                needed=self.batch.size,
                available=0,
            )
        raise DecodeError(f"llama_decode failed with code {code}: {binding.take_errors() or 'no reason given'}")

    def attempt(self) -> int:
        """llama_decode's code."""
        start = time.perf_counter()
        code = int(self._lib.llama_decode(self._handle, self.batch.struct))
        if code == 0:
            self._lib.llama_synchronize(self._handle)
        took = time.perf_counter() - start
        self.seconds += took
        self._slow = took > _SLOW_S
        return code

    def rows(self) -> Rows:
        """The logits of the last decode, shape (rows, vocab_size), without a copy."""
        if not self.batch.rows:
            return np.empty((0, self._vocab_size), np.float32)
        return self._logits.rows(self._lib.llama_get_logits(self._handle), self.batch.rows)
