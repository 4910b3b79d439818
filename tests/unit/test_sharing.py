"""Lengths of drafts that share a decode: near the best there are, for any rows' prices, in rounds of simulated time."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import product

import pytest

from edgespec.beside import Beside, passes
from edgespec.costs import Costs, CostTable
from edgespec.offers import Plan
from edgespec.planning import Planner
from edgespec.sharing import NO_PROSPECT, Price, Prospect, lengths, reached
from simulated import TimedModel, copying, hostile, speed

# Of a model of 1.5 billion weights, as measured: kernels work on groups of four rows.
GROUPS = CostTable(
    (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16),
    (87.8, 140.0, 174.4, 100.6, 148.4, 179.5, 217.3, 181.3, 240.7, 243.9, 316.5, 261.3),
)
SMOOTH = CostTable((1, 2, 4, 8, 16, 32), (45.0, 50.0, 62.0, 95.0, 150.0, 278.0))
JITTER = 1.01  # of simulated times, on average
ROWS = 32


def prospect(chances: Sequence[float], price: Price, *, step_ms: float = 0.0, setup_ms: float = 0.0) -> Prospect:
    gains, reach, total = [], 1.0, 0.0
    for chance in chances:
        reach *= chance
        total += reach
        gains.append(total)
    ms = tuple(setup_ms + step_ms * (k + 1) for k in range(len(chances)))
    return Prospect(tuple(gains), ms, (step_ms > 0,) * len(gains), (0.0, 0.0), 1e9, price)


def value(prospects: Sequence[Prospect], rate: float, chosen: Sequence[int], price: Price) -> float:
    gained = sum(p.value(k, rate) for p, k in zip(prospects, chosen, strict=True))
    return gained - rate * (price([1 + k for k in chosen]) - price([1] * len(chosen)))


def jagged(rng: random.Random) -> CostTable:
    """Times of 1 to 24 rows: growing, with steps and plateaus."""
    ms = [50.0]
    for _ in range(23):
        ms.append(ms[-1] + rng.choice((0.0, 0.0, rng.uniform(1, 10), rng.uniform(10, 60))))
    return CostTable(tuple(range(1, 25)), tuple(ms))


def priced(table: CostTable, *, splits: bool) -> Price:
    return lambda widths: sum(table.at(rows) for rows in passes(widths)) if splits else table.at(sum(widths))


@pytest.mark.parametrize("splits", [False, True], ids=["one cache", "divided"])
def test_no_other_lengths_are_much_better(splits: bool) -> None:
    """Of all that there are. In one cache none is better at all; in a divided one only some are looked at."""
    rng = random.Random(3)
    worst = 0.0
    for _ in range(60):
        price = priced(jagged(rng), splits=splits)
        prospects = [
            prospect([rng.uniform(0.3, 1.0)] * rng.randrange(6), price, step_ms=rng.choice((0.0, 3.0))) for _ in "abc"
        ]
        rate, most = 3 / price([1, 1, 1]), rng.choice((4, 9, 15))
        chosen = lengths(prospects, rate, most, splits=splits)
        assert sum(chosen) <= most
        every = product(*(range(len(p.gains) + 1) for p in prospects))
        best = max(value(prospects, rate, ks, price) for ks in every if sum(ks) <= most)
        worst = max(worst, best - value(prospects, rate, chosen, price))
    assert worst <= (0.15 if splits else 1e-9)  # tokens of a round


def test_a_group_of_rows_is_filled_by_several_where_none_would_fill_it() -> None:
    """Four more rows cost 3.2 tokens, five times what one token is worth, and 16 rows little more than 8."""
    price = priced(GROUPS.padded(), splits=False)
    prospects = [prospect([0.85] * 3, price) for _ in range(4)]
    assert lengths(prospects, reached(prospects), ROWS - 4, splits=False) == [3, 3, 3, 3]
    one = [prospects[0], *[NO_PROSPECT] * 3]
    assert lengths(one, reached(one), ROWS - 4, splits=False) == [0, 0, 0, 0]


def test_a_pass_is_shared_or_not_made() -> None:
    price = priced(GROUPS, splits=True)
    prospects = [prospect([0.85] * 7, price) for _ in range(4)]
    chosen = lengths(prospects, reached(prospects), ROWS - 4, splits=True)
    assert len(set(chosen)) == 1
    assert chosen[0] >= 3
    one = [prospects[0], *[NO_PROSPECT] * 3]
    assert lengths(one, reached(one), ROWS - 4, splits=True) == [0, 0, 0, 0]


def test_no_more_is_risked_than_may_be_lost() -> None:
    price = priced(GROUPS.padded(), splits=False)
    four = [prospect([0.99] * 7, price) for _ in range(4)]
    for left_ms, most_rows in ((90.0, 8), (170.0, 16), (40.0, 4)):
        known = [Prospect(p.gains, p.ms, p.steps, p.reached, left_ms, price) for p in four]
        assert 4 + sum(lengths(known, reached(known), ROWS - 4, splits=False)) == most_rows


def test_a_set_up_is_paid_by_all_its_tokens() -> None:
    """The first token alone would not pay for it."""
    price = priced(CostTable((1, 32), (100.0, 100.0 + 31 * 4)), splits=False)
    dear = prospect([0.98] * 8, price, step_ms=2.0, setup_ms=60.0)
    chosen = lengths([dear, prospect([0.1] * 8, price)], 2 / price([1, 1]), 30, splits=False)
    assert chosen[0] == 8


def test_the_rate_of_all_is_what_they_have_reached() -> None:
    price = priced(SMOOTH, splits=False)
    fast, none = Prospect(reached=(300.0, 100.0), price=price), Prospect(reached=(100.0, 100.0), price=price)
    assert reached([fast, none]) == pytest.approx(2 * 2 / 50.0)
    assert reached([Prospect(reached=(50.0, 100.0), price=price), none]) == pytest.approx(2 / 50.0)


def test_times_of_decodes_that_are_not_padded() -> None:
    costs = Costs(GROUPS.padded())
    assert costs.at(3) == 100.6
    assert costs.at(3, padded=False) == 174.4
    for _ in range(40):
        costs.observe(3, 200.0, padded=False)
    assert costs.at(3, padded=False) == pytest.approx(200.0, rel=0.05)
    assert costs.at(3) == pytest.approx(100.6, rel=0.15)


def test_times_of_several_passes_are_followed() -> None:
    """Of which rows a slow decode tells is not known; that the machine is slow is."""
    costs = Costs(GROUPS.padded())
    planner = Planner(costs, {"lookup": lambda _: 0.5}, overhead_ms=0.0)
    planner.beside = Beside(requests=1, rows=4, tokens=1.0, drafted=3, widths=(4,))
    for _ in range(200):
        planner.observe(Plan(), (), (), produced=1, draft_ms=0.0, verify_ms=2 * (140.0 + 174.4), other_ms=0.0)
    assert costs.at(1) == pytest.approx(2 * 87.8, rel=0.05)


Texts = Callable[[int], list[list[int]]]
WORLDS: dict[str, Texts] = {
    "all copy": lambda n: [copying(i) for i in range(n)],
    "half copy": lambda n: [copying(i) if i % 2 else hostile(i) for i in range(n)],
    "none copies": lambda n: [hostile(i) for i in range(n)],
}


def best_fixed(table: CostTable, requests: int, copying: int, *, splits: bool) -> float:
    """Tokens a second where every copying request drafts K tokens, all of them right: of the best K."""
    price = priced(table if splits else table.padded(), splits=splits)
    speeds = []
    for k in range(16):
        widths = [1 + k] * copying + [1] * (requests - copying)
        if sum(widths) <= ROWS:
            speeds.append(1000 * sum(widths) / (JITTER * price(widths)))
    return max(speeds)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("requests", [4, 8])
@pytest.mark.parametrize("table", [GROUPS, SMOOTH], ids=["groups", "smooth"])
@pytest.mark.parametrize("splits", [False, True], ids=["one cache", "divided"])
def test_rounds_are_near_the_best_fixed_widths(world: str, requests: int, table: CostTable, splits: bool) -> None:
    texts = WORLDS[world](requests)
    ours = speed(texts, table, splits=splits, tokens=120 if world == "none copies" else 400)
    best = best_fixed(table, requests, sum(text[1:60] == text[121:180] for text in texts), splits=splits)
    assert ours >= (0.97 if world == "none copies" else 0.95) * best


@pytest.mark.parametrize("requests", [4, 8])
def test_requests_that_are_alike_get_alike(requests: int) -> None:
    """Not all rows for the first that asks."""
    model: list[TimedModel] = []
    speed(WORLDS["all copy"](requests), GROUPS, tokens=200, model=model)
    assert max(max(widths) - min(widths) for widths in model[0].widths[8:]) <= 1


@pytest.mark.parametrize("right", [0.1, 0.7, 0.95])
@pytest.mark.parametrize("splits", [False, True], ids=["one cache", "divided"])
def test_a_draft_model_slows_nobody_down(right: float, splits: bool) -> None:
    """Its decodes delay all four."""
    texts = WORLDS["none copies"](4)
    plain = 4000 / (JITTER * GROUPS.at(4))
    assert speed(texts, GROUPS, splits=splits, right=right, tokens=120) >= 0.97 * plain
