"""Prompt lookup: what followed the last time these tokens stood here? Free, and strong when text repeats."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..distribution import Distribution
from ..drafting import NO_DRAFT, Draft
from ..errors import BadRequestError
from ..sampling import Sampler
from ..stats import RoundEvent

_LONG_MATCH = 24  # matches longer than this are as good as each other
_COMPARED = 64  # latest tokens that must agree for the index to go on: comparing all would cost O(context) a round


class LookupDrafter:
    """Proposes the continuation of the longest, then most recent, match of the last tokens.

    max_ngram, min_ngram: longest and shortest match, in tokens. An index of n-grams makes a round cost
    O(max_ngram) per new token however long the context is. Proposals are one-hot (algorithms, section 3).
    """

    name = "lookup"

    def __init__(self, *, max_ngram: int = 8, min_ngram: int = 2) -> None:
        if not 1 <= min_ngram <= max_ngram <= 64:
            raise BadRequestError(f"lookup n-grams are {min_ngram}..{max_ngram}; 1 <= min <= max <= 64 must hold")
        self._sizes = range(max_ngram, min_ngram - 1, -1)
        self._tokens: list[int] = []
        # The n-gram's latest end that something follows: index of the token after it.
        self._next: dict[tuple[int, ...], int] = {}

    def draft(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Draft:
        """Up to k tokens copied from the latest longest match, or NO_DRAFT."""
        self._follow(tokens)
        start, matched = self._match() if k > 0 else (None, 0)
        if start is None:
            return NO_DRAFT
        walk = sampler.walk(tokens)
        text = self._tokens
        period = len(text) - start
        drafted: list[int] = []
        for i in range(k):
            # Past the end of the text the match overlaps itself: the text repeats with this period.
            token = text[start + i] if i < period else drafted[i - period]
            if not walk.allows(token):
                break
            drafted.append(token)
            if len(drafted) < k:
                walk.advance(token)
        if not drafted:
            return NO_DRAFT
        proposals = tuple(Distribution.one_hot(t) for t in drafted)
        # While drafted tokens are accepted the match grows with them.
        features = tuple(min(matched + i, _LONG_MATCH) for i in range(len(drafted)))
        return Draft(tuple(drafted), proposals, self.name, features)

    def _match(self) -> tuple[int | None, int]:
        """Where the latest longest match goes on, and its length."""
        text = self._tokens
        shortest = self._sizes[-1]
        if tuple(text[-shortest:]) not in self._next:  # then no longer one is: most rounds end here
            return None, 0
        return next(
            (self._next[gram], n) for n in self._sizes if n <= len(text) and (gram := tuple(text[-n:])) in self._next
        )

    def _follow(self, tokens: Sequence[int]) -> None:
        """Bring the index up to `tokens`; it starts anew if they do not continue what it holds."""
        known = len(self._tokens)
        recent = max(0, known - _COMPARED)
        if known > len(tokens) or self._tokens[recent:] != list(tokens[recent:known]):
            self._tokens, self._next, known = [], {}, 0
        text = self._tokens
        for token in tokens[known:]:
            end = len(text)
            for n in self._sizes:
                if n <= end:
                    self._next[tuple(text[end - n : end])] = end
            text.append(token)

    def observe(self, event: RoundEvent) -> None:
        """Nothing to learn: the index grows from the committed tokens."""

    def close(self) -> None:
        """Forget everything: no conversation's text may reach another."""
        self._tokens, self._next = [], {}
