"""The pace of the screen keeps to its share of the processor, also where looks cost very different times."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from chats import chatting, run

from edgespec.tui import pace
from edgespec.tui.collecting import no_full_collections
from edgespec.tui.pace import FASTEST_S, SHARE, SLOWEST_S, Pace


class Clocks:
    """In place of the module time."""

    def __init__(self) -> None:
        self.processor = self.clock = 0.0

    def thread_time(self) -> float:
        return self.processor

    def monotonic(self) -> float:
        return self.clock

    def spend(self, seconds: float) -> None:
        self.processor += seconds
        self.clock += seconds


@pytest.mark.parametrize("costs", [(0.013,), (0.003, 0.023), (0.002, 0.002, 0.002, 0.030), (0.020,) * 5 + (0.001,) * 5])
def test_the_mean_share_is_kept(monkeypatch: pytest.MonkeyPatch, costs: tuple[float, ...]) -> None:
    clocks = Clocks()
    monkeypatch.setattr(pace, "time", clocks)
    keeper = Pace()
    for number in range(400):
        if number == 100:
            before = clocks.processor, clocks.clock
        clocks.clock += keeper.wait()
        clocks.spend(costs[number % len(costs)])
    share = (clocks.processor - before[0]) / (clocks.clock - before[1])
    assert 0.6 * SHARE < share < 1.15 * SHARE


def test_it_is_never_too_fast_or_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = Clocks()
    monkeypatch.setattr(pace, "time", clocks)
    keeper = Pace()
    for cost, end in ((0.0001, FASTEST_S), (0.5, SLOWEST_S), (0.0001, FASTEST_S)):
        for _ in range(200):
            wait = keeper.wait()
            clocks.clock += wait
            clocks.spend(cost)
        assert wait == end


def test_no_full_collection_while_an_answer_comes(history: Path) -> None:
    """Each would stop the screen: keys wait for it."""

    async def test() -> None:
        async with chatting(history, model="scripted:echo?decodes_per_s=20") as chat:
            usual = gc.get_threshold()
            chat.composer.text = "one two three four five"
            await chat.press("enter")
            await chat.until(lambda: gc.get_threshold()[2] > 1_000_000)
            await chat.until(lambda: not chat.screen.busy and len(chat.texts) == 2)
            assert gc.get_threshold() == usual

    run(test())


def test_thresholds_come_back_when_the_last_of_several_answers_ends() -> None:
    usual = gc.get_threshold()
    with no_full_collections():
        with no_full_collections():
            pass
        assert gc.get_threshold() == (*usual[:2], gc.get_threshold()[2])
        assert gc.get_threshold() != usual
    assert gc.get_threshold() == usual
