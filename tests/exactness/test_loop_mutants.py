"""Faults of the loop around a round, each as a mutant: the check that ours passes must fail on it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

import edgespec.testing
from edgespec.distribution import Distribution
from edgespec.drafters import LookupDrafter, ModelDrafter
from edgespec.drafting import Draft, Drafter
from edgespec.errors import DecodeError, EdgeSpecError
from edgespec.generation import Generation, GenerationRequest, generate, step
from edgespec.sampling import Grammar, Sampler, SamplingParams, Walk
from edgespec.scoring import Rows
from edgespec.stats import RoundEvent, TokenEvent
from edgespec.testing import (
    TableModel,
    TableSequence,
    outcome_law,
    sample_outcomes,
    total_variation,
    total_variation_bound,
)
from edgespec.verification import Verdict

OFF = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
PROMPT = (0, 1, 2)
SAMPLES = 3_000
BOUND = total_variation_bound(40, SAMPLES)  # 27 outcomes, 13 more where an end token may come early


def model_drafter() -> Drafter:
    return ModelDrafter(TableModel(seed=2))


def distance(
    target: TableModel,
    law: dict[tuple[int, ...], float],
    params: SamplingParams = OFF,
    drafter: Callable[[], Drafter] = model_drafter,
    grammar: Callable[[], Grammar] | None = None,
) -> float:
    return total_variation(sample_outcomes(target, drafter, params, PROMPT, SAMPLES, grammar=grammar), law)


# ---- end tokens --------------------------------------------------------------------------------------------


class PastTheEnd(Generation):
    """Skips an end token inside an accepted block and takes what follows it."""

    def _take(self, verdict: Verdict, draft: Draft, rows: Rows, number: int) -> Iterator[TokenEvent]:
        *body, last = verdict.tokens
        kept = [token for token in body if not self.scorer.vocab.is_eog(token)]
        yield from super()._take(Verdict((*kept, last), len(kept)), draft, rows, number)


def test_an_accepted_end_token_ends_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    target = TableModel(seed=4, eog=(2,))
    law = outcome_law(target, OFF, PROMPT)
    assert distance(target, law) <= BOUND
    monkeypatch.setattr(edgespec.testing, "generate", PastTheEnd)
    assert distance(target, law) > BOUND


class Scripted:
    """Drafts given tokens, one-hot."""

    name = "scripted"

    def __init__(self, *tokens: int) -> None:
        self.tokens = tokens

    def draft(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Draft:
        given = self.tokens
        return Draft(given, tuple(Distribution.one_hot(token) for token in given), self.name)

    def observe(self, event: RoundEvent) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize("token", [-1, 3, 4])
def test_a_drafted_id_outside_the_vocabulary_is_refused(token: int) -> None:
    target = TableModel(seed=1)
    generation = generate(target, GenerationRequest(prompt=PROMPT, params=OFF), Scripted(0, token))
    step(target, [generation])
    with pytest.raises(DecodeError, match="proposed token id"):
        step(target, [generation])


def test_a_draft_longer_than_asked_for_is_refused() -> None:
    target = TableModel(seed=1)
    generation = generate(target, GenerationRequest(prompt=PROMPT, params=OFF, draft_max=2), Scripted(0, 0, 0))
    step(target, [generation])
    with pytest.raises(DecodeError, match="3 tokens"):
        step(target, [generation])


# ---- the cache ----------------------------------------------------------------------------------------------


class Trusting(TableModel):
    """Believes that what a cache holds is always the beginning of what is asked for."""

    def kept(self, cached: Sequence[int], wanted: Sequence[int]) -> int:
        return len(cached)

    def sequence(self, tokens: Sequence[int] = ()) -> TableSequence:
        sequence = super().sequence(())
        if sequence.slot:
            self.cut(sequence.slot, 0)
        return sequence


def forget_truncation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop no longer rolls back; the model's own rollback, where it has one, stays."""
    monkeypatch.setattr(TableSequence, "truncate", lambda self, length: None)


