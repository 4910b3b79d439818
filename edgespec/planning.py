"""How many tokens to draft, and from where: expected tokens per second, measured costs, bounded losses.

Speed = E[tokens] / time. With v(n) the measured time of a target decode of n rows, d the time of one
draft step and b_i the estimated acceptance of the i-th drafted token, a round of K drafted tokens gives
(1 + sum_k prod_{i<=k} b_i) tokens in K * d + v(K + 1) + o. Over many rounds the speed is greatest when
each round maximises tokens - rate * time, with `rate` the speed achieved so far (renewal reward): a
slow round that beats plain decoding may still cost more than waiting for a better one.

Nothing here knows a model or a clock: times and outcomes are told, so tests run it in simulated time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .acceptance import Acceptance, Prior
from .beside import ALONE, Beside, passes
from .costs import Costs
from .losses import Account, Ledger
from .offers import Offer, Plan
from .pace import Pace
from .reasons import UNSURE, Considered, why_off
from .sharing import Prospect, Way

_PATIENCE, _LONGEST_PATIENCE = 4, 64  # rounds between two probes of a source that is not chosen, doubling
_RECALLED, _RECALLED_PATIENCE = 5, 32  # tokens that earlier requests saw: then a source is no unknown
_SHORT_SETUP_STEPS = 4.0  # draft steps: a longer set-up is an investment
_INVESTED, _GAIN = 0.5, 2.0  # most of the time a reply is expected to take; least gain for each ms of it
_TRIED = 6  # tokens of a source looked at in this request before anything is invested in it
_GOOD = 0.85  # acceptance of a source that is worth a look
# Rounds between two plain ones while speculating, so that the speed-up is measured, and that the cost of a plain round
# is known. The less speculation is expected to win, the more depends on that, and the less a plain round costs.
_PLAIN_EVERY, _PLAIN_OFTEN, _PLAIN_LOSS, _SURPRISED_LOSS = 64, 4, 0.025, 0.1  # the last one while that cost is in doubt
_LONE = 2.0  # weight of the time of a plain round that stands among others
_NOBODY, _RATE, _LEFT = 0, -1, -2  # stand where a number of rows does: nobody drafts; tokens per ms; may be lost
_SURPRISE = 0.08  # of a plain round's time: more, and the next one comes soon


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
        acceptance: Mapping[str, Acceptance] | None = None,
        overhead_ms: float = 0.2,
        remaining: int = 256,
        ledger: Ledger | None = None,
    ) -> None:
        """acceptance: what earlier requests taught of some sources; it goes on learning here.  ledger: till close()."""
        self.costs = costs
        self.acceptance = {name: Acceptance(prior) for name, prior in priors.items()} | dict(acceptance or {})
        self.overhead_ms = overhead_ms
        self.remaining = remaining
        self._account = Account(remaining, ledger)
        self._pace = Pace()
        self._since_plain, self._plain_every, self._surprised = 0, _PLAIN_OFTEN, False
        self._since_probe: dict[str, int] = {}
        self._tried: dict[str, int] = {}
        self._patience: dict[str, int] = {}
        self._speculating = False
        self._considered: list[Considered] = []  # by the latest plan
        self._off = True  # is speculation, where that plan is a plain round; else it is there to be measured
        self._depth = 0
        self._beside = ALONE
        self._known: dict[int, float] = {}  # times by rows, till something changes: a plan asks for each many times

    @property
    def beside(self) -> Beside:
        """Of the decode that is planned."""
        return self._beside

    @beside.setter
    def beside(self, beside: Beside) -> None:
        if beside is not self._beside:
            self._beside = beside
            self._known.clear()

    def close(self) -> None:
        """The request has ended."""
        self._account.close()

    @property
    def plain_ms(self) -> float:
        """Expected time of one round in which this request drafts nothing."""
        return self._cost(1) + self.overhead_ms

    @property
    def _plain_tokens(self) -> float:
        """Tokens expected of such a round, of all requests."""
        return 1 + self.beside.tokens

    @property
    def _talking(self) -> int:
        """Requests with rows in this round."""
        return 1 + self.beside.plain_rows

    @property
    def _all_plain_ms(self) -> float:
        """Expected time of a round in which nobody drafts."""
        if not self.beside.drafted:
            return self.plain_ms
        if _NOBODY not in self._known:
            self._known[_NOBODY] = self._decode_ms((1,) * self._talking)
        return self._known[_NOBODY] + self.overhead_ms

    def _cost(self, width: int) -> float:
        ms = self._known.get(width)
        if ms is None:
            ms = self._known[width] = self._cost_now(width)
        return ms

    def _cost_now(self, width: int) -> float:
        if not self.beside.widths:
            return self.costs.at(width + self.beside.rows, self._depth + self.beside.depth)
        return self._decode_ms((width, *self.beside.widths))

    def _decode_ms(self, widths: Sequence[int]) -> float:
        """By the rows of each request."""
        return self.beside.decode_ms(self.costs, widths, self._depth)

    def _price(self, widths: Sequence[int]) -> float:
        return self._decode_ms(widths) + self.overhead_ms

    def prospect(self, offers: Sequence[Offer], room: int, depth: int = 0) -> Prospect:
        """What this request could draft, for a plan of all that share a decode. room, depth: as for plan()."""
        self._depth = depth
        self._known.clear()
        self._pace.see(offers, room, self.remaining)
        ways = [
            Way(self._reaches(offer, room), offer.step_ms, self._setup_in_round(offer))
            for offer in offers
            if self.worth_setup(offer)
        ]
        return Prospect.of(ways, self.rate, self._pace.recent, self._left, self._price)

    def may_draft(self, depth: int = 0) -> bool:
        """Could the shortest draft be lost now? If not, to look for one would cost time for nothing but to say why."""
        self._depth = depth
        self._known.clear()
        return not self._considered or bool(self.beside.requests) or self._affords(self._cost(2) + self.overhead_ms)

    def plan(self, offers: Sequence[Offer], room: int, depth: int = 0) -> Plan:
        """The best expected rate, within the loss budget.

        room: most tokens that may be drafted.  depth: tokens of context.
        """
        self._depth = depth
        self._known.clear()
        self._considered.clear()
        self._pace.see(offers, room, self.remaining)
        if not offers:
            self._speculating, self._off = False, True
            return Plan(ms=self.plain_ms)
        plain = self._plain_tokens - self.rate * self.plain_ms
        best, best_value = Plan(ms=self.plain_ms), plain
        hope, hope_seems, hope_value = best, plain, plain
        probes: list[tuple[Offer, Plan]] = []
        for offer in offers:
            options = self._affordable(offer, room)
            if not options:
                continue
            option = max(options.values(), key=self._value)
            if self._value(option) > best_value:
                best, best_value = self._plan(offer, option), self._value(option)
            if self._may_probe(offer, option):
                probes.append((offer, Plan(offer.source, option[0], probe=True, ms=option[2])))
            if self._account.may_hope(self.plain_ms):
                hopeful = self.acceptance[offer.source].hopeful
                hopes = (option for option in self._options(offer, room, hopeful) if option[0] in options)
                seems, k = max((self._value(option), option[0]) for option in hopes)
                if seems > hope_seems:
                    hope, hope_seems, hope_value = self._plan(offer, options[k]), seems, self._value(options[k])
        probe = next((p for o, p in probes if p.source != best.source and self._could_beat(o, best_value)), None)
        chosen, gain, loss = (best, best_value - plain, 0.0)
        if hope.source is not None and (hope.source, hope.k) != (best.source, best.k):
            chosen, gain, loss = hope, hope_seems - plain, best_value - hope_value
        self._off = True
        if chosen.source is not None and not self._may_speculate(gain):
            self._off = not self._wins(gain) or self._left < 0
            chosen, loss = Plan(ms=self.plain_ms), 0.0
        if probe is not None:
            chosen, loss = probe, 0.0
        self._account.hope(loss / self.rate)
        self._speculating = chosen.source is not None
        return chosen

    def _affordable(self, offer: Offer, room: int) -> dict[int, tuple[int, float, float]]:
        """The options that the loss budget allows, by K. The best of all is kept, to tell why it was not taken."""
        options = self._options(offer, room)
        if not options:
            return {}
        k, tokens, ms = max(options, key=self._value)
        needed = self._plain_tokens + self.rate * (ms - self.plain_ms)
        self._considered.append(Considered(offer.source, k, tokens, needed, offer.step_ms / self.plain_ms))
        return {option[0]: option for option in options if self._affords(option[2])}

    def _may_speculate(self, gain: float) -> bool:
        """gain: tokens that speculation is expected to win in a round."""
        due = not self.beside.requests and self._since_plain >= self._until_plain(gain)
        return self._wins(gain) and self._left >= 0 and not due

    def _wins(self, gain: float) -> bool:
        return gain > (0.0 if self._speculating else UNSURE)  # hysteresis

    def _until_plain(self, gain: float) -> float:
        """Rounds until the next plain one. gain: tokens that speculation is expected to win in a round."""
        return min(max(self._plain_every, gain / (_SURPRISED_LOSS if self._surprised else _PLAIN_LOSS)), _PLAIN_EVERY)

    @property
    def rate(self) -> float:
        """Tokens per millisecond that time is weighed by, never below what plain decoding gives: of all requests."""
        rate = self._known.get(_RATE)
        if rate is None:
            own = self._talking / self._all_plain_ms * self._pace.over_plain
            rate = self._known[_RATE] = self.beside.rate or own
        return rate

    def _plain_for(self, tokens: float) -> float:
        """Milliseconds that so many tokens of all requests would take without drafts of this one."""
        return tokens / self._plain_tokens * self.plain_ms

    def go_on(self, offer: Offer, drafted: int, reach: float, room: int, acceptance: float | None = None) -> bool:
        """Inside a draft: is one more token expected to raise the round's rate, or one after it?

        drafted: tokens so far.  reach: probability that all of them are accepted.  acceptance: of the next one, from
        its distribution, before it is sampled: its draft step is already paid. None: its step would be the next.
        """
        estimate, base = self.acceptance[offer.source], self._cost(drafted + 1)
        paid = drafted + (acceptance is not None)
        chance, total = reach, 0.0
        for k in range(drafted + 1, min(room, len(offer.features)) + 1):
            known = acceptance if k == paid else None
            chance *= estimate(offer.features[k - 1]) if known is None else known
            total += chance
            more_ms = (k - paid) * offer.step_ms + self._cost(k + 1) - base
            all_ms = paid * offer.step_ms + base + self.overhead_ms + more_ms
            if total >= self.rate * more_ms and self._affords(all_ms):
                return True
        return False

    def _reaches(self, offer: Offer, k: int, estimate: Prior | None = None) -> list[float]:
        """[i]: probability that tokens 0..i are all accepted."""
        estimate, chance, reaches = estimate or self.acceptance[offer.source], 1.0, []
        for feature in offer.features[:k]:
            chance *= estimate(feature)
            reaches.append(chance)
        return reaches

    def _plan(self, offer: Offer, option: tuple[int, float, float]) -> Plan:
        k, tokens, ms = option
        setup_ms = offer.setup_ms - self._setup_in_round(offer)
        return Plan(offer.source, k, ms=ms, setup_ms=setup_ms, gain=tokens - self._plain_tokens)

    def _options(self, offer: Offer, room: int, estimate: Prior | None = None) -> list[tuple[int, float, float]]:
        """(K, expected tokens, expected ms) for every K >= 1."""
        found = []
        if self.worth_setup(offer):
            total = self._plain_tokens
            for k, reach in enumerate(self._reaches(offer, room, estimate), start=1):
                total += reach
                found.append((k, total, self._round_ms(offer, k)))
        return found

    def _value(self, option: tuple[int, float, float]) -> float:
        """What a plan is expected to gain, in tokens, over going on at the rate reached."""
        return option[1] - self.rate * option[2]

    def worth_setup(self, offer: Offer) -> bool:
        """May a source read what it missed, which can take as long as many rounds?

        A short reading is part of its round. A long one is an investment: the source must have been tried in this
        request, and its gain over the tokens expected be twice its cost.
        """
        if offer.setup_ms <= _SHORT_SETUP_STEPS * max(offer.step_ms, 1e-9):
            return True
        if self._tried.get(offer.source, 0) < _TRIED:
            return False
        tokens, best = self._plain_tokens, 0.0
        for k, reach in enumerate(self._reaches(offer, len(offer.features)), start=1):
            tokens += reach
            ms = k * offer.step_ms + self._cost(k + 1) + self.overhead_ms
            best = max(best, 1 - ms / self._plain_for(tokens))
        expected_ms = self.remaining * self.plain_ms
        return best * expected_ms > _GAIN * offer.setup_ms and offer.setup_ms <= _INVESTED * expected_ms

    def _setup_in_round(self, offer: Offer) -> float:
        """What of a set-up counts as time of this round: an investment counts for all rounds to come."""
        return offer.setup_ms if offer.setup_ms <= _SHORT_SETUP_STEPS * max(offer.step_ms, 1e-9) else 0.0

    def _affords(self, ms: float) -> bool:
        """Even if nothing of a round of `ms` is accepted, do all losses stay within the allowance?"""
        return ms - self._all_plain_ms <= self._left

    @property
    def _left(self) -> float:
        """Milliseconds that may still be lost."""
        left = self._known.get(_LEFT)
        if left is None:
            left = self._known[_LEFT] = self._account.left(self._all_plain_ms, self.beside.requests)
        return left

    def _may_probe(self, offer: Offer, option: tuple[int, float, float]) -> bool:
        """A source that costs something to ask and does not seem to pay is asked rarely, within the budget."""
        if offer.setup_ms != self._setup_in_round(offer) or offer.step_ms <= 0:
            return False
        if offer.source not in self._patience:  # its first offer: known from earlier requests, or not
            known = self.acceptance[offer.source].seen >= _RECALLED
            self._patience[offer.source] = _RECALLED_PATIENCE if known else 0
        waited = self._since_probe.setdefault(offer.source, 0)
        loss = max(0.0, option[2] - self._plain_for(option[1]))
        return waited >= self._patience[offer.source] and loss <= self._left

    def _could_beat(self, offer: Offer, value: float) -> bool:
        """Would a draft of it be worth more than the best plan if it was good? If not, nothing is to learn."""
        tokens = self._plain_tokens
        for k in range(1, len(offer.features) + 1):
            tokens += _GOOD**k
            if self._value((k, tokens, self._round_ms(offer, k))) > value:
                return True
        return False

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
        width = len(features) + 1
        if self.beside.reading:  # its time says little about its rows
            verify_ms = self._cost(width)
        elif self.beside.widths and len(passes((width, *self.beside.widths))) > 1:  # and of which rows it does not say
            self.costs.follow(verify_ms / self._cost(width), weight=1 / (1 + self.beside.requests))
        else:
            self._observe_cost(width, verify_ms)
        self._known.clear()
        self.overhead_ms += 0.05 * (min(other_ms, 2 * self.overhead_ms + 0.1) - self.overhead_ms)
        # Its part of the round: of the decode what its rows have in it, of what drafts made dearer what its own did.
        plain_ms = self._all_plain_ms
        drafts = len(features) + self.beside.drafted
        more_ms = (verify_ms + other_ms - plain_ms) * (len(features) / drafts if drafts else 1 / self._talking)
        share_ms = plain_ms / self._talking
        total = share_ms + more_ms + max(0.0, draft_ms - plan.setup_ms)
        self._account.spend(total)
        self._pace.add(share_ms * produced, total)
        self.remaining = max(1, self.remaining - produced)
        for source in self._since_probe:
            self._since_probe[source] += 1
        if plan.source is not None and not plan.probe:
            self._patience[plan.source], self._since_probe[plan.source] = _PATIENCE, 0
        self._since_plain = self._since_plain + 1 if features else 0
        if plan.source is None:
            self._account.lose(draft_ms, plain_ms)  # of asking the sources, and of planning
            return
        # A source that was asked and drafted nothing has still cost its time.
        estimate = self.acceptance[plan.source]
        for feature, value in zip(features, values, strict=False):
            estimate.observe(feature, value)
        self._tried[plan.source] = self._tried.get(plan.source, 0) + len(values)
        self._account.lose(total - share_ms * produced, plain_ms)
        if plan.probe:
            self._since_probe[plan.source] = 0
            self._patience[plan.source] = min(_LONGEST_PATIENCE, max(_PATIENCE, 2 * self._patience[plan.source]))

    def _observe_cost(self, width: int, ms: float) -> None:
        """A plain round among others tells what many would, and decides when the next one comes."""
        others = self.beside.requests
        alone = width == 1 and self._since_plain > 0 and not others
        if alone:
            self._surprised = abs(ms / self._cost(1) - 1) > _SURPRISE
            self._plain_every = _PLAIN_OFTEN if self._surprised else min(2 * self._plain_every, _PLAIN_EVERY)
        rows, depth = width + self.beside.rows, self._depth + self.beside.depth
        weight = _LONE if alone else 1 / (1 + others)
        self.costs.observe(rows, ms, depth, weight=weight, padded=not self.beside.widths)

    def shadow(self, source: str, feature: int, value: float) -> None:
        """What would have become of a token that was not drafted: free sources learn without being used."""
        self.acceptance[source].observe(feature, value)

    def why_off(self) -> str:
        """One sentence on why the latest plan was a plain round; empty where nothing was offered, or to measure one."""
        return why_off(self._considered) if self._off else ""

    def _round_ms(self, offer: Offer, k: int) -> float:
        return self._setup_in_round(offer) + k * offer.step_ms + self._cost(k + 1) + self.overhead_ms
