"""The planned drafter: each round the source and the length with the best expected speed, or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from ..beside import Beside
from ..costs import Costs
from ..drafting import NO_DRAFT, Draft, Drafter, Features, ReadsFeatures, ReadsStates, States
from ..offers import Offer, Plan
from ..planning import Planner
from ..proposing import Drafting, alone
from ..sampling import Sampler
from ..sharing import Prospect
from ..stats import RoundEvent
from .model import ModelDrafter

LONGEST = 15  # tokens of a planned draft: sixteen rows are the most that kernels measured here verify cheaply
_LONGEST_SAMPLED = 8  # of a draft model, whose tokens cost time and get less sure
LATEST = 8  # tokens that a draft model reads where it is only tried
_HEAD_MEMORY, _MOST_SLOWER = 0.1, 3.0  # how the time of a head's token is followed
_CONFIDENCE = 20  # steps of the estimate "accepted, given the proposal's largest probability"


class HeadDrafter(Drafter, Protocol):
    """A drafter whose tokens cost a little each, all the same."""

    @property
    def step_ms(self) -> float:
        """Expected time of drafting one token."""
        ...

    def reach(self, tokens: Sequence[int]) -> int:
        """The longest draft that is possible after `tokens`."""
        ...


class PlannedDrafter:
    """Asks a Planner before each round and tells it afterwards what happened.

    free: drafters that cost next to nothing (lookup, suffix); they are asked every round, and learn from
    rounds they are not used in.  model: a draft model, with the costs of its decodes.  glimpse: the same one,
    reading only the latest text: it stands in while all of it is too much to read.  heads: asked for what was planned,
    since each of their tokens costs a little.  coupled: seed-exact or
    greedy verification, where acceptance is equality and p / q says nothing about it.
    """

    name = "planned"

    def __init__(
        self,
        free: Sequence[Drafter],
        planner: Planner,
        *,
        model: ModelDrafter | None = None,
        heads: Sequence[HeadDrafter] = (),
        glimpse: ModelDrafter | None = None,
        model_costs: Costs | None = None,
        coupled: bool = False,
        learn: Callable[[], None] | None = None,
    ) -> None:
        """learn: called once, when the request ends."""
        self._free, self._planner, self._coupled = tuple(free), planner, coupled
        self._whole, self._glimpse = model, glimpse
        self._model = model  # the one of the two that this round's offer speaks of
        self._model_costs = model_costs
        self._heads = {drafter.name: drafter for drafter in heads}
        self._all: tuple[Drafter, ...] = (*self._free, *heads, *(d for d in (model, glimpse) if d is not None))
        self._head_ms = {name: drafter.step_ms for name, drafter in self._heads.items()}
        self._learn = learn
        self._plan = Plan()
        self._drafts: dict[str, Draft] = {}
        self._features: tuple[int, ...] = ()
        self._confidence: list[int] = []
        self._setup_ms, self._unread = 0.0, 0
        self._foreseen: tuple[int, int] | None = None  # tokens of text and room that the free drafts are for

    @property
    def _step_ms(self) -> float:
        """Expected time of drafting one token with the draft model: its part of a decode with those of others."""
        costs, together = self._model_costs, self._planner.beside.drafting + 1
        if costs is None:
            return 0.0
        return costs.at(together) / together + self._planner.overhead_ms

    @property
    def why(self) -> str:
        """Why the latest round was plain, if it was."""
        return "" if self._plan.source else self._planner.why_off()

    @property
    def expects(self) -> float:
        """Tokens that the latest plan was expected to give beyond the one of a plain round."""
        return self._plan.gain

    @property
    def states(self) -> States | None:
        """Where heads find the target's hidden state."""
        return next((d.states for d in self._heads.values() if isinstance(d, ReadsStates)), None)

    @property
    def features(self) -> Features | None:
        """Where heads find what the target computed at each token."""
        return next((d.features for d in self._heads.values() if isinstance(d, ReadsFeatures)), None)

    def share(self, beside: Beside) -> None:
        """Plan for a decode that has this in it, too."""
        self._planner.beside = beside

    def draft(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Draft:
        """The chosen source's draft, at most k tokens."""
        return alone(self.steps(tokens, k, sampler, rng))

    def steps(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Drafting:
        """draft(), with the decodes of a draft model one after another."""
        room = min(k, LONGEST)
        self._features = ()
        if not self._planner.may_draft(len(tokens)):
            self._plan, self._drafts, self._foreseen = Plan(ms=self._planner.plain_ms), {}, None
            return NO_DRAFT
        offers = self._offers(tokens, room, sampler, rng)
        self._foreseen = None
        self._plan = self._planner.plan(offers, room, len(tokens))
        source = self._plan.source
        if source is None:
            draft = NO_DRAFT
        elif source in self._drafts:
            draft = self._drafts[source].cut(self._plan.k)
        elif source in self._heads:
            draft = self._heads[source].draft(tokens, self._plan.k, sampler, rng)
        else:
            draft = yield from self._sampled(offers[-1], tokens, sampler, rng, room)
        self._features = draft.features
        return draft

    def prospect(
        self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator, beside: Beside
    ) -> Prospect:
        """What a draft of up to `k` tokens would give. The free drafts are made, and kept for steps()."""
        self.share(beside)
        room = min(k, LONGEST)
        self._foreseen = None
        offers = self._offers(tokens, room, sampler, rng)
        self._foreseen = (len(tokens), room)
        return self._planner.prospect(offers, room, len(tokens))

    def _offers(self, tokens: Sequence[int], room: int, sampler: Sampler, rng: np.random.Generator) -> list[Offer]:
        """Of all sources; the free ones have made their drafts."""
        if self._foreseen is not None and self._foreseen[0] == len(tokens) and room <= self._foreseen[1]:
            self._drafts = {name: draft.cut(room) for name, draft in self._drafts.items()}
        else:
            self._drafts = {}
            for drafter in self._free:
                draft = drafter.draft(tokens, room, sampler, rng)
                if draft.tokens:
                    features = draft.features or tuple(range(len(draft.tokens)))
                    self._drafts[drafter.name] = replace(draft, features=features)
        offers = [Offer(name, draft.features) for name, draft in self._drafts.items()]
        for name, heads in self._heads.items():
            if reach := heads.reach(tokens):
                offers.append(Offer(name, tuple(range(min(reach, room))), self._head_ms[name]))
        if self._whole is not None:
            offers.append(self._model_offer(self._whole, tokens, room))
        return offers

    def _model_offer(self, whole: ModelDrafter, tokens: Sequence[int], room: int) -> Offer:
        """The draft model with all the text where reading it is little or expected to pay, else with the latest."""
        self._model, self._unread = whole, whole.unread(tokens)
        self._setup_ms = self._reading_ms(self._unread)
        features = tuple(range(min(room, _LONGEST_SAMPLED)))
        offer = Offer("model", features, self._step_ms, self._setup_ms)
        if self._glimpse is None or self._planner.worth_setup(offer):
            return offer
        self._model, self._unread = self._glimpse, self._glimpse.unread(tokens)
        self._setup_ms = self._reading_ms(self._unread)
        return replace(offer, setup_ms=self._setup_ms)

    def _reading_ms(self, unread: int) -> float:
        """Time to read so many tokens, beyond that of the step that reads the last one anyway."""
        costs = self._model_costs
        if costs is None or not unread:
            return 0.0
        widest = costs.table.widths[-1]
        ms = costs.at(unread + 1) if unread < widest else costs.at(widest) * (unread + 1) / widest
        return max(0.0, ms - costs.at(1))

    def _sampled(
        self, offer: Offer, tokens: Sequence[int], sampler: Sampler, rng: np.random.Generator, room: int
    ) -> Drafting:
        """A draft of the draft model that ends where one more token is not expected to pay."""
        assert self._model is not None
        reach = 1.0
        self._confidence = []
        sure = self._planner.acceptance["confidence"]

        def gate(drafted: int, confidence: float) -> bool:
            nonlocal reach
            feature = int(confidence * _CONFIDENCE)
            accepted = sure(feature)
            if drafted and not self._planner.go_on(offer, drafted, reach, room, accepted):
                return False
            self._confidence.append(feature)
            reach *= accepted
            return True

        self._model.gate = gate
        self._model.ahead = lambda drafted: self._planner.go_on(offer, drafted, reach, room)
        self._model.expected = self._plan.k
        draft = yield from self._model.steps(tokens, len(offer.features), sampler, rng)
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
            shared = self._planner.beside.drafting
            if event.k and not shared and self._unread <= 2 and self._model_costs is not None:
                steps_ms = max(0.0, event.draft_ms - self._setup_ms)
                self._model_costs.observe(1, max(0.0, steps_ms / event.k - self._planner.overhead_ms))
        if source in self._head_ms and event.k:
            known = self._head_ms[source]
            ms = min(event.draft_ms / event.k, _MOST_SLOWER * known)  # a hiccup is no trend
            self._head_ms[source] += _HEAD_MEMORY * (ms - known)
        for name, draft in self._drafts.items():
            if name != source and event.emitted:
                self._planner.shadow(name, draft.features[0], float(draft.tokens[0] == event.emitted[0]))
        for drafter in self._all:
            drafter.observe(event)

    def close(self) -> None:
        """Close every source, and keep what was learned."""
        if self._learn is not None:
            self._learn()
            self._learn = None
        self._planner.close()
        for drafter in self._all:
            drafter.close()
