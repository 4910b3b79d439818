"""The slots of a cache: which sequence sits in which, what each holds, and who makes room for whom."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as TokenSequence
from typing import Any

from ..errors import DecodeError
from ..scoring import ScoreRequest, common_prefix
from .sequence import Sequence, Slot


class Slots:
    """All slots of one llama_context. Its lock is held by whoever calls."""

    def __init__(
        self,
        lib: Any,
        memory: Any,
        count: int,
        *,
        recurrent: bool,
        window: int,
        snapshots: int,
        together: bool = False,
    ) -> None:
        """window: tokens that a sliding window sees; 0: all.  snapshots: of a recurrent state, to go back to.
        together: those in use should be neighbours.
        """
        self._together = together
        self._lib, self._memory = lib, memory
        self._recurrent, self._window, self._snapshots = recurrent, window, snapshots
        self._slots = [Slot(i) for i in range(count)]
        self._clock = itertools.count(1)

    def __iter__(self) -> Iterator[Slot]:
        return iter(self._slots)

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def held(self) -> int:
        """Tokens of all."""
        return sum(len(slot.tokens) for slot in self._slots)

    def of(self, sequence: Sequence) -> Slot:
        """The one that a sequence sits in."""
        if sequence.slot is None:
            raise DecodeError("this sequence holds no cache; score it first")
        return sequence.slot

    def least_used(self) -> Slot:
        """The one that nobody has used for the longest time."""
        return min(self._slots, key=lambda s: s.used)

    def offer(self, sequence: Sequence, tokens: TokenSequence[int]) -> None:
        """Seat a sequence in the idle slot that shares the longest prefix with `tokens`, if there is an idle one."""
        idle = [s for s in self._slots if s.owner is None]
        if idle:
            best = max(idle, key=lambda s: (common_prefix(s.tokens, tokens), self._beside(s), -len(s.tokens), -s.used))
            self._give(best, sequence)

    def _beside(self, slot: Slot) -> int:
        """How many neighbours of a slot are in use, where that counts."""
        near = self._slots[max(0, slot.id - 1) : slot.id + 2] if self._together else []
        return sum(s.owner is not None for s in near)

    def place(self, sequence: Sequence, tokens: TokenSequence[int], requests: Iterable[ScoreRequest]) -> None:
        """Make sure a sequence sits: in an idle slot, else in the one least recently used by others than `requests`."""
        if sequence.slot is None:
            self.offer(sequence, tokens)
        if sequence.slot is None:
            busy = {id(r.sequence) for r in requests}
            self._give(min((s for s in self._slots if id(s.owner) not in busy), key=lambda s: s.used), sequence)
        self.of(sequence).used = next(self._clock)

    def cut(self, slot: Slot, length: int) -> None:
        """Drop a slot's tokens from `length` on; all of them where the model cannot drop some."""
        end = self.end(slot)
        if end > length:
            # A sliding window's older cells go to whoever needs room, and are not in saved states.
            start = self._lib.llama_memory_seq_pos_min(self._memory, slot.id) if self._window else 0
            able = start <= max(0, length - self._window)
            if self._recurrent:
                # Snapshots cover the last decode but its first token, once; llama.cpp says yes to more and
                # then decodes from a stale state.
                able = length == 0 or end - length <= min(self._snapshots, slot.fresh - 1)
                slot.fresh = 0
            if not able or not self._lib.llama_memory_seq_rm(self._memory, slot.id, length, -1):
                self._lib.llama_memory_seq_rm(self._memory, slot.id, -1, -1)
                length = 0
        # Ctrl+C between a call to llama.cpp and its bookkeeping leaves the two apart: what both have counts.
        del slot.tokens[min(length, end) :]

    def end(self, slot: Slot) -> int:
        """Tokens that llama.cpp holds for a slot."""
        return int(self._lib.llama_memory_seq_pos_max(self._memory, slot.id)) + 1

    def settle(self) -> None:
        """After a decode that failed: nothing of it stays."""
        for slot in self._slots:
            self.cut(slot, len(slot.tokens))

    def evict(self, requests: Iterable[ScoreRequest]) -> bool:
        """Make room: empty the least recently used cache that these do not need. False: there is none."""
        busy = {id(r.sequence) for r in requests}
        spare = [s for s in self._slots if s.tokens and (s.owner is None or id(s.owner) not in busy)]
        if not spare:
            return False
        self.cut(min(spare, key=lambda s: s.used), 0)
        return True

    def _give(self, slot: Slot, sequence: Sequence) -> None:
        if slot.owner is not None:
            slot.owner.slot = None
        slot.owner, sequence.slot = sequence, slot
