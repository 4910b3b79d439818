"""Rounds of several requests: how the width of a decode is shared, and what happens to one that fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from edgespec.acceptance import Acceptance
from edgespec.beside import Beside, passes
from edgespec.costs import Costs, CostTable
from edgespec.distribution import Distribution
from edgespec.drafting import Draft
from edgespec.errors import DecodeError
from edgespec.generation import Generation, GenerationRequest, generate, step
from edgespec.losses import Ledger
from edgespec.offers import Offer, Plan
from edgespec.planning import Planner
from edgespec.sampling import SamplingParams
from edgespec.stats import RoundEvent
from edgespec.testing import TableModel

GREEDY = SamplingParams(temperature=0)


class Eager:
    """Drafts as much as it may, expects what it is told, and remembers what was beside it."""

    name = "eager"

    def __init__(self, expects: float, error: Exception | None = None) -> None:
        self.expects, self._error = expects, error
        self.beside: list[Beside] = []
        self.lengths: list[int] = []

    def share(self, beside: Beside) -> None:
        self.beside.append(beside)

    def prospect(self, *_: Any) -> None:
        """It does not say."""

    def draft(self, tokens: Sequence[int], k: int, sampler: Any, rng: Any) -> Draft:
        if self._error is not None:
            raise self._error
        self.lengths.append(k)
        return Draft((0,) * k, (Distribution.one_hot(0),) * k, self.name)

    def observe(self, event: RoundEvent) -> None: ...

    def close(self) -> None: ...


def begun(target: TableModel, *drafters: Eager, draft_max: int = 15) -> list[Generation]:
    """After the prompt pass."""
    running = [
        generate(target, GenerationRequest(prompt=(0, 1, i), params=GREEDY, draft_max=draft_max, max_tokens=60), d)
        for i, d in enumerate(drafters)
    ]
    step(target, running)
    return running


def test_the_request_that_expects_most_drafts_first() -> None:
    target = TableModel(max_width=12)
    few, many, none = Eager(0.5), Eager(3.0), Eager(0.0)
    step(target, begun(target, few, many, none))
    assert (many.lengths, few.lengths, none.lengths) == ([9], [], [])  # each of the others keeps its one row
    before, after = many.beside
    assert before == Beside(requests=2, rows=2, tokens=2.0, depth=8)
    assert after == before
    assert few.beside[0] == Beside(requests=2, rows=11, tokens=5.0, depth=8, drafted=9)


def test_drafts_leave_the_cache_to_those_that_need_it() -> None:
    target = TableModel(max_width=32, n_ctx=40, cells=20)
    one, two = Eager(1.0), Eager(1.0)
    running = begun(target, one, two)
    step(target, running)
    assert one.lengths == [12]  # 20 cells, of which the texts take 8, less the newest token of each, and two rows
    assert two.lengths == []


def test_one_that_fails_ends_and_the_others_go_on() -> None:
    target = TableModel()
    running = begun(target, Eager(1.0), Eager(2.0, DecodeError("this drafter is broken")), Eager(0.0))
    lengths = [len(g.tokens) for g in running]
    step(target, running)
    assert isinstance(running[1].error, DecodeError)
    assert running[1].finish_reason == "cancelled"
    assert [len(g.tokens) > n for g, n in zip(running, lengths, strict=True)] == [True, False, True]
    alone = begun(target, Eager(1.0, DecodeError("this drafter is broken")))
    with pytest.raises(DecodeError):
        step(target, alone)


def lookup_plan(beside: Beside, costs: CostTable, acceptance: float = 0.6, room: int = 7) -> Plan:
    planner = Planner(Costs(costs), {"lookup": lambda _: acceptance}, overhead_ms=0.0)
    planner.beside = beside
    return planner.plan([Offer("lookup", (0,) * room)], room)


def crowd(others: int) -> Beside:
    return Beside(requests=others, rows=others, tokens=float(others), depth=0)


def test_drafts_shrink_as_the_decode_fills() -> None:
    """The first rows cost little beside the weights; then every one costs the same."""
    widths = tuple(range(1, 33))
    costs = CostTable(widths, tuple(100.0 + 12.0 * max(0, w - 4) for w in widths))
    lengths = [lookup_plan(crowd(others), costs).k for others in (0, 1, 3, 7, 15)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] >= 4
    assert lengths[-1] == 0


def test_rows_that_a_decode_has_anyway_are_filled() -> None:
    """Kernels work on groups of four rows: beside one other request, two more rows are free, a third is dear."""
    costs = CostTable((1, 2, 3, 4, 5, 6, 7, 8), (91.0,) * 4 + (155.0,) * 4)
    plan = lookup_plan(crowd(1), costs, acceptance=0.5)
    assert (plan.source, plan.k) == ("lookup", 2)


def cost_of_a_crowd(
    requests: int, costs: CostTable, accepted: float, *, aware: bool, ledger: Ledger | None = None
) -> float:
    """Milliseconds per token of requests that decode together, of which each plans its own draft."""
    made = [Planner(Costs(costs), {"lookup": lambda _: 0.5}, overhead_ms=0.0, ledger=ledger) for _ in range(requests)]
    for planner in made:
        known = Acceptance(lambda _: 0.5)
        known.recall([(i, accepted * 50, 50.0) for i in range(7)], most=50.0)
        planner.acceptance["lookup"] = known
    total_ms, total_tokens = 0.0, 0.0
    for _ in range(300):
        plans: list[Plan] = []
        rows = requests
        for planner in made:
            planner.beside = (
                Beside(requests - 1, rows - 1, requests - 1 + sum(p.gain for p in plans), drafted=rows - requests)
                if aware
                else Beside()
            )
            plans.append(planner.plan([Offer("lookup", tuple(range(7)))], 7))
            rows += plans[-1].k
        ms = costs.at(rows)
        for planner, plan in zip(made, plans, strict=True):
            drafted = rows - requests - plan.k
            planner.beside = Beside(requests - 1, rows - 1 - plan.k, requests - 1.0, drafted=drafted)
            planner.beside = planner.beside if aware else Beside()
            values = [accepted] * plan.k
            produced = 1 + sum(accepted ** (i + 1) for i in range(plan.k))
            planner.observe(
                plan, tuple(range(plan.k)), values, produced=round(produced), draft_ms=0, verify_ms=ms, other_ms=0
            )
            total_tokens += produced
        total_ms += ms
    return total_ms / total_tokens


@pytest.mark.parametrize("requests", [2, 4, 8])
@pytest.mark.parametrize("accepted", [0.1, 0.4, 0.8])
def test_a_crowd_is_never_slower_than_plain(requests: int, accepted: float) -> None:
    widths = tuple(range(1, 65))
    costs = CostTable(widths, tuple(100.0 + 15.0 * (w - 1) for w in widths))
    plain = costs.at(requests) / requests
    assert cost_of_a_crowd(requests, costs, accepted, aware=True) <= 1.03 * plain


# As measured: groups of four rows, the second as dear as the first.
GROUPS = CostTable((1, 4, 5, 8, 9, 16, 32), (100.0, 100.0, 181.0, 181.0, 261.0, 261.0, 420.0))


@pytest.mark.parametrize("requests", [4, 8])
def test_what_is_sure_is_drafted_in_a_crowd(requests: int) -> None:
    """No row is free there, so that a part of the allowance pays for none; all of it does."""
    plain = GROUPS.at(requests) / requests
    assert cost_of_a_crowd(requests, GROUPS, 0.95, aware=True, ledger=Ledger()) < 0.9 * plain


@pytest.mark.parametrize("requests", [2, 4, 8])
@pytest.mark.parametrize("accepted", [0.1, 0.4, 0.8])
def test_a_crowd_with_one_account_is_never_slower_than_plain(requests: int, accepted: float) -> None:
    plain = GROUPS.at(requests) / requests
    assert cost_of_a_crowd(requests, GROUPS, accepted, aware=True, ledger=Ledger()) <= 1.03 * plain


def test_a_planner_that_ends_leaves_the_account() -> None:
    ledger = Ledger()
    made = [Planner(Costs(GROUPS), {}, ledger=ledger) for _ in range(2)]
    for planner in (made[0], made[0], made[1]):
        planner.close()
    assert ledger.accounts == []


def test_nothing_is_asked_to_learn_that_could_not_pay_if_it_were_right() -> None:
    """A draft model beside three others: rows of their own group of four, each at the price of a step."""
    planner = Planner(Costs(GROUPS), {"model": lambda _: 0.5}, overhead_ms=0.0)
    offer = Offer("model", tuple(range(8)), step_ms=30.0)
    assert planner.plan([offer], 8).source == "model"
    planner.beside = crowd(3)
    assert planner.plan([offer], 8).source is None


def test_planning_as_if_alone_is_slower_than_plain_in_a_crowd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the ledger of losses, and costs that follow what rounds take, only minding the others helps."""
    monkeypatch.setattr(Planner, "_left", property(lambda self: float("inf")))
    monkeypatch.setattr(Costs, "observe", lambda *_, **__: None)
    widths = tuple(range(1, 65))
    costs = CostTable(widths, tuple(max(100.0, 20.0 * w) for w in widths))
    plain = costs.at(8) / 8
    assert cost_of_a_crowd(8, costs, 0.4, aware=True) <= 1.03 * plain
    assert cost_of_a_crowd(8, costs, 0.4, aware=False) > 1.5 * plain


