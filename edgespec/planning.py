"""How many tokens to draft, and from where: expected tokens per second, measured costs, bounded losses.

Speed = E[tokens] / time. With v(n) the measured time of a target decode of n rows, d the time of one
draft step and b_i the estimated acceptance of the i-th drafted token, a round of K drafted tokens gives
(1 + sum_k prod_{i<=k} b_i) tokens in K * d + v(K + 1) + o. Over many rounds the speed is greatest when
each round maximises tokens - rate * time, with `rate` the speed achieved so far (renewal reward): a
slow round that beats plain decoding may still cost more than waiting for a better one.

Nothing here knows a model or a clock: times and outcomes are told, so tests run it in simulated time.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

# A speculative round that does not pay costs time. What such rounds may cost in all: a start, then a share
# of the time that has passed. The promise is 3%; the rest of it is for what is not planned.
_START_STEPS = 6.0  # plain steps, at most
_START_SHARE, _LEAST_START_STEPS = 0.015, 1.5  # of the tokens expected; a narrow draft must fit in
_SHARE = 0.018
_MAX_SAVED_STEPS = 40.0  # gains that a loss may use up, in plain steps
_SWITCH_ON = 0.02  # hysteresis, in tokens: speculation starts where it is expected to win by more than noise
_PATIENCE, _LONGEST_PATIENCE = 4, 64  # rounds between two probes of a source that is not chosen, doubling
_SHORT_SETUP_STEPS = 4.0  # draft steps: a longer set-up is an investment
_INVESTED_IN_UNKNOWN, _INVESTED_IN_KNOWN = 0.05, 0.5  # of the time a reply is expected to take
_KNOWN = 12  # tokens seen of a source before its acceptance is more than a guess
_SUREST = 0.99  # no prior is certain
_MEMORY = 0.97  # per round, of the speed achieved
_PLAIN_EVERY = 64  # rounds between two plain ones while speculating, so that the speed-up is measured


@dataclass(frozen=True, slots=True)
class CostTable:
    """Milliseconds of one decode by its number of rows, as measured. widths: ascending."""

    widths: tuple[int, ...]
    ms: tuple[float, ...]

    def at(self, width: int) -> float:
        """Measured, or interpolated between the neighbours that are."""
        i = bisect.bisect_left(self.widths, width)
        if i < len(self.widths) and self.widths[i] == width:
            return self.ms[i]
        low = min(max(i - 1, 0), max(len(self.widths) - 2, 0))
        high = min(low + 1, len(self.widths) - 1)
        if low == high:
            return self.ms[low]
        slope = (self.ms[high] - self.ms[low]) / (self.widths[high] - self.widths[low])
        return max(self.ms[low] + slope * (width - self.widths[low]), 1e-6)


class Costs:
    """A cost table that follows what rounds really take: context grows, machines get busy."""

    def __init__(self, table: CostTable) -> None:
        self.table = table
        self._common = 1.0  # what has slowed or sped all widths alike
        self._own: dict[int, float] = {}  # what is special to one
        self.rounds = 0

    def at(self, width: int) -> float:
        """Milliseconds expected now of a decode of `width` rows."""
        return self.table.at(width) * self._common * self._own.get(width, 1.0)

    def observe(self, width: int, ms: float) -> None:
        """One decode of `width` rows took `ms`. Outliers are clipped: one hiccup is no trend."""
        self.rounds += 1
        surprise = min(max(ms / self.at(width), 0.5), 2.0) - 1
        self._common *= 1 + 0.05 * surprise
        own = self._own.get(width, 1.0) * (1 + (0.15 if width in self._own else 0.3) * surprise)
        self._own[width] = 1 + 0.97 * (own - 1)  # leaks, so that what all widths share ends up in `common`

    @property
    def drift(self) -> float:
        """Now against the table, at width 1: far from 1 means that the table is out of date."""
        return self.at(1) / self.table.at(1)


Prior = Callable[[int], float]


class Acceptance:
    """Estimated acceptance by feature (a match length, a confidence, a position): a discounted mean.

    prior(feature) is what is expected before anything was seen. What all features together show against
    their priors scales the prior of those that were seen little.
    """

    def __init__(self, prior: Prior, weight: float = 2.0, memory: float = 100.0) -> None:
        self._prior, self._weight = prior, weight
        self._keep = 1 - 1 / memory
        self._sums: dict[int, tuple[float, float]] = {}
        self._hits, self._expected = 0.0, 0.0
        self.seen = 0

    def __call__(self, feature: int) -> float:
        """Acceptance probability of a drafted token with this feature, given that those before were accepted."""
        scale = (self._hits + self._weight) / (self._expected + self._weight)
        prior = min(_SUREST, self._prior(feature) * scale)
        hits, seen = self._sums.get(feature, (0.0, 0.0))
        return (hits + prior * self._weight) / (seen + self._weight)

    def observe(self, feature: int, value: float) -> None:
        """value in [0, 1]: the exact acceptance probability where known, else 1 or 0."""
        hits, seen = self._sums.get(feature, (0.0, 0.0))
        self._sums[feature] = (hits * self._keep + value, seen * self._keep + 1)
        self.seen += 1
        self._hits = self._hits * self._keep + value
        self._expected = self._expected * self._keep + self._prior(feature)


@dataclass(frozen=True, slots=True)
class Offer:
    """What a source could draft this round.

    features: one per token it can draft, for its acceptance estimate.  step_ms: time of drafting one
    token.  setup_ms: time before the first token of this round (a draft model reading what it missed).
    """

    source: str
    features: tuple[int, ...]
    step_ms: float = 0.0
    setup_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """source None: decode plainly.  probe: chosen to learn, not to win.  ms: expected time of the round.

    setup_ms: beside it, an investment in rounds to come (a draft model reads the conversation).
    """

    source: str | None = None
    k: int = 0
    probe: bool = False
    ms: float = 0.0
    setup_ms: float = 0.0


class Planner:
    """Chooses source and K of each round of one request, and learns from every round.

    `costs` may be shared by the requests of one model. priors: by source name.
    remaining: tokens the request is expected to produce, so that a short answer pays for no set-up.
    """

    def __init__(
        self,
        costs: Costs,
        priors: Mapping[str, Prior],
        *,
        known: Mapping[str, Acceptance] | None = None,
        overhead_ms: float = 0.2,
        remaining: int = 256,
    ) -> None:
        """known: what earlier requests taught of some sources; it goes on learning here."""
        self.costs = costs
        self.acceptance = {name: Acceptance(prior) for name, prior in priors.items()} | dict(known or {})
        self.overhead_ms = overhead_ms
        self.remaining = remaining
        self._start_steps = min(_START_STEPS, max(_LEAST_START_STEPS, _START_SHARE * remaining))
        self._recent = (0.0, 0.0)
        self._debt_ms = 0.0
        self._spent_ms = 0.0
        self._since_plain = 0
        self._since_probe: dict[str, int] = {}
        self._patience: dict[str, int] = {}
        self._speculating = False
        self._best: dict[str, tuple[int, float]] = {}

    @property
    def plain_ms(self) -> float:
        """Expected time of one plain round."""
        return self.costs.at(1) + self.overhead_ms

    def plan(self, offers: Iterable[Offer], room: int) -> Plan:
        """The best expected rate, within the loss budget. room: most tokens that may be drafted."""
        plain = 1 - self.rate * self.plain_ms
        best, best_value = Plan(ms=self.plain_ms), plain
        probes: list[Plan] = []
        self._best.clear()
        for offer in offers:
            k, tokens, ms = self._best_k(offer, room)
            if not k:
                continue
            self._best[offer.source] = (k, tokens * self.plain_ms / ms)
            if tokens - self.rate * ms > best_value:
                best = Plan(offer.source, k, ms=ms, setup_ms=offer.setup_ms - self._setup_in_round(offer))
                best_value = tokens - self.rate * ms
            if (
                offer.setup_ms == self._setup_in_round(offer)
                and offer.step_ms > 0
                and self._may_probe(offer, ms - tokens * self.plain_ms)
            ):
                probes.append(Plan(offer.source, k, probe=True, ms=ms))
        probe = next((p for p in probes if p.source != best.source), None)
        if best.source is not None:
            wins = best_value > plain + (0.0 if self._speculating else _SWITCH_ON)
            if not wins or self._debt_ms > self._allowance or self._since_plain >= _PLAIN_EVERY:
                best = Plan(ms=self.plain_ms)
        if probe is not None:
            best = probe
        self._speculating = best.source is not None
        return best

    @property
    def rate(self) -> float:
        """Tokens per millisecond of the latest rounds, never below what plain decoding gives."""
        tokens, ms = self._recent
        return max(1 / self.plain_ms, tokens / ms if ms else 0.0)

    def go_on(self, offer: Offer, drafted: int, reach: float, acceptance: float, room: int) -> bool:
        """Inside a draft: is one more token expected to raise the round's rate?

        drafted: tokens so far.  reach: probability that all of them are accepted.  acceptance: of the next
        one, from its distribution, before it is sampled. Its draft step is already paid.
        """
        estimate, base = self.acceptance[offer.source], self.costs.at(drafted + 1)
        chance = total = reach * acceptance
        for k in range(drafted + 1, min(room, len(offer.features)) + 1):
            more_ms = (k - drafted - 1) * offer.step_ms + self.costs.at(k + 1) - base
            spent_ms = (drafted + 1) * offer.step_ms + base + self.overhead_ms
            if total >= self.rate * more_ms and self._affords(spent_ms + more_ms):
                return True
            if k < len(offer.features):
                chance *= estimate(offer.features[k])
                total += chance
        return False

    def _reaches(self, offer: Offer, k: int) -> list[float]:
        """[i]: probability that tokens 0..i are all accepted."""
        estimate, chance, reaches = self.acceptance[offer.source], 1.0, []
        for feature in offer.features[:k]:
            chance *= estimate(feature)
            reaches.append(chance)
        return reaches

    def _best_k(self, offer: Offer, room: int) -> tuple[int, float, float]:
        """(K, expected tokens, expected ms) of the best K >= 1; K = 0: nothing offered."""
        best, best_value = (0, 0.0, 0.0), 0.0
        if not self._worth_setup(offer):
            return best
        setup = self._setup_in_round(offer)
        total = 1.0
        for k, reach in enumerate(self._reaches(offer, room), start=1):
            total += reach
            ms = setup + k * offer.step_ms + self.costs.at(k + 1) + self.overhead_ms
            if not self._affords(ms):
                continue
            value = total - self.rate * ms
            if not best[0] or value > best_value:
                best, best_value = (k, total, ms), value
        return best

    def _worth_setup(self, offer: Offer) -> bool:
        """May a source read what it missed, which can take as long as many rounds?

        A short reading is part of its round. A long one is an investment: its gain over the tokens expected must
        be twice its cost, and where the source is hardly known, the cost a small part of the time expected.
        """
        if offer.setup_ms <= _SHORT_SETUP_STEPS * max(offer.step_ms, 1e-9):
            return True
        tokens, ms = 1.0, self.overhead_ms + self.costs.at(1)
        best = 0.0
        for k, reach in enumerate(self._reaches(offer, len(offer.features)), start=1):
            tokens += reach
            ms = k * offer.step_ms + self.costs.at(k + 1) + self.overhead_ms
            best = max(best, 1 - ms / (tokens * self.plain_ms))
        expected_ms = self.remaining * self.plain_ms
        known = self.acceptance[offer.source].seen >= _KNOWN
        cap = _INVESTED_IN_KNOWN if known else _INVESTED_IN_UNKNOWN
        return best * expected_ms > 2 * offer.setup_ms and offer.setup_ms <= cap * expected_ms

    def _setup_in_round(self, offer: Offer) -> float:
        """What of a set-up counts as time of this round: an investment counts for all rounds to come."""
        return offer.setup_ms if offer.setup_ms <= _SHORT_SETUP_STEPS * max(offer.step_ms, 1e-9) else 0.0

    def _affords(self, ms: float) -> bool:
        """Even if nothing of a round of `ms` is accepted, do all losses stay within the allowance?"""
        return self._debt_ms + ms - self.plain_ms <= self._allowance

    @property
    def _allowance(self) -> float:
        return self._start_steps * self.plain_ms + _SHARE * self._spent_ms

    def _may_probe(self, offer: Offer, loss: float) -> bool:
        """A source that costs something to ask and does not seem to pay is asked rarely, within the budget."""
        waited = self._since_probe.get(offer.source, 1 << 30)
        return waited >= self._patience.get(offer.source, _PATIENCE) and self._debt_ms + max(loss, 0) <= self._allowance

    def observe(
        self,
        plan: Plan,
        features: Sequence[int],
        values: Sequence[float],
        *,
        produced: int,
        draft_ms: float,
        verify_ms: float,
        other_ms: float,
    ) -> None:
        """One round is over. features: of the drafted tokens.  values: acceptance of those that were looked at."""
        self.costs.observe(len(features) + 1, verify_ms)
        self.overhead_ms += 0.05 * (min(other_ms, 2 * self.overhead_ms + 0.1) - self.overhead_ms)
        total = max(0.0, draft_ms - plan.setup_ms) + verify_ms + other_ms
        self._spent_ms += total
        tokens, ms = self._recent
        self._recent = (tokens * _MEMORY + produced, ms * _MEMORY + total)
        self.remaining = max(1, self.remaining - produced)
        for source in self._since_probe:
            self._since_probe[source] += 1
        if plan.source is not None and not plan.probe:
            self._patience.pop(plan.source, None)
        self._since_plain = self._since_plain + 1 if features else 0
        if plan.source is None:
            return
        # A source that was asked and drafted nothing has still cost its time.
        estimate = self.acceptance[plan.source]
        for feature, value in zip(features, values, strict=False):
            estimate.observe(feature, value)
        loss = total - produced * self.plain_ms
        self._debt_ms = max(self._debt_ms + loss, -_MAX_SAVED_STEPS * self.plain_ms)
        if plan.probe:
            self._since_probe[plan.source] = 0
            self._patience[plan.source] = min(_LONGEST_PATIENCE, 2 * self._patience.get(plan.source, _PATIENCE))

    def shadow(self, source: str, feature: int, value: float) -> None:
        """What would have become of a token that was not drafted: free sources learn without being used."""
        self.acceptance[source].observe(feature, value)

    def why_off(self) -> str:
        """One sentence on why the latest round was plain."""
        if not self._best:
            return "no source had a draft"
        source, (k, ratio) = max(self._best.items(), key=lambda item: item[1][1])
        return f"{source} off: its best plan (K = {k}) is expected to run at {ratio:.2f}x plain speed"