def test_rejected_tokens_leave_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows come from what the cache holds. The loop's rollback and the model's are each enough; with neither,
    rejected tokens stay and the model notices."""
    law = outcome_law(TableModel(seed=1), OFF, PROMPT)
    assert distance(Trusting(seed=1), law) <= BOUND
    forget_truncation(monkeypatch)
    assert distance(TableModel(seed=1), law) <= BOUND
    with pytest.raises(DecodeError, match="the cache holds"):
        distance(Trusting(seed=1), law)


def stale_rounds(ending: str, seeds: int = 40) -> int:
    """After how many rounds the cache did not hold exactly tokens[:-1], over generations that end by `ending`."""
    stale = 0
    for seed in range(seeds):
        target = TableModel(seed=seed, eog=(2,) if ending == "eog" else ())
        request = GenerationRequest(
            prompt=(0, 1),
            params=OFF.replace(seed=seed),
            max_tokens=7 if ending == "length" else 60,
            stop=("ab", "cc", "ba") if ending == "stop" else (),
        )
        generation = generate(target, request, ModelDrafter(TableModel(seed=seed + 100)))
        rounds = 0
        while generation.finish_reason is None:
            if ending == "cancel" and rounds == 3:
                generation.cancel()
            step(target, [generation])
            rounds += 1
            stale += generation.sequence.cached != tuple(generation.tokens[:-1])
        assert generation.finish_reason == {"cancel": "cancelled", "length": "length"}.get(ending, "stop")
    return stale


@pytest.mark.parametrize("ending", ["eog", "stop", "length", "cancel"])
def test_between_rounds_the_cache_holds_the_tokens_but_the_last(ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stale_rounds(ending) == 0
    forget_truncation(monkeypatch)
    assert stale_rounds(ending) > 0


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_closing_the_iterator_leaves_a_clean_cache_for_the_next_turn(rounds: int) -> None:
    target = TableModel(seed=1, n_seq_max=1)
    generation = generate(target, GenerationRequest(prompt=PROMPT, params=OFF.replace(seed=3)), model_drafter())
    events = iter(generation)
    seen = 0
    for event in events:
        seen += isinstance(event, RoundEvent)
        if seen == rounds:
            break
    events.close()  # type: ignore[attr-defined]
    assert generation.finish_reason == "cancelled"
    before = target.decoded_tokens
    turn = generate(target, GenerationRequest(prompt=(*generation.tokens, 0), params=OFF, max_tokens=1))
    assert turn.sequence.cached == tuple(generation.tokens[:-1])  # and nothing of a draft
    for _ in turn:
        pass
    assert target.decoded_tokens - before == 2  # the last token and the new one: the rest was reused


# ---- the drafted prefix ---------------------------------------------------------------------------------------


class NoRepeats:
    """A grammar in which no token may follow itself."""

    def __init__(self, last: int = -1) -> None:
        self.last = last

    def mask(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.asarray(ids != self.last)

    def advance(self, token: int) -> None:
        self.last = token

    def clone(self) -> NoRepeats:
        return NoRepeats(self.last)


PENALTIES = {
    "repeat": OFF.replace(repeat_penalty=3.0, penalty_last_n=2),
    "frequency": OFF.replace(frequency_penalty=1.5),
    "presence": OFF.replace(presence_penalty=2.0, penalty_last_n=3),
}


@pytest.mark.parametrize("name", PENALTIES)
def test_penalties_count_the_drafted_prefix(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, params = TableModel(seed=1), PENALTIES[name]
    law = outcome_law(target, params, PROMPT)
    assert distance(target, law, params) <= BOUND
    monkeypatch.setattr(Walk, "advance", lambda self, token: None)
    assert distance(target, law, params) > BOUND


@pytest.mark.parametrize("drafter", [model_drafter, lambda: LookupDrafter(min_ngram=1)])
def test_a_grammar_follows_the_drafted_prefix(drafter: Callable[[], Drafter], monkeypatch: pytest.MonkeyPatch) -> None:
    target = TableModel(seed=1)
    law = outcome_law(target, OFF, PROMPT, grammar=NoRepeats)
    assert distance(target, law, drafter=drafter, grammar=NoRepeats) <= BOUND
    monkeypatch.setattr(Walk, "advance", lambda self, token: None)
    with pytest.raises(EdgeSpecError, match="grammar does not allow"):  # the loop notices at commit
        distance(target, law, drafter=drafter, grammar=NoRepeats)


# ---- one side only ----------------------------------------------------------------------------------------------


def test_a_verifier_fixed_at_temperature_1_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    target, params = TableModel(seed=1), OFF.replace(temperature=0.4)
    law = outcome_law(target, params, PROMPT)
    assert distance(target, law, params, lambda: ModelDrafter(TableModel(seed=2), temperature=0.4)) <= BOUND
    walk = Sampler.walk
    monkeypatch.setattr(Sampler, "walk", lambda self, tokens, temperature=None: walk(self, tokens, temperature or 1.0))
    assert distance(target, law, params, lambda: ModelDrafter(TableModel(seed=2), temperature=0.4)) > BOUND


class SharingNoise:
    """Draws from a copy of the generator that the verifier is about to use."""

    name = "sharing"

    def __init__(self) -> None:
        self.inner = model_drafter()

    def draft(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Draft:
        return self.inner.draft(tokens, k, sampler, copy.deepcopy(rng))

    def observe(self, event: RoundEvent) -> None:
        self.inner.observe(event)

    def close(self) -> None:
        self.inner.close()


def test_noise_shared_by_drafter_and_verifier_is_caught() -> None:
    target = TableModel(seed=1)
    assert distance(target, outcome_law(target, OFF, PROMPT), drafter=SharingNoise) > BOUND


class Crossed(TableModel):
    """Hands each request of a decode the rows of another."""

    def score(self, requests):  # type: ignore[no-untyped-def]
        return super().score(requests)[::-1]


def test_rows_reach_the_generation_they_belong_to() -> None:
    def greedy_pair(target: TableModel) -> list[list[int]]:
        pair = [
            generate(target, GenerationRequest(prompt=p, params=SamplingParams(temperature=0), max_tokens=9), d)
            for p, d in ((PROMPT, model_drafter()), ((2, 0), model_drafter()))
        ]
        while any(g.finish_reason is None for g in pair):
            step(target, pair)
        return [g.completion for g in pair]

    alone = []
    for prompt in (PROMPT, (2, 0)):
        generation = generate(
            TableModel(seed=1), GenerationRequest(prompt=prompt, params=SamplingParams(temperature=0), max_tokens=9)
        )
        for _ in generation:
            pass
        alone.append(generation.completion)
    assert greedy_pair(TableModel(seed=1)) == alone
    assert greedy_pair(Crossed(seed=1)) != alone
