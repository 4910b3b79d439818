"""Drafting with a layer that follows the target token by token: what EAGLE heads and MTP layers have in common.

Such a layer reads pairs: token P + 1 with the feature of token P, which is what the target computed there. From pair P
it guesses token P + 2, and makes a feature of its own for the next pair, so it drafts one token after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..distribution import Distribution
from ..drafting import NO_DRAFT, Draft, Features, Head, HeadSequence
from ..errors import BadRequestError, ContextFullError
from ..sampling import Sampler
from ..scoring import Rows
from ..stats import RoundEvent

LONGEST = 8  # tokens of a draft: each is guessed from guesses


class FollowingDrafter:
    """Draws up to k tokens from a head, one decode of its layer each.

    When a round begins, the text has n tokens and the target has computed the first n - 1. So the pairs up to
    P = n - 2 are made of what is committed, and stay in the head's cache: the last of them guesses token n. The pairs
    behind them are made of what is drafted and of the head's own features; they are cut away when the next draft
    begins, those of accepted tokens too, because the target's own features are known by then.

    Only the latest tokens have features at hand (drafting.FEATURES_KEPT). Where the cache does not reach up to them,
    it begins anew there: a head guesses a little worse with less to look back on.
    """

    name = "following"

    def __init__(self, head: Head, features: Features, *, ends: Callable[[int], bool] = lambda _: False) -> None:
        """features: where the target's decodes put theirs.  ends: is this an end token? A draft stops there."""
        self.features = features
        self._head, self._ends = head, ends
        self._sequence: HeadSequence | None = None
        self._known = 0  # pairs before this one are in the cache, made of committed tokens and the target's features

    def reach(self, tokens: Sequence[int]) -> int:
        """The longest draft that is possible after `tokens`."""
        return LONGEST if self._ready(tokens) else 0

    @property
    def step_ms(self) -> float:
        """Expected time of drafting one token."""
        return self._head.step_ms

    def draft(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Draft:
        """Up to k tokens with the distribution each was drawn from; stops after an end token."""
        if k <= 0 or not self._ready(tokens) or (sequence := self._opened()) is None:
            return NO_DRAFT
        walk = sampler.walk(tokens)
        drafted: list[int] = []
        proposals: list[Distribution] = []
        try:
            with self._head.turn:
                row, feature = self._read(sequence, tokens)
                for place in range(min(k, LONGEST)):
                    if not np.isfinite(row.max()):
                        break  # weights that overflow; nothing was drawn yet, so to stop here is free
                    try:
                        proposal = walk.distribution(row)
                    except BadRequestError:  # bias and grammar leave nothing of the draft vocabulary
                        break
                    token = sampler.choose(proposal, len(tokens) + place, rng)
                    drafted.append(token)
                    proposals.append(proposal)
                    if len(drafted) == min(k, LONGEST) or self._ends(token):  # the end token itself is kept
                        break
                    walk.advance(token)
                    row, feature = sequence.feed(len(tokens) - 1 + place, [token], feature[None])
        except ContextFullError:  # other requests' pairs take the room; what is drawn is kept
            sequence.cut(0)
            self._known = 0
        return Draft(tuple(drafted), tuple(proposals), self.name, tuple(range(len(drafted)))) if drafted else NO_DRAFT

    def _ready(self, tokens: Sequence[int]) -> bool:
        """Does the target's feature of the last token but one stand at hand, and can the head read the text?"""
        last = len(tokens) - 2
        if not self.features.start <= last < self.features.end:
            return False
        first = self._first(tokens)
        return max(tokens[first + 1 :]) < self._head.vocab_size

    def _first(self, tokens: Sequence[int]) -> int:
        """The first pair to read: the last one is read each time, for its guess."""
        return max(min(self._known, len(tokens) - 2), self.features.start)

    def _read(self, sequence: HeadSequence, tokens: Sequence[int]) -> tuple[Rows, Rows]:
        """Bring the cache up to the text's pairs. Returns what feed() gives for the last one."""
        first, end = self._first(tokens), len(tokens) - 1
        sequence.cut(first if first <= self._known else 0)
        rows = self._head.encode(self.features.rows(first, end))
        found = sequence.feed(first, tokens[first + 1 :], rows)
        self._known = end
        return found

    def _opened(self) -> HeadSequence | None:
        if self._sequence is None:
            self._sequence = self._head.open()
        return self._sequence

    def observe(self, event: RoundEvent) -> None:
        """Nothing to learn: the cache is brought up to date by the next draft."""

    def close(self) -> None:
        """Give the cache back."""
        if self._sequence is not None:
            self._sequence.close()
            self._sequence = None
