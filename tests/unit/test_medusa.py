"""The Medusa drafter in the loop: which state it reads, what q is, and mutants that the checks catch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from edgespec.costs import Costs, CostTable
from edgespec.distribution import Distribution
from edgespec.drafters import ChainDrafter, LookupDrafter, MedusaDrafter, Resources, build, planned, select
from edgespec.drafting import NO_DRAFT, Draft, Drafter, LatestState
from edgespec.errors import BadRequestError
from edgespec.generation import GenerationRequest, generate, step
from edgespec.heads.medusa import Block, Facts, MedusaHeads
from edgespec.sampling import Grammar, Sampler, SamplingParams
from edgespec.stats import RoundEvent
from edgespec.testing import TableModel, outcome_law, sample_outcomes, total_variation, total_variation_bound
from table_heads import TableStates, random_heads

OFF = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
PROMPT = (0, 1, 2, 1, 2, 0, 1)
HEADS = random_heads()
TARGET = TableModel(seed=1)
SAMPLES = 2000


class Witness(MedusaDrafter):
    """Notes the texts that it was asked to draft for, and compares the loop's states with the truth."""

    def __init__(self, heads: MedusaHeads, target: TableModel) -> None:
        super().__init__(heads, LatestState())
        self.target, self.asked = target, 0

    def draft(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Draft:
        state = self.states.before(tokens)
        assert state is not None
        assert np.array_equal(state, self.target.state(tokens[:-1]))
        self.asked += 1
        return super().draft(tokens, k, sampler, rng)


@pytest.mark.parametrize("eog", [(), (2,)])
@pytest.mark.parametrize("verify", ["token", "block", "seed"])
def test_the_state_is_that_of_the_token_before_the_last_in_every_round(verify: str, eog: tuple[int, ...]) -> None:
    """After rejections, full acceptances and plain rounds, alone and beside others on few caches."""
    target = TableModel(seed=4, eog=eog, n_seq_max=2)
    accepted: Counter[int] = Counter()
    for seed in range(20):
        drafters = [Witness(HEADS, target) for _ in range(3)]
        running = [
            generate(
                target,
                GenerationRequest(
                    prompt=PROMPT[i:], params=OFF.replace(seed=seed + i), max_tokens=17, draft_max=3, verify=verify
                ),
                drafter if i else ChainDrafter([LookupDrafter(), drafter]),
            )
            for i, drafter in enumerate(drafters)
        ]
        while any(g.finish_reason is None for g in running):
            for events in step(target, running):
                accepted.update(e.accepted for e in events if isinstance(e, RoundEvent))
        assert all(g.error is None for g in running)
        for generation in running:
            generation.close()
        assert eog or all(d.asked > 2 for d in drafters[1:])
    assert all(accepted[n] for n in range(1 if eog else 4))  # texts with an end token are short


def test_a_loop_without_heads_asks_for_no_states() -> None:
    target = TableModel(seed=1)
    generation = generate(target, GenerationRequest(prompt=PROMPT, max_tokens=9), ChainDrafter([LookupDrafter()]))
    list(generation)
    assert not generation.wants_states
    assert not target._stated


def test_a_state_serves_one_text_only() -> None:
    states = LatestState()
    assert states.before([0]) is None
    assert states.before([]) is None
    row = np.ones(3, np.float32)
    states.put(4, row)
    row[:] = 7  # rows are overwritten by the next decode
    assert states.before([0] * 4) is None
    assert np.array_equal(states.before([0] * 5), np.ones(3))  # type: ignore[arg-type]
    drafter = MedusaDrafter(HEADS, LatestState())
    assert drafter.draft([0, 1], 3, Sampler(OFF, 3), np.random.default_rng(0)) is NO_DRAFT
    assert drafter.reach([0, 1]) == 0


def _draft(heads: MedusaHeads, params: SamplingParams, grammar: Grammar | None = None, **more: object) -> Draft:
    drafter = MedusaDrafter(heads, TableStates(TARGET), **more)  # type: ignore[arg-type]
    return drafter.draft(PROMPT, 3, Sampler(params, 3, grammar), np.random.default_rng(1))


def test_q_is_the_head_after_the_requests_sampling() -> None:
    """Head k of the state before the last token, in order, with what was drafted in the penalties."""
    params = OFF.replace(temperature=0.7, top_k=2, repeat_penalty=1.3)
    draft = _draft(HEADS, params)
    walk = Sampler(params, 3).walk(PROMPT)
    for i, q in enumerate(draft.proposals):
        expected = walk.distribution(HEADS.logits(TARGET.state(PROMPT[:-1]), 3)[i])
        assert np.array_equal(q.ids, expected.ids)
        assert np.allclose(q.probs, expected.probs)
        walk.advance(draft.tokens[i])
    assert (draft.source, draft.features, len(draft.tokens)) == ("medusa", (0, 1, 2), 3)


@pytest.mark.parametrize("shared", [False, True])
def test_the_arithmetic_of_a_head(shared: bool) -> None:
    heads = random_heads(count=2, depth=2, shared=shared)
    state = TARGET.state(PROMPT)
    for k, blocks in enumerate(heads.blocks):
        h = state.astype(np.float64)
        for block in blocks:
            inner = block.weight @ h + block.bias
            h = h + inner / (1 + np.exp(-inner))
        assert np.allclose(heads.logits(state, 2)[k], heads.projections[0 if shared else k] @ h, atol=1e-4)
    assert heads.logits(state, 1).shape == (1, 3)
    assert heads.step_ms > 0


def test_outside_the_draft_vocabulary_nothing_is_proposed() -> None:
    for seed in range(20):
        draft = _draft(random_heads(ids=(1, 2), seed=seed), OFF)
        assert len(draft.tokens) == 3
        assert all(q.prob(0) == 0 and q.probs.sum() == pytest.approx(1) for q in draft.proposals)


class Only:
    """A grammar of one token."""

    def __init__(self, token: int) -> None:
        self.token = token

    def mask(self, ids: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        return ids == self.token

    def advance(self, token: int) -> None:
        assert token == self.token

    def clone(self) -> Grammar:
        return Only(self.token)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_grammar_masks_q_and_ends_the_draft_where_it_leaves_nothing(temperature: float) -> None:
    params = OFF.replace(temperature=temperature)
    assert _draft(HEADS, params, Only(2)).tokens == (2, 2, 2)
    assert _draft(random_heads(ids=(0, 1)), params, Only(2)) is NO_DRAFT
    banned = params.replace(logit_bias={0: float("-inf"), 1: float("-inf")})
    assert _draft(random_heads(ids=(0, 1)), banned) is NO_DRAFT


def test_a_draft_stops_after_an_end_token() -> None:
    draft = _draft(HEADS, OFF, Only(2), ends=lambda token: token == 2)
    assert draft.tokens == (2,)


def test_weights_that_overflow_draft_nothing() -> None:
    wide = np.full((3, 6), 3e38, np.float32)
    blocks = tuple((Block(np.eye(6, dtype=np.float32), np.ones(6, np.float32)),) for _ in range(2))
    with np.errstate(over="ignore", invalid="ignore"):
        heads = MedusaHeads(Facts(3, 6), np.arange(3), blocks, (wide, wide))
        assert _draft(heads, OFF) is NO_DRAFT


def test_the_table_of_drafters_asks_for_heads() -> None:
    assert "medusa" not in select("auto", has_draft=True)
    assert select("auto", has_draft=True, has_heads=True) == ("suffix", "lookup", "medusa", "model")
    with pytest.raises(
        BadRequestError, match="drafter medusa needs heads for this model; give their file with --heads"
    ):
        select("medusa", has_draft=True)
    with pytest.raises(BadRequestError, match="--heads"):
        build(("medusa",), Resources())


class Stated(Costs):
    """Costs that hold whatever the clock says."""

    def observe(self, *_: object, **__: object) -> None:
        pass


def test_a_plan_takes_heads_that_guess_right_and_says_why_it_leaves_others() -> None:
    """Heads that always know: the projection picks the only token that the target gives."""
    target = TableModel(3, seed=1, zeros=0.0, concentration=0.001)
    costs = Stated(CostTable((1, 2, 4, 16), (10.0, 10.1, 10.2, 10.4)))
    resources = Resources(heads=HEADS, ends=target.vocab.is_eog)
    drafter = planned(("medusa",), resources, costs, remaining=200)
    assert drafter.states is not None
    drafter._head_ms["medusa"] = 0.01
    generation = generate(target, GenerationRequest(prompt=PROMPT, max_tokens=120, draft_max=8), drafter)
    list(generation)
    assert generation.stats.sources["medusa"].drafted > 3
    dear = planned(("medusa",), resources, Stated(CostTable((1, 2, 4, 16), (0.01, 10.0, 20.0, 80.0))), remaining=200)
    list(generate(target, GenerationRequest(prompt=PROMPT, max_tokens=40, draft_max=8), dear))
    assert dear.why.startswith("medusa off: one step costs")


# ---- mutants ------------------------------------------------------------------------------------------------------


class WrongState(TableStates):
    """The state of another position: guesses are worse, and the law must hold all the same."""

    def before(self, tokens: Sequence[int]) -> np.ndarray:  # type: ignore[type-arg]
        return self._target.state(tokens[:-2])


class NotRenormalised(MedusaDrafter):
    """q over the whole vocabulary, although tokens outside the draft vocabulary are never drawn."""

    def draft(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Draft:
        draft = super().draft(tokens, min(k, 1), sampler, rng)
        third = tuple(
            Distribution(np.arange(3), np.array([q.prob(t) * 2 / 3 if t in q.ids else 1 / 3 for t in range(3)]))
            for q in draft.proposals
        )
        return Draft(draft.tokens, third, draft.source)


class GreedyScoredAsSampled(MedusaDrafter):
    """The likeliest token, as if it had been drawn."""

    def draft(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Draft:
        draft = super().draft(tokens, min(k, 1), sampler, rng)
        return Draft(tuple(q.top() for q in draft.proposals), draft.proposals, draft.source)


REDUCED = random_heads(ids=(0, 2))


def _distance(make: Callable[[], Drafter], params: SamplingParams) -> float:
    counts = sample_outcomes(TARGET, make, params, PROMPT, SAMPLES)
    return total_variation(counts, outcome_law(TARGET, params, PROMPT))


def test_the_state_of_a_wrong_row_changes_acceptance_and_not_the_law() -> None:
    assert _distance(lambda: MedusaDrafter(HEADS, WrongState(TARGET)), OFF) <= total_variation_bound(27, SAMPLES)


@pytest.mark.parametrize("mutant", [NotRenormalised, GreedyScoredAsSampled])
def test_a_wrong_q_breaks_the_law_and_is_caught(mutant: type[MedusaDrafter]) -> None:
    """The bound holds for the drafter without a fault: tests/exactness/test_statistics.py."""
    assert _distance(lambda: mutant(REDUCED, LatestState()), OFF) > total_variation_bound(27, SAMPLES)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ids": np.array([0, 0, 2])}, "ascending, each once"),
        ({"ids": np.array([0, 1, 3])}, "ids from 0 to 2"),
        ({"blocks": ()}, "there are 0 heads"),
        ({"projections": (np.zeros((3, 6), np.float32),) * 2}, "3 heads have 2 projections"),
        ({"projections": (np.zeros((2, 6), np.float32),)}, r"a projection has shape \(2, 6\)"),
        ({"projections": (np.zeros((3, 6)),)}, "type float64"),
        ({"projections": (np.full((3, 6), np.nan, np.float32),)}, "not finite"),
    ],
)
def test_parts_that_do_not_fit_are_refused(change: dict[str, object], message: str) -> None:
    parts = {"facts": HEADS.facts, "ids": HEADS.ids, "blocks": HEADS.blocks, "projections": HEADS.projections} | change
    with pytest.raises(BadRequestError, match=message):
        MedusaHeads(**parts)  # type: ignore[arg-type]
