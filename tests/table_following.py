"""A head that follows a TableModel: its guesses depend on every pair in its cache, so a wrong cache shows."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgespec.drafters import EagleDrafter
from edgespec.drafting import Draft, Features
from edgespec.scoring import Rows
from edgespec.testing import TableModel

_SIZE = 6  # numbers of a feature: those of a TableModel's state


class TableHead:
    """Implements drafting.Head, over `ids`. A share's cache is the list of its pairs."""

    step_ms = 0.01

    def __init__(self, vocab_size: int = 3, ids: Sequence[int] = (0, 1, 2), shares: int = 8) -> None:
        self.vocab_size, self.ids = vocab_size, list(ids)
        self.turn = threading.RLock()
        self.free = shares

    def open(self) -> TableShare | None:
        self.free -= 1
        return TableShare(self) if self.free >= 0 else None

    def encode(self, rows: Rows) -> Rows:
        return rows


class TableShare:
    """Implements drafting.HeadSequence."""

    def __init__(self, head: TableHead) -> None:
        self._head = head
        self._start, self._pairs = 0, b""

    def feed(self, first: int, tokens: Sequence[int], features: Rows) -> tuple[Rows, Rows]:
        width = 4 + 4 * _SIZE
        if not self._pairs:
            self._start = first
        assert first == self._start + len(self._pairs) // width, "pairs follow those in the cache"
        assert len(tokens) == len(features) > 0
        for token, feature in zip(tokens, features, strict=True):
            assert 0 <= token < self._head.vocab_size
            self._pairs += np.int32(token).tobytes() + np.asarray(feature, np.float32).tobytes()
        rng = np.random.default_rng(zlib.crc32(self._pairs))
        row = np.full(self._head.vocab_size, -np.inf, np.float32)
        row[self._head.ids] = rng.standard_normal(len(self._head.ids))
        return row, rng.standard_normal(_SIZE, dtype=np.float32)

    def cut(self, first: int) -> None:
        self._pairs = self._pairs[: max(0, first - self._start) * (4 + 4 * _SIZE)]

    def close(self) -> None:
        self._head.free += 1


class ToldEagle(EagleDrafter):
    """With the features that a loop would leave, for texts that no loop wrote."""

    def __init__(self, target: TableModel, head: TableHead) -> None:
        super().__init__(head, Features(), ends=target.vocab.is_eog)
        self._target = target

    def draft(self, tokens: Sequence[int], *rest: Any) -> Draft:
        if len(tokens) > 1:
            self.features.put(0, np.stack([self._target.state(tokens[: i + 1]) for i in range(len(tokens) - 1)]))
        self._known = 0  # texts of one drafter need not continue each other here
        return super().draft(tokens, *rest)
