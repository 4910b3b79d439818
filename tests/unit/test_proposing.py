"""Drafts of several requests by one draft model: a decode for a token of each of them, not one each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from edgespec.beside import Beside
from edgespec.costs import Costs, CostTable
from edgespec.drafters import ChainDrafter, LookupDrafter, ModelDrafter, PlannedDrafter, Resources, planned
from edgespec.drafting import Drafter
from edgespec.errors import DecodeError
from edgespec.generation import Generation, GenerationRequest, generate
from edgespec.rounds import step
from edgespec.sampling import SamplingParams
from edgespec.scoring import Rows, ScoreRequest
from edgespec.testing import TableModel

GREEDY = SamplingParams(temperature=0)
PROMPTS = ((0, 1, 2), (2, 1), (1, 1, 1, 1))


class Counted(TableModel):
    """Keeps how many requests each decode had, and whether one could be cancelled in it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.sizes: list[int] = []
        self.cancels: list[bool] = []

    def score(self, requests: Sequence[ScoreRequest]) -> list[Rows]:
        self.sizes.append(len(requests))
        self.cancels.append(any(r.cancel is not None for r in requests))
        return super().score(requests)


def begun(
    target: TableModel, made: Callable[[int], Drafter | None], lengths: Sequence[int] = (3, 3, 3)
) -> list[Generation]:
    """After the prompt pass. lengths: most tokens of each draft."""
    running = [
        generate(target, GenerationRequest(prompt=p, params=GREEDY, max_tokens=40, draft_max=n), made(i))
        for i, (p, n) in enumerate(zip(PROMPTS, lengths, strict=False))
    ]
    step(target, running)
    return running


def texts(target: TableModel, running: list[Generation]) -> list[list[int]]:
    while any(g.finish_reason is None for g in running):
        step(target, running)
    for g in running:
        g.close()
    return [g.completion for g in running]


@pytest.mark.parametrize("chained", [False, True])
def test_tokens_of_all_drafts_come_from_shared_decodes(chained: bool) -> None:
    draft = Counted(seed=2)

    def made(_: int) -> Drafter:
        model = ModelDrafter(draft)
        return ChainDrafter([LookupDrafter(min_ngram=8), model]) if chained else model

    target = TableModel(seed=1)
    running = begun(target, made, (3, 1, 5))
    step(target, running)
    assert draft.sizes == [3, 2, 2, 1, 1]
    assert [g.stats.drafted for g in running] == [3, 1, 5]
    plain = begun(TableModel(seed=1), lambda _: None, (0, 0, 0))
    assert texts(target, running) == texts(plain[0].scorer, plain)  # type: ignore[arg-type]


def test_planned_drafts_share_decodes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlannedDrafter, "observe", lambda *_: None)  # whatever the clock says
    draft, target = Counted(seed=1), TableModel(seed=1)
    cheap = CostTable((1, 2, 4, 8, 16), (10.0, 10.1, 10.2, 10.3, 10.4))

    def made(_: int) -> Drafter:
        return planned(("model",), Resources(draft=draft), Costs(cheap), draft_costs=Costs(CostTable((1,), (0.01,))))

    running = begun(target, made)
    step(target, running)
    assert draft.sizes[:2] == [3, 3]


def test_each_knows_how_many_draft_before_it() -> None:
    told: list[int] = []

    class Told(ModelDrafter):
        expects = 1.0

        def share(self, beside: Beside) -> None:
            told.append(beside.drafting)

        def prospect(self, *_: Any) -> None:
            """It does not say."""

    draft, target = TableModel(seed=2), TableModel(seed=1)
    running = begun(target, lambda _: Told(draft))
    step(target, running)
    assert told[:3] == [0, 1, 2]  # as they plan
    assert told[3:] == [2, 2, 2]  # as they learn what became of it


def test_drafts_that_may_grow_leave_each_other_room() -> None:
    draft, target = TableModel(seed=2), Counted(seed=1, max_width=8)
    running = begun(target, lambda _: ModelDrafter(draft), (4, 4, 4))
    step(target, running)
    assert [g.stats.drafted for g in running] == [4, 1, 0]  # eight rows, of which each has one


class Breaking(ModelDrafter):
    """Fails with its second token."""

    def steps(self, *arguments: Any) -> Any:
        inner = super().steps(*arguments)
        step = next(inner)
        row = yield step
        yield inner.send(row)
        raise DecodeError("this draft model is broken")


def test_one_that_fails_ends_and_the_others_draft_on() -> None:
    draft, target = Counted(seed=2), TableModel(seed=1)
    running = begun(target, lambda i: Breaking(draft) if i == 1 else ModelDrafter(draft))
    step(target, running)
    assert draft.sizes == [3, 3, 2]
    assert isinstance(running[1].error, DecodeError)
    assert [g.stats.drafted for g in running] == [3, 0, 3]


def test_a_draft_model_without_room_for_all_is_asked_for_one_after_another() -> None:
    draft, target = Counted(seed=2, n_ctx=16, cells=16), TableModel(seed=1)
    running = begun(target, lambda _: ModelDrafter(draft))
    step(target, running)
    assert set(draft.sizes) == {1, 3}  # they grow until no decode has room for all
    assert [g.stats.drafted for g in running] == [3, 3, 3]


def test_a_draft_model_that_fails_ends_those_that_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    draft, target = TableModel(seed=2), TableModel(seed=1)
    running = begun(target, lambda i: ModelDrafter(draft) if i else None)

    def broken(_: Sequence[ScoreRequest]) -> list[Rows]:
        raise DecodeError("no such luck")

    monkeypatch.setattr(draft, "score", broken)
    step(target, running)
    assert [g.error is None for g in running] == [True, False, False]
    assert len(running[0].completion) == 2


def test_one_that_is_cancelled_takes_no_draft_with_it() -> None:
    draft, target = Counted(seed=2), TableModel(seed=1)
    running = begun(target, lambda _: ModelDrafter(draft, cancelled=threading.Event()))
    step(target, running)
    assert draft.cancels == [False] * 3
    step(target, running[:1])
    assert draft.cancels[3:] == [True] * 3  # alone it may stop a long reading
