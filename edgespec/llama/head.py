"""A layer that follows a target, in a llama_context of its own: an EAGLE head's, or the target's MTP layers.

llama.cpp calls the feature rows "nextn". A decode takes pairs (token, row) and gives logits and the layer's own rows.
These graphs ignore which tokens are outputs, so a batch asks for all of them, or for none.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ContextFullError, DecodeError, ModelLoadError
from ..scoring import Rows
from . import binding
from .context import Context
from .interrupt import held_back
from .unstable import unstable
from .views import RowsView

_BATCH = 128  # pairs of one decode
_OUTPUTS = 16  # most of them that give logits: beyond, only the last pair of a text does
_SPARE = 64  # cells for what is drafted, for each sequence
_MTP = 1  # llama.cpp's type of a context that runs the MTP layers
_KV_FULL = 1
_TIMED = 3  # decodes of which the fastest counts


class HeadContext:
    """Implements drafting.Head. Requests share it; each opens a sequence."""

    def __init__(
        self,
        model: Any,
        target: Context,
        *,
        name: str,
        width: int,
        encoded: int = 0,
        shift: int = 0,
        mtp: bool = False,
        owns: bool = True,
    ) -> None:
        """model: a llama_model*; owns: free it at the end.  width: numbers of a feature.

        encoded: numbers of a row that the target gives, where the model's encoder makes features of them; 0: such rows
        are the features.  shift: position of pair 0.  mtp: run the model's MTP layers.  Raises ModelLoadError.
        """
        self._lib, self._model, self._owns = binding.lib(), model, owns
        self.turn = threading.RLock()
        self.name = name
        self._encoded, self._width, self._shift = encoded, width, shift
        self.vocab_size = int(self._lib.llama_vocab_n_tokens(self._lib.llama_model_get_vocab(model)))
        self._sequences = target.settings.sequences
        self._handle = self._context(target, mtp=mtp)
        unstable().set_nextn(self._handle, True, True)
        self._memory = self._lib.llama_get_memory(self._handle)
        self._free = list(range(self._sequences))
        self._logits = RowsView(self.vocab_size, "logits")
        self._rows = RowsView(width, "features")

    def _context(self, target: Context, *, mtp: bool) -> Any:
        settings = target.settings
        params = self._lib.llama_context_default_params()
        params.n_ctx = target.cells + _SPARE * self._sequences
        params.n_batch = params.n_ubatch = _BATCH
        params.n_outputs_max = max(_OUTPUTS, self._sequences)
        params.n_seq_max = self._sequences
        params.n_threads = params.n_threads_batch = target.n_threads
        params.flash_attn_type = settings.flash_attention
        params.type_k = params.type_v = binding.KV_TYPES[settings.kv_type]
        params.swa_full = params.kv_unified = params.no_perf = True
        params.ctx_other = target.handle  # whose embedding and output matrices serve where the file has none
        if mtp:
            params.ctx_type = _MTP
        binding.take_errors()
        with held_back():
            handle = self._lib.llama_init_from_model(self._model, params)
        if not handle:
            why = binding.take_errors() or "llama.cpp gave no reason"
            raise ModelLoadError(f"no context for {self.name}: {why}; leave it out with --heads none")
        return handle

    def open(self) -> HeadShare | None:
        """A share of the cache; None: as many as the target has sequences are open."""
        with self.turn:
            return HeadShare(self, self._free.pop()) if self._free and self._handle else None

    def encode(self, rows: Rows) -> Rows:
        """Features out of rows of the target. Raises DecodeError."""
        if not self._encoded:
            return rows
        with self.turn:
            found = np.empty((len(rows), self._width), np.float32)
            # It keeps nothing in the cache, and still llama.cpp wants positions that follow those of the sequence.
            after = int(self._lib.llama_memory_seq_pos_max(self._memory, 0)) + 1 - self._shift
            for start in range(0, len(rows), _BATCH):
                part = rows[start : start + _BATCH]
                self._run(self._lib.llama_encode, 0, after, None, part, outputs=True)
                found[start : start + len(part)] = self._rows.rows(unstable().nextn(self._handle), len(part))
            return found

    @functools.cached_property
    def step_ms(self) -> float:
        """Milliseconds for one drafted token, measured here at first use: for planning, never for output."""
        with self.turn:
            share, best = self.open(), float("inf")
            if share is None:
                return 1.0
            try:
                feature = np.full((1, self._width), 0.1, np.float32)
                for place in range(_TIMED):
                    start = time.perf_counter()
                    share.feed(place, [0], feature)
                    best = min(best, time.perf_counter() - start)
            finally:
                share.close()
            return 1000 * best

    def feed(self, sequence: int, first: int, tokens: Sequence[int], features: Rows) -> tuple[Rows, Rows]:
        """See drafting.HeadSequence. sequence: llama.cpp's id."""
        with self.turn:
            if not self._handle:
                raise DecodeError("this model is closed")
            place = 0
            while (left := len(tokens) - place) > _OUTPUTS:
                count = min(_BATCH, left - 1)
                self._pairs(sequence, first + place, tokens[place : place + count], features[place:], outputs=False)
                place += count
            self._pairs(sequence, first + place, tokens[place:], features[place:], outputs=True)
            logits = self._logits.rows(self._lib.llama_get_logits(self._handle), left)[-1]
            return logits, self._rows.rows(unstable().nextn(self._handle), left)[-1].copy()

    def _pairs(self, sequence: int, first: int, tokens: Sequence[int], features: Rows, *, outputs: bool) -> None:
        try:
            self._run(self._lib.llama_decode, sequence, first, tokens, features[: len(tokens)], outputs=outputs)
        except BaseException:
            self.cut(sequence, first)
            raise

    def _run(
        self, call: Any, sequence: int, first: int, tokens: Sequence[int] | None, rows: Rows, *, outputs: bool
    ) -> None:
        """One batch of llama.cpp's: rows with tokens (decode) or without (encode)."""
        n = len(rows)
        batch = self._lib.llama_batch()
        keep = [
            np.ascontiguousarray(rows, np.float32),
            np.arange(first + self._shift, first + self._shift + n, dtype=np.int32),
            np.ones(n, np.int32),
            ids := np.full(1, sequence, np.int32),
            np.full(n, ids.ctypes.data, np.uintp),
            np.full(n, outputs, np.int8),
        ]
        for name, array in zip(("embd", "pos", "n_seq_id", "", "seq_id", "logits"), keep, strict=True):
            if name:
                setattr(batch, name, _pointer(batch, name, array))
        if tokens is not None:
            keep.append(found := np.asarray(tokens, np.int32))
            batch.token = _pointer(batch, "token", found)
        batch.n_tokens = n
        with held_back():
            code = int(call(self._handle, batch))
            if code == 0:
                self._lib.llama_synchronize(self._handle)
        if code == _KV_FULL:
            raise ContextFullError(f"{self.name}: its cache is full", needed=n, available=0)
        if code:
            raise DecodeError(f"{self.name}: llama.cpp failed with code {code}: {binding.take_errors() or 'no reason'}")

    def cut(self, sequence: int, first: int) -> None:
        """Forget the pairs of a sequence from `first` on."""
        with self.turn:
            if self._handle:
                start = first + self._shift if first else -1
                self._lib.llama_memory_seq_rm(self._memory, sequence, start, -1)

    def give_back(self, sequence: int) -> None:
        """A share was closed."""
        with self.turn:
            self.cut(sequence, 0)
            self._free.append(sequence)

    def close(self) -> None:
        """Free the cache, and the weights where they are its own."""
        with self.turn:
            if self._handle:
                self._lib.llama_free(self._handle)
                self._handle = None
                if self._owns:
                    self._lib.llama_model_free(self._model)


class HeadShare:
    """Implements drafting.HeadSequence."""

    def __init__(self, head: HeadContext, sequence: int) -> None:
        self._head, self._sequence = head, sequence
        self._open = True

    def feed(self, first: int, tokens: Sequence[int], features: Rows) -> tuple[Rows, Rows]:
        return self._head.feed(self._sequence, first, tokens, features)

    def cut(self, first: int) -> None:
        self._head.cut(self._sequence, first)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._head.give_back(self._sequence)


def _pointer(batch: Any, name: str, array: Any) -> Any:
    return ctypes.cast(ctypes.c_void_p(array.ctypes.data), dict(batch._fields_)[name])
