"""The KV cache of one model and the decodes over it.

A Sequence never promises that its cache survives: another one may need the room. Whoever scores
passes all its tokens, and what the cache lacks is decoded again. That one rule is rollback, prefix
reuse and sharing at once.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence as TokenSequence
from types import TracebackType
from typing import Any

from edgespec.models.memory import MICRO_BATCH, MemoryEstimate, default_context, estimate

from ..drafting import FEATURES_KEPT
from ..errors import BadRequestError, Cancelled, DecodeError
from ..scoring import Rows, ScoreRequest, common_prefix
from . import binding
from .checking import check
from .decodes import KV_FULL, Decodes
from .model import Model
from .opening import open_handle
from .sequence import Sequence, Slot
from .settings import LoadSettings
from .slots import Slots
from .states import HiddenStates
from .taps import Listening, Tap
from .trials import rolls_back, states_beside_logits
from .vocab import LlamaVocab

NO_STATES = "this llama.cpp gives its hidden states or its logits, not both, so heads cannot draft for it"
_SNAPSHOTS = 8  # longest draft on a recurrent model that can roll back


class Context:
    """A KV cache for several sequences on one Model, and the decodes over it. Safe to call from threads.

    Implements scoring.Scorer.
    """

    def __init__(self, model: Model, settings: LoadSettings | None = None) -> None:
        """settings: of this context, where they differ from those that the weights were loaded with."""
        self._lib = binding.lib()
        self.model = model
        self.settings = settings = settings or model.settings
        self.cells: int = settings.n_ctx or default_context(
            model.header, kv_type=settings.kv_type, flash=settings.flash_attention != 0
        )
        self.n_ctx = self.cells
        self.n_batch = min(settings.n_batch, self.n_ctx)
        self.max_width = min(settings.max_width, self.n_batch, self.n_ctx)
        self.n_threads = settings.n_threads
        # Each snapshot is a whole state per sequence, so only a short draft's worth is kept; llama.cpp aborts if a
        # micro-batch is not wider.
        self._snapshots = max(0, min(_SNAPSHOTS, min(MICRO_BATCH, self.n_batch) - 2)) if model.recurrent else 0
        self._handle = open_handle(
            model, settings, n_ctx=self.n_ctx, n_batch=self.n_batch, outputs=self.max_width, snapshots=self._snapshots
        )
        if settings.split:
            self.n_ctx = int(self._lib.llama_n_ctx_seq(self._handle))  # rounded up
            self.cells = self.n_ctx * settings.sequences
        self._memory = self._lib.llama_get_memory(self._handle)
        self._states = HiddenStates(self._lib, self._handle, model.embedding_size)
        self._gives_states: bool | None = None  # tried when first asked
        self._taps = Listening(self._handle)
        self._decodes = Decodes(
            self._lib,
            self._handle,
            capacity=max(self.n_batch, self.max_width),
            n_ctx=self.n_ctx,
            vocab_size=self.vocab.size,
        )
        self._batch = self._decodes.batch
        self.turn = threading.RLock()  # held from a score() until its rows are read, by whoever shares this context
        model.opened(self)
        self._window = int(self._lib.llama_model_n_swa(model.handle))
        self._slots = Slots(
            self._lib,
            self._memory,
            settings.sequences,
            recurrent=model.recurrent,
            window=self._window,
            snapshots=self._snapshots,
            together=settings.split,
        )
        self.can_roll_back = not model.recurrent or (
            not self._window and self.n_batch > 2 and rolls_back(self._lib, self._memory, self._decodes, self._slots)
        )
        if model.recurrent and self.can_roll_back:
            self.max_width = min(self.max_width, self._snapshots + 1)

    @property
    def vocab(self) -> LlamaVocab:
        return self.model.vocab

    @property
    def decode_seconds(self) -> float:
        """Total wall time inside llama.cpp: what is left of a round is ours."""
        return self._decodes.seconds

    @property
    def attends_to_all(self) -> bool:
        """True where the time of a row grows with what all sequences hold, not with what its own one holds.

        Where they share one cache attention is over all of it; but llama.cpp's flash attention on a CPU passes over the
        cells of others.
        """
        settings = self.settings
        return not settings.split and (settings.offload != 0 or settings.flash_attention != binding.FLASH_ATTN["on"])

    @property
    def splits(self) -> bool:
        """True where a decode of sequences with different numbers of rows is several passes over the weights."""
        return self.settings.split

    @property
    def state_size(self) -> int:
        """Numbers of one hidden state."""
        return self.model.embedding_size

    @property
    def gives_states(self) -> bool:
        """False where this llama.cpp leaves out the logits of a decode that gives hidden states: architecture lfm2."""
        with self.turn:
            self._require_open()
            if self._gives_states is None:
                self._gives_states = states_beside_logits(
                    self._lib, self._memory, self._decodes, self._slots, self._states.switch, self.vocab.size
                )
            return self._gives_states

    @property
    def max_sequences(self) -> int:
        """Requests one score() call may hold.

        One where rollback uses snapshots of recurrent states: a decode of several sequences may move their states
        but not the snapshots. Decodes of single sequences move nothing.
        """
        return 1 if self.model.recurrent and self.can_roll_back else len(self._slots)

    @property
    def can_trim(self) -> bool:
        """True where any end of a cache can be forgotten at any time, and saved states have all of it."""
        return not self.model.recurrent and not self._window

    @property
    def memory(self) -> MemoryEstimate:
        """What the weights and this context take."""
        settings = self.settings
        return estimate(self.model.header, self.cells, kv_type=settings.kv_type, flash=settings.flash_attention != 0)

    def sequence(self, tokens: TokenSequence[int] = ()) -> Sequence:
        """Open a sequence, on the idle cache that shares the longest prefix with `tokens`."""
        with self.turn:
            self._require_open()
            sequence = Sequence(self)
            self._slots.offer(sequence, tokens)
            return sequence

    def score(self, requests: TokenSequence[ScoreRequest]) -> list[Rows]:
        """Logits after tokens + drafted[:i] for every request and i, in one decode. See scoring.Scorer.

        Returns views of shape (len(drafted) + 1, vocab.size), float32, overwritten by the next decode: where
        several threads share the context, hold `turn` until the rows are read.
        Raises BadRequestError (ids, widths), ContextFullError, Cancelled, DecodeError. After an error
        the caches hold at most what they held before.
        """
        with self.turn:
            self._require_open()
            check(requests, self)
            for r in requests:
                self._slots.place(r.sequence, r.tokens, requests)
            # With hidden states every token of the decode is an output, so it may hold rows alone.
            stated = any(r.states or self._taps.stated(r.sequence) for r in requests)
            if stated and not self.gives_states:
                raise BadRequestError(f"{self.model.path.name}: {NO_STATES}")
            room = 0 if stated else self.n_batch - sum(r.width for r in requests)
            for r in requests:
                # The prompt's last chunk shares the decode that scores: one decode fewer.
                before = r.before
                missing = len(before) - self._trim(r.sequence, before, r.cancel)
                if missing > room:
                    read = before[: len(before) - room]
                    self._fill(r.sequence, read, r.cancel, requests, states=r.width > 0)
                    missing = room
                room -= missing
            if self.settings.split:  # what is one pass must have growing ids
                order = sorted(range(len(requests)), key=lambda i: self._slots.of(requests[i].sequence).id)
            else:
                order = list(range(len(requests)))
            self._batch.clear()
            tails: list[list[int]] = [[] for _ in requests]
            for i in order:
                r = requests[i]
                slot = self._slots.of(r.sequence)
                tails[i] = [*r.tokens[len(slot.tokens) :], *r.drafted]
                if tails[i]:
                    slot.fresh = 0  # whatever ends the decode, older snapshots are gone
                    self._batch.add(slot.id, len(slot.tokens), tails[i], outputs=r.width)
                    last = slot, tails[i]
            if self._batch.size:
                padded = self._pad(*last)
                self._states.switch(stated)
                self._decode([r.cancel for r in requests if r.cancel], requests)
                if padded:
                    slot, tail = last
                    self._lib.llama_memory_seq_rm(self._memory, slot.id, len(slot.tokens) + len(tail), -1)
            logits = self._decodes.rows()
            rows, start, place = [logits] * len(requests), 0, 0
            for i in order:
                r, slot = requests[i], self._slots.of(requests[i].sequence)
                if tails[i]:
                    self._taps.tell(r.sequence, len(slot.tokens), place, place + len(tails[i]), stated=stated)
                    place += len(tails[i])
                    slot.tokens += tails[i]
                    slot.fresh = len(tails[i])
                rows[i] = logits[start : start + r.width]
                if r.states:
                    self._states.note(slot.id, start, r.width)
                start += r.width
            return rows

    def states(self, sequence: Sequence) -> Rows:
        """Hidden states of the rows that the latest score() gave a sequence: shape (rows, state_size), float32.

        Row i belongs to the last token of tokens + drafted[:i], after the final norm: the output matrix makes row i of
        the logits of it. Views, overwritten by the next decode, as the logits are. Raises BadRequestError where they
        were not asked for, DecodeError.
        """
        with self.turn:
            self._require_open()
            return self._states.rows(self._slots.of(sequence).id)

    def listen(self, tap: Tap) -> None:
        """Let every decode from now on leave what `tap` reads, for sequences with an ear. Raises ModelLoadError."""
        with self.turn:
            self._require_open()
            self._taps.open(tap)

    @property
    def handle(self) -> Any:
        """The llama_context pointer. Raises DecodeError once closed."""
        self._require_open()
        return self._handle

    def sync(self, sequence: Sequence, tokens: TokenSequence[int], cancel: threading.Event | None = None) -> int:
        """Make one sequence's cache hold exactly `tokens`; returns the number decoded."""
        request = ScoreRequest(sequence, tokens, (), cancel)
        with self.turn:
            self._require_open()
            if tokens:
                check([request], self)
            self._slots.place(sequence, tokens, [request])
            kept = self._trim(sequence, tokens, cancel)
            self._fill(sequence, tokens, cancel, [request])
            return len(tokens) - kept

    def truncate(self, sequence: Sequence, length: int) -> None:
        """Forget what follows the first `length` tokens of a sequence."""
        with self.turn:
            if sequence.slot and self._handle:
                self._slots.cut(sequence.slot, length)

    def share(self, source: Sequence, target: Sequence) -> None:
        """Put what the cache holds of `source` in the view of `target` too, which counts no tokens for it."""
        with self.turn:
            self._require_open()
            self._lib.llama_memory_seq_cp(self._memory, self._slots.of(source).id, self._slots.of(target).id, -1, -1)

    def use_threads(self, count: int) -> None:
        """Decode with so many threads from now on."""
        with self.turn:
            self._require_open()
            self._lib.llama_set_n_threads(self._handle, count, count)
            self.n_threads = count

    def save(self, sequence: Sequence) -> bytes:
        """State of one sequence, as llama.cpp writes it."""
        with self.turn:
            self._require_open()
            slot = self._slots.of(sequence)
            size = self._lib.llama_state_seq_get_size(self._handle, slot.id)
            buffer = (ctypes.c_uint8 * size)()
            written = self._lib.llama_state_seq_get_data(self._handle, buffer, size, slot.id)
            return ctypes.string_at(buffer, written)

    def restore(self, sequence: Sequence, state: bytes | memoryview, tokens: TokenSequence[int]) -> None:
        """Set a sequence's state, making room for it; raises DecodeError if llama.cpp refuses it.

        llama.cpp trusts what it is given: the state must be whole, and one that this model saved.
        """
        with self.turn:
            self._require_open()
            self._slots.place(sequence, tokens, [])
            slot = self._slots.of(sequence)
            self._slots.cut(slot, 0)
            buffer = (ctypes.c_uint8 * len(state)).from_buffer_copy(state)
            while self._slots.held + len(tokens) > self.cells:
                if not self._slots.evict([ScoreRequest(sequence, tokens)]):
                    break
            taken = self._lib.llama_state_seq_set_data(self._handle, buffer, len(state), slot.id)
            if not taken or self._slots.end(slot) != len(tokens):
                self._lib.llama_memory_seq_rm(self._memory, slot.id, -1, -1)
                raise DecodeError("this saved state cannot be restored: it belongs to another model or to other tokens")
            slot.tokens = list(tokens)

    def close(self) -> None:
        """Free the cache."""
        with self.turn:
            if self._handle:
                self._lib.llama_free(self._handle)
                self._handle = None

    def __enter__(self) -> Context:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Everything below expects the lock to be held.

    def _require_open(self) -> None:
        if not self._handle:
            raise DecodeError("this model is closed")

    def _pad(self, slot: Slot, tail: TokenSequence[int]) -> bool:
        """Add rows behind the last sequence where a wider decode is the faster one (Model.padding).

        No row looks at one behind it, so the real ones do not change.
        """
        size = self._batch.size
        more = self.model.padding.get(size, size) - size
        held = self._slots.held + size
        if not more or held + more > self.cells or self._batch.rows + more > self.max_width:
            return False
        if self.settings.split and (len(tail) < size or len(slot.tokens) + size + more > self.n_ctx):
            return False  # beside others it would be a pass of its own
        outputs = more if self._batch.rows == size else 0
        self._batch.add(slot.id, len(slot.tokens) + len(tail), [tail[-1]] * more, outputs=outputs)
        return True

    def _trim(self, sequence: Sequence, tokens: TokenSequence[int], cancel: threading.Event | None) -> int:
        """Cut the cache to its common prefix with `tokens`; returns that prefix's length."""
        if cancel is not None and cancel.is_set():
            raise Cancelled("cancelled")
        slot = self._slots.of(sequence)
        self._slots.cut(slot, common_prefix(slot.tokens, tokens))
        return len(slot.tokens)

    def _fill(
        self,
        sequence: Sequence,
        tokens: TokenSequence[int],
        cancel: threading.Event | None,
        requests: TokenSequence[ScoreRequest],
        *,
        states: bool = False,
    ) -> None:
        """Decode what the cache lacks of `tokens`, in chunks, without logits.

        states: give an ear for hidden states those of the last tokens.
        """
        slot = self._slots.of(sequence)
        stated_from = max(0, len(tokens) - FEATURES_KEPT) if states and self._taps.stated(sequence) else len(tokens)
        while (held := len(slot.tokens)) < len(tokens):
            stated = held >= stated_from
            end = held + self.max_width if stated else min(held + self.n_batch, stated_from)
            chunk = list(tokens[held:end])
            slot.fresh = 0
            self._batch.clear()
            self._batch.add(slot.id, held, chunk, outputs=len(chunk) if stated else 0)
            self._states.switch(stated)
            self._decode([cancel] if cancel else [], requests)
            self._taps.tell(sequence, held, 0, len(chunk), stated=stated)
            slot.tokens += chunk
            slot.fresh = len(chunk)

    def _decode(self, cancels: list[threading.Event], requests: TokenSequence[ScoreRequest]) -> None:
        """Run the batch. On any failure the caches are back at what their slots say."""
        self._decodes.run(cancels, lambda code: self._make_room(code, requests))

    def _make_room(self, code: int, requests: TokenSequence[ScoreRequest]) -> bool:
        """After a decode that failed with this code: have other caches make room where that helps; True: it may."""
        if code != KV_FULL and self.model.recurrent:
            # An unfinished decode has run over the state, and llama.cpp takes its snapshots for good.
            for r in requests:
                self._slots.cut(self._slots.of(r.sequence), 0)
        self._slots.settle()
        return code == KV_FULL and self._slots.evict(requests)
