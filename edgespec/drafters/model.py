"""Draft-model speculation: a small model of the same vocabulary proposes (arXiv 2211.17192, 2302.01318)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np

from ..distribution import Distribution
from ..drafting import NO_DRAFT, Draft
from ..errors import BadRequestError
from ..proposing import Drafting, Step, alone
from ..sampling import Sampler
from ..scoring import Rows, ScoredSequence, Scorer, ScoreRequest, common_prefix
from ..stats import RoundEvent


class ModelDrafter:
    """Samples up to k tokens from a draft model, one decode each.

    The draft model reads the conversation at its first draft, not before. temperature: the draft's own;
    None: the request's. A context smaller than the target's is handled by reading only the latest text.
    """

    name = "model"

    def __init__(
        self,
        scorer: Scorer,
        *,
        temperature: float | None = None,
        cancelled: threading.Event | None = None,
        latest: int | None = None,
    ) -> None:
        """cancelled: the request's, so that reading a long prompt stops when the request does.

        latest: begin with so many tokens of the text, not with all of it, and begin anew where more than twice as
        many were missed. Such a draft model guesses worse, and costs little to try.

        gate, where a planner sets it, is asked before each token is sampled: (tokens drafted so far, the largest
        probability of the next, before any truncation where that leaves one token) -> draft it? It sees no value of
        the token in question, so that to stop is exact.
        ahead is asked before that distribution is computed, but for the first: (tokens drafted so far) -> go on?
        expected: tokens that its planner thinks this draft will have.
        """
        self.gate: Callable[[int, float], bool] | None = None
        self.ahead: Callable[[int], bool] | None = None
        self.expected: int | None = None
        self._scorer = scorer
        self._cancelled = cancelled
        self._temperature = temperature
        self._latest = latest
        self._first = 0  # where its reading began
        self._sequence: ScoredSequence | None = None
        self._seen, self._unknown = 0, False

    def draft(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Draft:
        """Up to k sampled tokens with the distribution each was drawn from; stops after an end token."""
        return alone(self.steps(tokens, k, sampler, rng))

    def steps(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Drafting:
        """draft(), one decode after another."""
        self._begin(tokens)
        window = [*tokens[self._start(len(tokens) + k) :]]
        k = min(k, self._scorer.n_ctx - len(window))
        if k <= 0 or not window or not self._can_read(tokens):
            return NO_DRAFT
        sequence = self._opened(window)
        walk = sampler.walk(tokens, self._temperature)
        drafted: list[int] = []
        proposals: list[Distribution] = []
        for _ in range(k):
            request = ScoreRequest(sequence, window, (), self._cancelled)
            row = yield Step(self._scorer, request, k if self.expected is None else min(k, self.expected), k)
            try:
                proposal = walk.distribution(row)
            except BadRequestError:  # bias and grammar leave nothing that this vocabulary has
                break  # nothing was drawn yet, so to stop here is free
            if self.gate is not None and not self.gate(len(drafted), _confidence(proposal, row)):
                break
            token = sampler.choose(proposal, len(tokens) + len(drafted), rng)
            drafted.append(token)
            proposals.append(proposal)
            if len(drafted) == k or self._scorer.vocab.is_eog(token):  # the end token itself is kept
                break
            if self.ahead is not None and not self.ahead(len(drafted)):
                break
            walk.advance(token)
            window.append(token)
        return Draft(tuple(drafted), tuple(proposals), self.name) if drafted else NO_DRAFT

    def _can_read(self, tokens: Sequence[int]) -> bool:
        """False once the text holds a token that only the target's padded vocabulary has."""
        if len(tokens) < self._seen:
            self._seen, self._unknown = 0, False
        self._unknown = self._unknown or any(t >= self._scorer.vocab.size for t in tokens[self._seen :])
        self._seen = len(tokens)
        return not self._unknown

    def _start(self, length: int) -> int:
        """First token the draft reads. Moves in large steps, so that its cache is rebuilt rarely."""
        over = length - self._first - self._scorer.n_ctx
        step = max(1, self._scorer.n_ctx // 2)
        return self._first + (0 if over <= 0 else -(-over // step) * step)

    def _begin(self, tokens: Sequence[int]) -> None:
        """Where only the latest text is to be read, and its reading has not begun or fell behind: begin."""
        if self._latest is None:
            return
        read = 0 if self._sequence is None else len(self._sequence.cached)
        if not read or len(tokens) - self._first - read > 2 * self._latest:
            self._first = max(0, len(tokens) - self._latest)

    def _opened(self, window: Sequence[int]) -> ScoredSequence:
        if self._sequence is None:
            self._sequence = self._scorer.sequence(window)
        return self._sequence

    def unread(self, tokens: Sequence[int]) -> int:
        """Tokens that the draft model must read before it can draft after `tokens`, the last one not counted."""
        self._begin(tokens)
        window = tokens[self._start(len(tokens)) :]
        return max(0, len(window) - 1 - common_prefix(self._opened(window).cached, window))

    def observe(self, event: RoundEvent) -> None:
        """Nothing to learn: the cache is brought up to date by the next draft."""

    def close(self) -> None:
        """Give the draft's cache back."""
        if self._sequence is not None:
            self._sequence.close()
            self._sequence = None


def _confidence(proposal: Distribution, row: Rows) -> float:
    """The largest probability of a proposal; of the model's own distribution where the proposal is certain."""
    if len(proposal.ids) > 1:
        return float(proposal.probs.max())
    return float(1 / np.exp(row - row.max()).sum())
