"""What the time of a round is weighed by: the speed reached, and plain decoding's where that cannot last."""

from __future__ import annotations

import pytest

from edgespec.costs import Costs, CostTable
from edgespec.offers import Offer
from edgespec.pace import Pace
from edgespec.planning import Planner

FREE, MODEL = Offer("lookup", (1,) * 15), Offer("model", (0, 1, 2), 20.0)


def fast() -> Pace:
    pace = Pace()
    pace.see([FREE], 15, 100)
    for _ in range(5):
        pace.add(800.0, 200.0)
    return pace


def test_it_is_that_of_the_latest_rounds_and_never_below_plain() -> None:
    assert Pace().over_plain == 1
    pace = fast()
    assert pace.over_plain == pytest.approx(4)
    for _ in range(200):
        pace.add(80.0, 100.0)
    assert pace.over_plain == 1


@pytest.mark.parametrize(
    ("room", "remaining", "over"),
    [(15, 18, 4.0), (15, 17, 1.0), (3, 4, 1.0), (3, 9, 4.0), (15, 1, 4.0)],  # the last one lasts longer than expected
)
def test_of_the_last_tokens_it_is_plain(room: int, remaining: int, over: float) -> None:
    pace = fast()
    pace.see([FREE], room, remaining)
    assert pace.over_plain == pytest.approx(over)


def test_where_nothing_repeats_any_more_it_is_plain_until_something_does() -> None:
    pace, seen = fast(), []
    for _ in range(2):
        pace.see([FREE], 15, 100)
    for offers in ([], [MODEL], [Offer("lookup", ())], [MODEL], [MODEL], [MODEL], [MODEL, FREE]):
        pace.see(offers, 15, 100)
        seen.append(round(pace.over_plain, 3))
    assert seen == [4, 4, 4, 4, 1, 1, 4]


def test_where_drafts_come_now_and_then_a_gap_says_nothing() -> None:
    pace = fast()
    for offers in ([FREE], [], [FREE], [FREE], *[[]] * 9):
        pace.see(offers, 15, 100)
    assert pace.over_plain == pytest.approx(4)


def test_a_source_that_costs_time_has_no_gaps() -> None:
    """With a draft model alone the rounds to come are as those before."""
    pace = Pace()
    for _ in range(9):
        pace.see([MODEL], 15, 100)
        pace.add(800.0, 200.0)
    assert pace.over_plain == pytest.approx(4)


def test_after_a_copied_passage_the_draft_model_is_used_again() -> None:
    """It gives 1.5 times plain speed and copying gave 5: against that, plain rounds seemed as good."""
    costs = Costs(CostTable((1, 4, 16), (80.0, 91.0, 242.0)))
    planner = Planner(costs, {"lookup": lambda _: 0.98, "model": lambda _: 0.8}, overhead_ms=0.0, remaining=512)
    chosen = []
    for round_ in range(40):
        copies = round_ < 12
        plan = planner.plan([FREE, MODEL] if copies else [MODEL], 15)
        ms, draft_ms = costs.at(plan.k + 1), plan.k * 20.0 * (plan.source == "model")
        features = (FREE if plan.source == "lookup" else MODEL).features[: plan.k]
        right = (1.0,) * plan.k if plan.source == "lookup" else (0.8,) * plan.k
        planner.observe(
            plan, features, right, produced=1 + round(sum(right)), draft_ms=draft_ms, verify_ms=ms, other_ms=0.0
        )
        chosen.append(plan.source)
    assert chosen[8:12].count("lookup") >= 3
    assert chosen[17:].count("model") > 18
