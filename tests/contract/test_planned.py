"""The planned drafter keeps the drafter contract and the target's law, whatever the clock makes it plan."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from edgespec.costs import Costs, CostTable
from edgespec.distribution import Distribution
from edgespec.drafters import ModelDrafter, PlannedDrafter, Resources, planned
from edgespec.drafters.planned import LATEST
from edgespec.drafting import Draft, Drafter
from edgespec.generation import Generation, GenerationRequest
from edgespec.planning import Planner
from edgespec.sampling import Sampler, SamplingParams
from edgespec.scoring import Rows, ScoreRequest
from edgespec.stats import DraftedToken, RoundEvent
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


class Asked:
    """A free source that is always wrong, and counts how often it was asked."""

    name = "lookup"

    def __init__(self) -> None:
        self.times = 0

    def draft(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Draft:
        self.times += 1
        wrong = (int(tokens[-1]) + 1) % 6
        return Draft((wrong,), (Distribution.one_hot(wrong),), self.name)

    def observe(self, event: RoundEvent) -> None: ...
    def close(self) -> None: ...


def test_no_draft_is_looked_for_while_none_could_be_lost() -> None:
    """To look for one takes time, too. `why` still says what was found when one was looked for."""
    costs = Stated(CostTable((1, 2), (10.0, 20.0)))
    source = Asked()
    planner = Planner(costs, {"lookup": lambda _: 0.99}, overhead_ms=0.0, remaining=200)
    drafter = PlannedDrafter((source,), planner)
    sampler, rng = Sampler(SamplingParams(temperature=0), 6), np.random.default_rng(0)
    rounds = 200
    for number in range(rounds):
        before = source.times
        draft = drafter.draft((0,) * (number + 1), 4, sampler, rng)
        tokens = tuple(DraftedToken(t, "", 1.0, 0.0, accepted=False) for t in draft.tokens)
        k = len(tokens)
        drafter.observe(
            RoundEvent(
                round=number,
                source=draft.source,
                k=k,
                drafted=tokens,
                accepted=0,
                produced=1,
                emitted=(0,),
                draft_ms=1.0 if source.times > before else 0.02,
                verify_ms=10.0 + 10.0 * k,
                other_ms=0.0,
                beside=0,
            )
        )
    assert 0 < source.times < rounds / 2
    assert drafter.why.startswith("lookup off: ")


def test_a_greedy_draft_ends_where_the_draft_model_is_unsure() -> None:
    """At temperature 0 its choice is certain, but not that the target makes the same."""
    draft = TableModel(6, seed=3, eog=())
    asked: list[tuple[int, float]] = []

    def gate(drafted: int, confidence: float) -> bool:
        asked.append((drafted, confidence))
        return drafted < 2

    for temperature in (0.0, 1.0):
        asked.clear()
        model = ModelDrafter(draft)
        model.gate = gate
        sampler = Sampler(SamplingParams(temperature=temperature, top_k=0, top_p=1.0, min_p=0.0), 6)
        found = model.draft((0, 1, 2), 4, sampler, np.random.default_rng(0))
        assert [drafted for drafted, _ in asked] == [0, 1, 2]
        texts = [(0, 1, 2), (0, 1, 2, *found.tokens[:1]), (0, 1, 2, *found.tokens)]
        rows = [draft.logits(text).astype(np.float64) for text in texts]
        sure = [float(np.exp(row.max()) / np.exp(row).sum()) for row in rows]
        assert [confidence for _, confidence in asked] == pytest.approx(sure, rel=1e-4)
