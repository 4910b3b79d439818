"""Every drafter passes the contract of edgespec.testing; a target that drafts for itself is always accepted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from edgespec.distribution import Distribution
from edgespec.drafters import ChainDrafter, EagleDrafter, LookupDrafter, MedusaDrafter, ModelDrafter, SuffixDrafter
from edgespec.drafters.suffix_index import FixedIndex
from edgespec.drafting import Draft, Drafter, Features, LatestState
from edgespec.generation import GenerationRequest, generate
from edgespec.sampling import Sampler, SamplingParams
from edgespec.stats import RoundEvent
from edgespec.testing import DrafterContract, TableModel
from table_following import TableHead, ToldEagle
from table_heads import TableStates, random_heads


class TestModelDrafter(DrafterContract):
    def make_drafter(self, target: TableModel) -> Drafter:
        return ModelDrafter(TableModel(target.vocab.size, seed=7))


class TestModelDrafterAtItsOwnTemperature(DrafterContract):
    def make_drafter(self, target: TableModel) -> Drafter:
        return ModelDrafter(TableModel(target.vocab.size, seed=7), temperature=0.4)


class TestGreedyModelDrafter(DrafterContract):
    def make_drafter(self, target: TableModel) -> Drafter:
        return ModelDrafter(TableModel(target.vocab.size, seed=7), temperature=0)


class TestModelDrafterWithATinyContext(DrafterContract):
    def make_drafter(self, target: TableModel) -> Drafter:
        return ModelDrafter(TableModel(target.vocab.size, seed=7, n_ctx=6))


class TestModelDrafterWithALargerVocabulary(DrafterContract):
    """A padded draft vocabulary: ids the target lacks are never drafted."""

    def make_drafter(self, target: TableModel) -> Drafter:
        return ModelDrafter(TableModel(target.vocab.size + 2, seed=7))


class TestModelDrafterOnOneSharedCache(DrafterContract):
    """All conversations on one draft model that has room for two of them."""

    shared = TableModel(3, seed=7, n_seq_max=2)

    def make_drafter(self, target: TableModel) -> Drafter:
        return ModelDrafter(self.shared)


class TestTargetAsItsOwnDraft(DrafterContract):
    def make_drafter(self, target: TableModel) -> Drafter:
        return ModelDrafter(target)


class TestLookupDrafter(DrafterContract):
    def make_drafter(self, target: TableModel) -> Drafter:
        return LookupDrafter(min_ngram=1)


class TestLookupDrafterByDefault(DrafterContract):
    def make_drafter(self, target: TableModel) -> Drafter:
        return LookupDrafter()


class TestSuffixDrafter(DrafterContract):
    def make_drafter(self, target: TableModel) -> Drafter:
        return SuffixDrafter(min_match=1, min_probability=0)


class TestSuffixDrafterByDefault(DrafterContract):
    def make_drafter(self, target: TableModel) -> Drafter:
        return SuffixDrafter()


class TestSuffixDrafterWithPastReplies(DrafterContract):
    past = FixedIndex(np.array([0, 1, 2, 2, 1, -1, 2, 0, 0, 2, 0, -1, 1, 1, 0, -1], dtype=np.int32))

    def make_drafter(self, target: TableModel) -> Drafter:
        return SuffixDrafter(past=self.past)


class TestSuffixDrafterThatForgets(DrafterContract):
    def make_drafter(self, target: TableModel) -> Drafter:
        return SuffixDrafter(min_match=1, capacity=4)


class TestMedusaDrafter(DrafterContract):
    """With the states that a loop would leave, so that it drafts for the contract's bare texts, too."""

    samples = 1000
    heads = random_heads()

    def make_drafter(self, target: TableModel) -> Drafter:
        return MedusaDrafter(self.heads, TableStates(target))


class TestMedusaDrafterInTheLoop(DrafterContract):
    """With the states that the loop does leave."""

    samples = 500
    heads = random_heads(count=4, depth=2, shared=True)

    def make_drafter(self, target: TableModel) -> Drafter:
        return MedusaDrafter(self.heads, LatestState())


class TestEagleDrafter(DrafterContract):
    """With the features that a loop would leave. MTP layers are driven by the same code."""

    samples = 1000

    def make_drafter(self, target: TableModel) -> Drafter:
        return ToldEagle(target, TableHead())


class TestEagleDrafterInTheLoop(DrafterContract):
    """With the features that the loop does leave, and a vocabulary of its own."""

    samples = 500
    head = TableHead(ids=(0, 2), shares=10**9)

    def make_drafter(self, target: TableModel) -> Drafter:
        return EagleDrafter(self.head, Features(), ends=target.vocab.is_eog)


class TestMedusaDrafterWithAReducedVocabulary(DrafterContract):
    samples = 500
    heads = random_heads(ids=(0, 2))

    def make_drafter(self, target: TableModel) -> Drafter:
        return MedusaDrafter(self.heads, TableStates(target), ends=target.vocab.is_eog)


