"""Suffix decoding: what usually followed, wherever the latest tokens stood before? (arXiv 2411.04975)"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..distribution import Distribution
from ..drafting import NO_DRAFT, Draft
from ..errors import BadRequestError
from ..sampling import Sampler
from ..stats import RoundEvent
from .suffix_index import LONGEST, SIZES, GrowingIndex, Index, Match

_COMPARED = 64  # latest tokens that must agree for the index to go on: comparing all would cost O(context) a round
_PLACES = 16  # looked at in each index
_FEATURES = 20  # steps of confidence that the planner tells apart
_STEPS = 20  # of confidence, as features for the planner
_SURELY = 0.99  # no count makes a continuation more certain


class SuffixDrafter:
    """Proposes the most probable path on from all earlier places like this one.

    Each place where the last tokens stood before, in this conversation or in `past`, votes for the token
    that followed it, with the cube of the length of its match: one long match outvotes many short ones.
    The path ends after 1 + `reach` tokens per matched token, or where its probability by these counts falls
    below `min_probability`. Proposals are one-hot, so a draft may be cut anywhere (algorithms, section 3).

    min_match: shortest match, in tokens.  past: an index of earlier replies, where the user keeps them.
    capacity: tokens of the conversation that are indexed; beyond, the older half is forgotten.
    """

    name = "suffix"

    def __init__(
        self,
        *,
        min_match: int = 2,
        reach: float = 1.0,
        min_probability: float = 0.1,
        past: Index | None = None,
        capacity: int = 1 << 15,
    ) -> None:
        if not 1 <= min_match <= LONGEST:
            raise BadRequestError(f"suffix min_match is {min_match}; it must be 1 to {LONGEST}")
        if not reach > 0 or not 0 <= min_probability < 1:
            raise BadRequestError("suffix reach must be above 0, and min_probability 0 or more and below 1")
        self._sizes = (*(size for size in SIZES if size > min_match), min_match)
        self._reach, self._min_probability = reach, min_probability
        self._doubt = float(min_match**3)  # what a single shortest match leaves open: as much as it says
        self._past, self._capacity = past, capacity
        self._index = GrowingIndex(sizes=self._sizes, capacity=capacity)
        self._known = 0
        self.last_confidence: tuple[float, ...] = ()

    def draft(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Draft:
        """Up to k tokens, or NO_DRAFT.

        Sets `last_confidence`, (K,): for each drafted token the estimated probability that it is accepted
        if those before it are.
        """
        self._follow(tokens)
        self.last_confidence = ()
        matches = self._matches(tokens) if k > 0 else []
        if not matches:
            return NO_DRAFT
        k = min(k, 1 + int(self._reach * max(match.length for match in matches)))
        drafted, confidence = self._path(matches, k, sampler, tokens)
        self.last_confidence = tuple(confidence)
        if not drafted:
            return NO_DRAFT
        proposals = tuple(Distribution.one_hot(token) for token in drafted)
        features = tuple(int(_FEATURES * sure) for sure in confidence)
        return Draft(tuple(drafted), proposals, self.name, features)

    def _matches(self, tokens: Sequence[int]) -> list[Match]:
        found = self._index.matches(tokens, _PLACES)
        if self._past is not None:
            found += (m for m in self._past.matches(tokens, _PLACES) if m.length >= self._sizes[-1])
        return found

    def _path(
        self, matches: list[Match], k: int, sampler: Sampler, tokens: Sequence[int]
    ) -> tuple[list[int], list[float]]:
        walk = sampler.walk(tokens)
        drafted: list[int] = []
        confidence: list[float] = []
        probability = 1.0
        while True:
            followers = [_follower(match, len(drafted), drafted) for match in matches]
            votes: dict[int, float] = {}  # in the order of the places: among equals the first has the longer n-gram
            for match, token in zip(matches, followers, strict=True):
                votes[token] = votes.get(token, 0.0) + float(match.length + len(drafted)) ** 3
            votes.pop(-1, None)  # the end of an earlier reply
            permitted = (t for t in sorted(votes, key=lambda t: -votes[t]) if walk.allows(t))
            token = next(permitted, -1)
            if token < 0:
                break
            sure = _SURELY * votes[token] / (sum(votes.values()) + self._doubt)
            probability *= sure
            if probability < self._min_probability:
                break
            drafted.append(token)
            confidence.append(sure)
            if len(drafted) == k:
                break
            walk.advance(token)
            matches = [match for match, follower in zip(matches, followers, strict=True) if follower == token]
        return drafted, confidence

    def _follow(self, tokens: Sequence[int]) -> None:
        """Bring the index up to `tokens`; it starts anew if they do not continue what it holds."""
        recent = self._index.tokens[-_COMPARED:]
        if self._known > len(tokens) or recent != list(tokens[self._known - len(recent) : self._known]):
            self._reset()
        for token in tokens[self._known :]:
            self._index.append(token)
        self._known = len(tokens)

    def _reset(self) -> None:
        self._index = GrowingIndex(sizes=self._sizes, capacity=self._capacity)
        self._known = 0

    def observe(self, event: RoundEvent) -> None:
        """Nothing to learn: the counts grow from the committed tokens."""

    def close(self) -> None:
        """Forget everything: no conversation's text may reach another."""
        self._reset()
        self._past = None
        self.last_confidence = ()


def _follower(match: Match, i: int, drafted: Sequence[int]) -> int:
    """The i-th token after a place; past the end of the text the match overlaps itself, so the text repeats."""
    place, end = match.next + i, len(match.text)
    return match.text[place] if place < end else drafted[place - end]
