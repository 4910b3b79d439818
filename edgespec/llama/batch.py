"""One reused llama_batch over numpy arrays, so that filling it costs microseconds."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import binding


class Batch:
    """Tokens of one llama_decode. Holds at most `capacity` tokens."""

    def __init__(self, capacity: int) -> None:
        self._token = np.zeros(capacity, np.int32)
        self._pos = np.zeros(capacity, np.int32)
        self._n_seq = np.ones(capacity, np.int32)
        self._seq = np.zeros(capacity, np.int32)
        self._output = np.zeros(capacity, np.int8)
        base = self._seq.ctypes.data
        self._seq_pointers = np.arange(base, base + 4 * capacity, 4, dtype=np.uintp)
        self.rows = 0
        self.struct: Any = binding.lib().llama_batch()
        self.struct.token = self._pointer(self._token, "token")
        self.struct.pos = self._pointer(self._pos, "pos")
        self.struct.n_seq_id = self._pointer(self._n_seq, "n_seq_id")
        self.struct.seq_id = self._pointer(self._seq_pointers, "seq_id")
        self.struct.logits = self._pointer(self._output, "logits")
        self.struct.n_tokens = 0

    def _pointer(self, array: Any, name: str) -> Any:
        return ctypes.cast(ctypes.c_void_p(array.ctypes.data), dict(self.struct._fields_)[name])

    @property
    def size(self) -> int:
        """Tokens in the batch."""
        return int(self.struct.n_tokens)

    def clear(self) -> None:
        self.struct.n_tokens = 0
        self.rows = 0

    def add(self, sequence: int, position: int, tokens: Sequence[int], *, outputs: int) -> None:
        """Append consecutive tokens of a sequence; the last `outputs` of them give a row of logits."""
        start, n = self.size, len(tokens)
        end = start + n
        self._token[start:end] = tokens
        self._pos[start:end] = range(position, position + n)
        self._seq[start:end] = sequence
        self._output[start:end] = 0
        if outputs:
            self._output[end - outputs : end] = 1
        self.rows += outputs
        self.struct.n_tokens = end
