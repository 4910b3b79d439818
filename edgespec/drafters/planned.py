"""The planned drafter: each round the source and the length with the best expected speed, or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..distribution import Distribution
from ..drafting import NO_DRAFT, Draft, Drafter
from ..planning import CostTable, Offer, Plan, Planner
from ..sampling import Sampler
from ..stats import RoundEvent
from .model import ModelDrafter

LONGEST = 15  # tokens of a planned draft: sixteen rows are the most that kernels measured here verify cheaply
_LONGEST_SAMPLED = 8  # of a draft model, whose tokens cost time and get less sure
_CONFIDENCE = 20  # steps of the estimate "accepted, given the proposal's largest probability"


class PlannedDrafter:
    """Asks a Planner before each round and tells it afterwards what happened.

    free: drafters that cost next to nothing (lookup, suffix); they are asked every round, and learn from
    rounds they are not used in.  model: a draft model, with the costs of its decodes.  coupled: seed-exact
    or greedy verification, where acceptance is equality and p / q says nothing about it.
    """

    name = "planned"

    def __init__(
        self,
        free: Sequence[Drafter],
        planner: Planner,
        *,
        model: ModelDrafter | None = None,
        model_costs: CostTable | None = None,
        coupled: bool = False,
    ) -> None:
        self._free, self._model, self._planner, self._coupled = tuple(free), model, planner, coupled
        self._model_costs = model_costs
        self._step_ms = 0.0 if model_costs is None else model_costs.at(1) + planner.overhead_ms
        self._plan = Plan()
        self._drafts: dict[str, Draft] = {}
        self._features: tuple[int, ...] = ()
        self._confidence: list[int] = []
        self._setup_ms = 0.0

    @property
    def why(self) -> str:
        """Why the latest round was plain, if it was."""
        return "" if self._plan.source else self._planner.why_off()

    def draft(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Draft:
        """The chosen source's draft, at most k tokens."""
        room = min(k, LONGEST)
        self._drafts = {}
        for drafter in self._free:
            draft = drafter.draft(tokens, room, sampler, rng)
            if draft.tokens:
                features = draft.features or tuple(range(len(draft.tokens)))
                self._drafts[drafter.name] = replace(draft, features=features)
        offers = [Offer(name, draft.features) for name, draft in self._drafts.items()]
        if self._model is not None:
            offers.append(self._model_offer(self._model, tokens, room))
        self._plan = self._planner.plan(offers, room)
        source = self._plan.source
        if source is None:
            draft = NO_DRAFT
        elif source in self._drafts:
            draft = self._drafts[source].cut(self._plan.k)
        else:
            draft = self._sampled(offers[-1], tokens, sampler, rng, room)
        self._features = draft.features
        return draft

    def _model_offer(self, model: ModelDrafter, tokens: Sequence[int], room: int) -> Offer:
        costs = self._model_costs
        unread = model.unread(tokens)
        self._setup_ms = 0.0 if costs is None or unread <= 2 else costs.at(16) * unread / 16
        return Offer("model", tuple(range(min(room, _LONGEST_SAMPLED))), self._step_ms, self._setup_ms)

    def _sampled(
        self, offer: Offer, tokens: Sequence[int], sampler: Sampler, rng: np.random.Generator, room: int
    ) -> Draft:
        """A draft of the draft model that ends where one more token is not expected to pay."""
        assert self._model is not None
        reach = 1.0
        self._confidence = []
        sure = self._planner.acceptance["confidence"]

        def gate(drafted: int, proposal: Distribution) -> bool:
            nonlocal reach
            feature = int(float(proposal.probs.max()) * _CONFIDENCE)
            accepted = sure(feature)
            if drafted and not self._planner.go_on(offer, drafted, reach, accepted, room):
                return False
            self._confidence.append(feature)
            reach *= accepted
            return True

        self._model.gate = gate
        draft = self._model.draft(tokens, len(offer.features), sampler, rng)
        return Draft(draft.tokens, draft.proposals, draft.source, tuple(range(len(draft.tokens))))

    def observe(self, event: RoundEvent) -> None:
        """Learn from the round: times, and the acceptance of what the verifier looked at."""
        values = []
        for token in event.drafted:
            if token.p is None:
                break
            values.append(float(token.accepted) if self._coupled else min(1.0, token.p / token.q))
            if not token.accepted:
                break
        source = self._plan.source
        self._planner.observe(
            self._plan,
            self._features,
            values,
            produced=event.produced,
            draft_ms=event.draft_ms,
            verify_ms=event.verify_ms,
            other_ms=event.other_ms,
        )
        if source == "model":
            for feature, value in zip(self._confidence, values, strict=False):
                self._planner.shadow("confidence", feature, value)
            if event.k and not self._setup_ms:
                self._step_ms += 0.1 * (event.draft_ms / event.k - self._step_ms)
        for name, draft in self._drafts.items():
            if name != source and event.emitted:
                self._planner.shadow(name, draft.features[0], float(draft.tokens[0] == event.emitted[0]))
        for drafter in (*self._free, *([self._model] if self._model is not None else ())):
            drafter.observe(event)

    def close(self) -> None:
        """Close every source."""
        for drafter in (*self._free, *([self._model] if self._model is not None else ())):
            drafter.close()
