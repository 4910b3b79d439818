"""A fake model with known next-token distributions, behind the same interface as a llama.cpp context.

Import it from edgespec.testing. Its `law` is the exact distribution of its continuations.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from collections.abc import Sequence as TokenSequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .errors import BadRequestError, Cancelled, ContextFullError, DecodeError
from .sampling import Grammar, Sampler, SamplingParams
from .scoring import Rows, ScoreRequest, common_prefix

Tokens = tuple[int, ...]

_LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_STATE_SIZE = 6  # numbers of a fake hidden state
_NO_TOKEN = -1  # stands for what precedes the first token in a table key


@dataclass(frozen=True, slots=True)
class TableVocab:
    """A vocabulary of single ASCII letters: token 0 is "a". End tokens have no text."""

    size: int
    eog: frozenset[int] = frozenset()

    def is_eog(self, token: int) -> bool:
        return token in self.eog

    def piece(self, token: int) -> bytes:
        """One letter; past 62 tokens a letter of the alphabet comes again. Empty for end tokens."""
        return b"" if token in self.eog else _LETTERS[token % len(_LETTERS) :][:1]

    def text(self, tokens: Iterable[int]) -> str:
        return b"".join(map(self.piece, tokens)).decode("ascii")


@dataclass(eq=False, slots=True)
class _Slot:
    """One KV cache. tokens: what it holds.  owner: the open sequence that uses it.  used: when, by a counter."""

    tokens: list[int] = field(default_factory=list)
    owner: TableSequence | None = None
    used: int = 0


@dataclass(eq=False, slots=True)
class TableSequence:
    """One sequence of a TableModel. Like the real one it may lose its cache to another sequence."""

    model: TableModel
    slot: _Slot | None = None
    ear: Callable[[int, Rows], None] | None = None

    @property
    def cached(self) -> Tokens:
        return tuple(self.slot.tokens) if self.slot else ()

    def sync(self, tokens: TokenSequence[int], cancel: threading.Event | None = None) -> int:
        return self.model.sync(self, tokens, cancel)

    def truncate(self, length: int) -> None:
        if self.slot:
            self.model.cut(self.slot, length)

    def close(self) -> None:
        if self.slot:
            self.slot.owner = None
            self.slot = None


class TableModel:
    """A scoring.Scorer whose next-token distributions are a random table keyed on the last `order` tokens.

    vocab_size: ids 0 .. vocab_size - 1.  seed: the table; equal seeds make equal models.  order: how many
    tokens back the distribution depends on.  concentration: of the Dirichlet the rows are drawn from; small
    values make peaked rows.  zeros: share of entries with probability 0 (logit -inf).  eog: end token ids.
    n_ctx: tokens a sequence may hold.  max_width: rows per score().  n_seq_max: caches; further sequences
    take the least recently used one.  cells: tokens they hold together; None: n_ctx each.  can_roll_back:
    False forgets a whole cache where one token is cut.

    Hidden states are random numbers keyed on the same tokens: enough to draft from, and wrong for a wrong position.

    Rows are log p, float32. They are computed from what the cache holds, so a cache that is out of step
    with the tokens gives wrong rows, and score() raises DecodeError where it can tell.

    score_calls, decoded_tokens: totals since construction, for tests of how much work was done.
    """

    def __init__(
        self,
        vocab_size: int = 3,
        *,
        seed: int = 0,
        order: int = 2,
        concentration: float = 1.0,
        zeros: float = 0.0,
        eog: Iterable[int] = (),
        n_ctx: int = 256,
        max_width: int = 64,
        n_seq_max: int = 4,
        cells: int | None = None,
        can_roll_back: bool = True,
    ) -> None:
        for name, value, least in (
            ("vocab_size", vocab_size, 1),
            ("order", order, 0),
            ("n_ctx", n_ctx, 1),
            ("max_width", max_width, 1),
            ("n_seq_max", n_seq_max, 1),
        ):
            if value < least:
                raise BadRequestError(f"{name} is {value}; it must be {least} or more")
        if not 0 <= zeros < 1 or not concentration > 0:
            raise BadRequestError("zeros must be from 0 to below 1, concentration above 0")
        self.vocab = TableVocab(vocab_size, frozenset(eog))
        self.n_ctx = n_ctx
        self.cells = n_ctx * n_seq_max if cells is None else cells
        self.max_width = max_width
        self.can_roll_back = can_roll_back
        self.attends_to_all, self.splits = True, False
        self.turn = threading.RLock()
        self.score_calls = 0
        self.decoded_tokens = 0
        self._seed, self._order = seed, order
        self._concentration, self._zeros = concentration, zeros
        self._table: dict[Tokens, NDArray[np.float32]] = {}
        self._rows: Rows = np.empty((max_width, vocab_size), dtype=np.float32)
        self._states: Rows = np.empty((max_width, _STATE_SIZE), dtype=np.float32)
        self._stated: dict[int, tuple[int, int]] = {}  # id of a sequence: its rows' start and end
        self._slots = [_Slot() for _ in range(n_seq_max)]
        self._clock = itertools.count(1)

    def logits(self, tokens: TokenSequence[int]) -> NDArray[np.float32]:
        """log p(. | tokens), shape (vocab_size,), read-only: the truth, with no cache involved."""
        key = tuple(tokens[-self._order :]) if self._order else ()
        row = self._table.get(key)
        if row is None:
            row = self._table[key] = self._draw_row(key)
        return row

    def _draw_row(self, key: Tokens) -> NDArray[np.float32]:
        padded = (_NO_TOKEN,) * (self._order - len(key)) + key
        rng = np.random.default_rng([self._seed, *(token + 1 for token in padded)])
        weights = rng.dirichlet(np.full(self.vocab.size, self._concentration))
        dropped = rng.random(self.vocab.size) < self._zeros
        dropped[int(weights.argmax())] = False
        weights[dropped] = 0
        with np.errstate(divide="ignore"):
            row: NDArray[np.float32] = np.log(weights / weights.sum()).astype(np.float32)
        row.flags.writeable = False
        return row

    @property
    def max_sequences(self) -> int:
        """Requests one score() call may hold."""
        return len(self._slots)

    @property
    def state_size(self) -> int:
        """Numbers of one hidden state."""
        return _STATE_SIZE

    def state(self, tokens: TokenSequence[int]) -> NDArray[np.float32]:
        """The hidden state after `tokens`, shape (state_size,): the truth, with no cache involved."""
        key = tuple(tokens[-self._order :]) if self._order else ()
        rng = np.random.default_rng([self._seed, 1, *(token + 1 for token in key)])
        return rng.standard_normal(_STATE_SIZE, dtype=np.float32)

    def states(self, sequence: TableSequence) -> Rows:
        """See scoring.Scorer. Overwritten by the next score(). Raises BadRequestError where they were not asked for."""
        if id(sequence) not in self._stated:
            raise BadRequestError("no hidden states were asked for; score with ScoreRequest(states=True)")
        start, end = self._stated[id(sequence)]
        return self._states[start:end]

    def sequence(self, tokens: TokenSequence[int] = ()) -> TableSequence:
        """Open a sequence, on the idle cache that shares the longest prefix with `tokens`."""
        sequence = TableSequence(self)
        idle = [slot for slot in self._slots if slot.owner is None]
        if idle:
            self._give(max(idle, key=lambda slot: common_prefix(slot.tokens, tokens)), sequence)
        return sequence

    def score(self, requests: TokenSequence[ScoreRequest]) -> list[Rows]:
        """See scoring.Scorer. Rows are overwritten by the next call.

        Raises BadRequestError (nothing to score, ids, widths), ContextFullError, Cancelled, and
        DecodeError where a cache is not what its sequence says.
        """
        self._check(requests)
        self.score_calls += 1
        self._rows.fill(np.nan)  # whoever still reads rows of an earlier call shall notice
        self._states.fill(np.nan)
        self._stated.clear()
        scored: list[Rows] = []
        start = 0
        for r in requests:
            cache = self._synced(r, requests)
            first = len(cache)
            added = [] if r.reads else [r.tokens[-1], *r.drafted]
            cache += added
            self._tell(r.sequence, first)
            self.decoded_tokens += len(added)
            for i in range(len(added)):
                latest = cache[max(0, first + i + 1 - self._order) : first + i + 1]
                self._rows[start + i] = self.logits(latest)
                if r.states:
                    self._states[start + i] = self.state(latest)
            if r.states:
                self._stated[id(r.sequence)] = (start, start + len(added))
            scored.append(self._rows[start : start + len(added)])
            start += len(added)
        return scored

    def sync(self, sequence: TableSequence, tokens: TokenSequence[int], cancel: threading.Event | None = None) -> int:
        """Make a sequence's cache hold exactly `tokens`; returns how many were decoded for it."""
        before = self.decoded_tokens
        request = ScoreRequest(sequence, [*tokens, 0], (), cancel)
        self._check([request])
        self._synced(request, [request])
        return self.decoded_tokens - before

    def _check(self, requests: TokenSequence[ScoreRequest]) -> None:
        for r in requests:
            if not r.tokens:
                raise BadRequestError("nothing to score: a sequence needs at least one token")
            size = len(r.tokens) + len(r.drafted)
            if size > self.n_ctx:
                raise ContextFullError(
                    f"{size} tokens do not fit the context of {self.n_ctx}; shorten the text",
                    needed=size,
                    available=self.n_ctx,
                )
            for token in itertools.chain(r.tokens, r.drafted):
                if not 0 <= token < self.vocab.size:
                    raise BadRequestError(f"token id {token} is outside the vocabulary of {self.vocab.size}")
            if r.cancel is not None and r.cancel.is_set():
                raise Cancelled("cancelled")
        width = sum(r.width for r in requests)
        if width > self.max_width:
            raise BadRequestError(f"{width} rows asked for in one decode; this model gives {self.max_width}")
        if sum(len(r.tokens) + len(r.drafted) for r in requests) > self.cells:
            raise ContextFullError(
                f"the context of {self.cells} tokens is full; shorten the text",
                needed=sum(len(r.tokens) + len(r.drafted) for r in requests),
                available=self.cells,
            )
        if len({id(r.sequence) for r in requests}) < len(requests) or len(requests) > len(self._slots):
            raise BadRequestError(f"one decode takes at most {len(self._slots)} sequences, each of them once")

    def _synced(self, request: ScoreRequest, requests: TokenSequence[ScoreRequest]) -> list[int]:
        """The request's cache, brought to tokens[:-1]."""
        sequence, wanted = request.sequence, request.before
        if not isinstance(sequence, TableSequence) or sequence.model is not self:
            raise BadRequestError("the sequence belongs to another model; open it with this model's sequence()")
        if sequence.slot is None:
            busy = {id(r.sequence) for r in requests}
            spare = [s for s in self._slots if s.owner is None or id(s.owner) not in busy]
            self._give(min(spare, key=lambda slot: (slot.owner is not None, slot.used)), sequence)
        slot = sequence.slot
        if slot is None or slot.owner is not sequence:
            raise DecodeError("the sequence holds no cache, or one that is another's")
        slot.used = next(self._clock)
        cached = len(slot.tokens)
        kept = self.kept(slot.tokens, wanted)
        if kept < cached:
            self.cut(slot, kept)
            if len(slot.tokens) > kept:
                raise DecodeError(f"the cache still holds {len(slot.tokens)} tokens after a cut to {kept}")
        missing = wanted[len(slot.tokens) :]
        slot.tokens.extend(missing)
        self._tell(sequence, len(slot.tokens) - len(missing))
        self.decoded_tokens += len(missing)
        if len(slot.tokens) != len(wanted):
            raise DecodeError(f"the cache holds {len(slot.tokens)} tokens where {len(wanted)} were asked for")
        return slot.tokens

    def _tell(self, sequence: TableSequence, first: int) -> None:
        """The hidden states of a sequence's tokens from `first` on, for heads that read every token."""
        if sequence.ear is not None and sequence.slot is not None and first < len(sequence.slot.tokens):
            held = sequence.slot.tokens
            sequence.ear(first, np.stack([self.state(held[: i + 1]) for i in range(first, len(held))]))

    def kept(self, cached: TokenSequence[int], wanted: TokenSequence[int]) -> int:
        """How many cached tokens to keep: those that `wanted` starts with. Overridden to plant faults."""
        return common_prefix(cached, wanted)

    def cut(self, slot: _Slot, length: int) -> None:
        """Forget a cache's tokens from `length` on; all of them where it cannot roll back."""
        if length < len(slot.tokens):
            del slot.tokens[length if self.can_roll_back else 0 :]

    def _give(self, slot: _Slot, sequence: TableSequence) -> None:
        if slot.owner is not None:
            slot.owner.slot = None
        slot.owner, sequence.slot = sequence, slot

    def law(
        self,
        params: SamplingParams,
        prompt: TokenSequence[int],
        length: int,
        grammar: Callable[[], Grammar] | None = None,
    ) -> dict[Tokens, float]:
        """The exact distribution of continuations of `prompt`, at most `length` tokens long.

        Keys are emitted tokens without the end token: a key shorter than `length` is a text that ended.
        grammar: makes a fresh grammar state. Outcomes of probability 0 are not listed.
        """
        law: Counter[Tokens] = Counter()

        def extend(tokens: Tokens, weight: float) -> None:
            if len(tokens) == length:
                law[tokens] += weight  # type: ignore[assignment]
                return
            sampler = Sampler(params, self.vocab.size, grammar() if grammar else None)
            for token in tokens:
                sampler.commit(token)
            context = (*prompt, *tokens)
            row = sampler.walk(context).distribution(self.logits(context))
            for token, p in zip(row.ids.tolist(), row.probs.tolist(), strict=True):
                if p > 0 and self.vocab.is_eog(token):
                    law[tokens] += weight * p
                elif p > 0:
                    extend((*tokens, token), weight * p)

        extend((), 1.0)
        return dict(law)