class TestChainDrafter(DrafterContract):
    def make_drafter(self, target: TableModel) -> Drafter:
        return ChainDrafter([LookupDrafter(), ModelDrafter(TableModel(target.vocab.size, seed=7))])


@pytest.mark.parametrize("verify", ["token", "block"])
@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("twin", [False, True])
def test_a_target_that_drafts_for_itself_is_always_accepted(verify: str, temperature: float, twin: bool) -> None:
    target = TableModel(4, seed=3)
    drafted = accepted = 0
    for seed in range(20):
        drafter = ModelDrafter(TableModel(4, seed=3) if twin else target)
        params = SamplingParams(temperature=temperature, repeat_penalty=1.2, seed=seed)
        generation = generate(
            target, GenerationRequest(prompt=(0, 1), params=params, max_tokens=33, verify=verify), drafter
        )
        for _ in generation:
            pass
        drafted += generation.stats.drafted
        accepted += generation.stats.accepted
        assert generation.stats.rounds == 8  # 32 tokens, 4 at a time
    assert drafted == accepted == 20 * 24


# ---- the contract itself catches what it is for ---------------------------------------------------------


class Wrapped:
    """A model drafter with one fault; the base has none."""

    name = "wrapped"

    def __init__(self) -> None:
        self.inner = ModelDrafter(TableModel(3, seed=7))

    def draft(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Draft:
        return self.inner.draft(tokens, k, sampler, rng)

    def observe(self, event: RoundEvent) -> None:
        self.inner.observe(event)

    def close(self) -> None:
        self.inner.close()


class TooLong(Wrapped):
    def draft(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Draft:
        return super().draft(tokens, k + 1, sampler, rng)


class Meddling(Wrapped):
    def draft(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Draft:
        draft = super().draft(tokens, k, sampler, rng)
        tokens += draft.tokens  # type: ignore[operator]
        return draft


class Unseeded(Wrapped):
    def draft(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Draft:
        return super().draft(tokens, k, sampler, np.random.default_rng())


class GreedyScoredAsSampled(Wrapped):
    def draft(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Draft:
        draft = super().draft(tokens, min(k, 1), sampler, rng)
        return Draft(tuple(q.top() for q in draft.proposals), draft.proposals, self.name)


class TemperatureOnTheDrawOnly(Wrapped):
    def draft(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Draft:
        draft = super().draft(tokens, min(k, 1), sampler, rng)
        drawn = (Distribution(q.ids, q.probs**4 / (q.probs**4).sum()).sample(rng) for q in draft.proposals)
        return Draft(tuple(drawn), draft.proposals, self.name)


class DropsUnlikelyTokens(Wrapped):
    def draft(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Draft:
        draft = super().draft(tokens, k, sampler, rng)
        low = (i for i, (t, q) in enumerate(zip(draft.tokens, draft.proposals, strict=True)) if q.prob(t) < 0.5)
        return draft.cut(next(low, k))


class NotNormalised(Wrapped):
    def draft(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Draft:
        draft = super().draft(tokens, k, sampler, rng)
        halves = tuple(Distribution(q.ids, q.probs / 2) for q in draft.proposals)
        return Draft(draft.tokens, halves, self.name)


class Remembering(Wrapped):
    """One n-gram table for all conversations."""

    seen: tuple[int, ...] = ()

    def draft(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Draft:
        draft = super().draft(tokens, k, sampler, rng)
        if type(self).seen and k:
            draft = Draft(type(self).seen[:1], (Distribution.one_hot(type(self).seen[0]),), self.name)
        type(self).seen = tuple(tokens)
        return draft


FAULTS = {
    TooLong: "test_drafts_are_well_formed",
    Meddling: "test_drafts_are_well_formed",
    NotNormalised: "test_drafts_are_well_formed",
    Unseeded: "test_equal_seeds_draw_equal_drafts",
    GreedyScoredAsSampled: "test_tokens_are_drawn_from_the_proposals_reported",
    TemperatureOnTheDrawOnly: "test_tokens_are_drawn_from_the_proposals_reported",
    DropsUnlikelyTokens: "test_tokens_are_drawn_from_the_proposals_reported",
    Remembering: "test_conversations_do_not_leak",
}


def contract_for(make: type[Wrapped]) -> DrafterContract:
    class Contract(DrafterContract):
        def make_drafter(self, target: TableModel) -> Drafter:
            return make()

    return Contract()


@pytest.mark.parametrize("name", sorted(set(FAULTS.values())))
def test_the_contract_passes_the_drafter_without_a_fault(name: str) -> None:
    getattr(contract_for(Wrapped), name)()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_contract_catches_a_faulty_drafter(fault: type[Wrapped]) -> None:
    with pytest.raises(AssertionError):
        getattr(contract_for(fault), FAULTS[fault])()


@pytest.mark.parametrize("fault", [GreedyScoredAsSampled, TemperatureOnTheDrawOnly, DropsUnlikelyTokens])
def test_the_output_law_catches_a_faulty_drafter(fault: type[Wrapped]) -> None:
    with pytest.raises(AssertionError, match="off the target's law"):
        contract_for(fault).test_output_has_the_targets_law()