def test_passes_of_a_decode_with_different_numbers_of_rows() -> None:
    assert passes((1, 1, 1, 1)) == [4]
    assert passes((5, 1, 1, 1)) == [4, 4]
    assert passes((3, 1, 5)) == [3, 4, 2]
    assert passes((2,)) == [2]


def test_plans_for_a_divided_context_count_its_passes() -> None:
    """One long draft beside three rows is a pass more; where the others draft as much it is not."""
    costs = CostTable((1, 4, 8, 16), (100.0, 100.0, 110.0, 130.0))
    planner = Planner(Costs(costs), {"lookup": lambda _: 0.6}, overhead_ms=0.0)
    offer = Offer("lookup", (0,) * 3)
    planner.beside = Beside(requests=3, rows=3, tokens=3.0)
    assert planner.plan([offer], 3).source == "lookup"
    planner.beside = Beside(requests=3, rows=3, tokens=3.0, widths=(1, 1, 1))
    assert planner.plan([offer], 3).source is None
    planner.beside = Beside(requests=3, rows=12, tokens=9.0, drafted=9, widths=(4, 4, 4))
    assert planner.plan([offer], 3).source == "lookup"


def test_the_rows_of_each_are_told_where_they_matter() -> None:
    target = TableModel(max_width=12)
    target.splits = True
    few, many, none = Eager(0.5), Eager(3.0), Eager(0.0)
    step(target, begun(target, few, many, none))
    assert many.beside[0].widths == (1, 1)
    assert few.beside[0].widths == (4, 1)
    assert (few.lengths, many.lengths, none.lengths) == ([3], [3], [3])  # nine rows beyond the one of each
    target.attends_to_all = False
    step(target, begun(target, many := Eager(1.0), Eager(0.0)))
    assert many.beside[0].depth == 0
