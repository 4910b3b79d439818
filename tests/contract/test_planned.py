"""The planned drafter keeps the drafter contract and the target's law, whatever the clock makes it plan."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from edgespec.costs import Costs, CostTable
from edgespec.drafters import Resources, planned
from edgespec.drafters.planned import LATEST
from edgespec.drafting import Drafter
from edgespec.generation import Generation, GenerationRequest
from edgespec.scoring import Rows, ScoreRequest
from edgespec.table_model import TableModel
from edgespec.testing import DrafterContract
from table_heads import random_heads

CHEAP = CostTable((1, 2, 4, 8, 16), (10.0, 10.1, 10.2, 10.3, 10.4))  # drafting always seems worth a try
DRAFT_STEPS = CostTable((1, 16), (0.01, 0.02))


DEAR_READING = CostTable((1, 2, 16), (0.01, 1.0, 16.0))  # so the draft model is tried on the latest tokens alone


def _planned(target: TableModel, draft_costs: CostTable) -> Drafter:
    draft = TableModel(target.vocab.size, seed=7)
    return planned(("suffix", "lookup", "model"), Resources(draft=draft), Costs(CHEAP), draft_costs=Costs(draft_costs))


class TestPlannedDrafter(DrafterContract):
    def make_drafter(self, target: TableModel) -> Drafter:
        return _planned(target, DRAFT_STEPS)


class TestPlannedDrafterWithHeads(DrafterContract):
    samples = 500
    heads = random_heads()

    def make_drafter(self, target: TableModel) -> Drafter:
        draft = TableModel(target.vocab.size, seed=7)
        resources = Resources(draft=draft, heads=self.heads, ends=target.vocab.is_eog)
        return planned(("lookup", "medusa", "model"), resources, Costs(CHEAP), draft_costs=Costs(DRAFT_STEPS))


class _ReadsLittle(DrafterContract):
    def make_drafter(self, target: TableModel) -> Drafter:
        return _planned(target, DEAR_READING)


@pytest.mark.parametrize("check", [name for name in dir(_ReadsLittle) if name.startswith("test_")])
def test_a_glimpse_keeps_the_contract(check: str) -> None:
    """But for one line of it: where its reading began is the trace that an earlier draft leaves."""
    if check == "test_a_rejected_draft_leaves_no_trace":
        with pytest.raises(AssertionError, match="an earlier draft shows"):
            getattr(_ReadsLittle(), check)()
    else:
        getattr(_ReadsLittle(), check)()


class Counting(TableModel):
    """Remembers how many tokens each decode was behind."""

    lengths: list[int]

    def score(self, requests: Sequence[ScoreRequest]) -> list[Rows]:
        self.lengths.extend(len(r.tokens) for r in requests)
        return super().score(requests)


class Stated(Costs):
    """Costs that hold whatever the clock says."""

    def observe(self, *_: object, **__: object) -> None:
        pass


def _lengths(costs: CostTable, prompt: tuple[int, ...], tokens: int) -> list[int]:
    """Lengths of the texts that the draft model read, where target and draft are the same model."""
    target = TableModel(6, seed=3, eog=())
    draft = Counting(6, seed=3, eog=())
    draft.lengths = []
    drafter = planned(("model",), Resources(draft=draft), Stated(CHEAP), draft_costs=Stated(costs), remaining=tokens)
    request = GenerationRequest(prompt=prompt, max_tokens=tokens, draft_max=8)
    for _ in Generation(target, request, drafter):
        pass
    return draft.lengths


def test_a_long_prompt_is_read_once_a_glimpse_of_it_has_shown_that_it_pays() -> None:
    prompt = (0, 1, 2, 3, 4, 5) * 10
    lengths = _lengths(CostTable((1, 2, 16), (0.01, 0.5, 0.6)), prompt, 200)
    assert lengths[0] == LATEST
    whole = next(i for i, n in enumerate(lengths) if n > len(prompt))
    assert whole >= 2
    assert min(lengths[whole:]) > len(prompt)


def test_a_prompt_that_costs_more_than_the_reply_is_never_read() -> None:
    lengths = _lengths(CostTable((1, 9, 16), (0.01, 0.5, 60.0)), (0, 1, 2, 3, 4, 5) * 40, 30)
    assert lengths
    assert max(lengths) < 60
