"""Heads on the target's own hidden state guess the next tokens (Medusa, arXiv 2401.10774; Hydra, arXiv 2402.05109)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..distribution import Distribution
from ..drafting import NO_DRAFT, Draft, States
from ..errors import BadRequestError
from ..heads.one_thread import one_thread
from ..heads.storage import Heads
from ..sampling import Sampler, Walk
from ..stats import RoundEvent

_NEVER = -np.inf  # logit of a token that a head has none for


class MedusaDrafter:
    """Draws up to one token from each head.

    The state: when a round begins, the last committed token x_t was chosen by the target, or by the verifier, but not
    decoded yet; the latest state that there is belongs to x_{t-1}. That is what heads are made for. From the state of
    x_{t-1} the model's own output chose x_t, so head k (from 0) guesses x_{t+1+k}, and all heads can be used in every
    round. Sequential heads see x_t and what the heads before them drew; Medusa's do not.

    q of a head is its distribution, given the tokens drafted before, after all the request's sampling options; 0 for
    every token that the head has no logit for. The options look at the tokens drafted so far, and so does the grammar.
    """

    name = "medusa"

    def __init__(self, heads: Heads, states: States, *, ends: Callable[[int], bool] = lambda _: False) -> None:
        """states: where the loop leaves the target's hidden state.  ends: is this an end token? A draft stops there."""
        self.states = states
        self._heads, self._ends = heads, ends
        self._row = np.full(int(heads.ids[-1]) + 1, _NEVER, np.float32)

    def reach(self, tokens: Sequence[int]) -> int:
        """The longest draft that is possible after `tokens`: 0 where there is no state."""
        return 0 if self.states.before(tokens) is None else self._heads.count

    @property
    def step_ms(self) -> float:
        """Expected time of drafting one token."""
        return self._heads.step_ms

    def draft(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Draft:
        """Up to k tokens, each with the distribution it was drawn from; stops after an end token."""
        with one_thread():
            return self._drawn(tokens, k, sampler, rng)

    def _drawn(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Draft:
        state = self.states.before(tokens)
        k = min(k, self._heads.count)
        if state is None or k <= 0:
            return NO_DRAFT
        guesses = self._heads.guesses(state, tokens, k)
        walk = sampler.walk(tokens)
        drafted: list[int] = []
        proposals: list[Distribution] = []
        ids, logits = next(guesses)
        while np.isfinite(logits).all():  # weights that overflow end a draft; to stop before a token is drawn is free
            proposal = self._proposal(walk, ids, logits)
            if proposal is None:
                break
            token = sampler.choose(proposal, len(tokens) + len(drafted), rng)
            drafted.append(token)
            proposals.append(proposal)
            if len(drafted) == k or self._ends(token):  # the end token itself is kept
                break
            walk.advance(token)
            ids, logits = guesses.send(token)
        return Draft(tuple(drafted), tuple(proposals), self.name, tuple(range(len(drafted)))) if drafted else NO_DRAFT

    def _proposal(self, walk: Walk, ids: NDArray[np.int64], logits: NDArray[np.float32]) -> Distribution | None:
        """None where bias and grammar leave nothing of what the head guesses."""
        self._row[ids] = logits
        try:
            return walk.distribution(self._row)
        except BadRequestError:
            return None
        finally:
            self._row[ids] = _NEVER

    def observe(self, event: RoundEvent) -> None:
        """Nothing to learn: the state of every round comes from the loop."""

    def close(self) -> None:
        """Nothing to give back: the weights serve all requests, and the state ends with this one."""
