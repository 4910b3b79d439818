"""Statistics: sampled output of the whole loop has the target's law, for every drafter and setting.

Outcomes are three tokens over a vocabulary of three (27 outcomes), all from rounds that may draft three.
`make soak` takes 50,000 samples of every cell, `make test` fewer of some.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest

from edgespec.distribution import Distribution, Uniforms
from edgespec.drafters import ChainDrafter, EagleDrafter, LookupDrafter, MedusaDrafter, ModelDrafter, SuffixDrafter
from edgespec.drafting import Drafter, Features, LatestState
from edgespec.generation import GenerationRequest, generate, step
from edgespec.sampling import SamplingParams
from edgespec.testing import TableModel, outcome_law, sample_outcomes, total_variation, total_variation_bound
from edgespec.verification import VERIFIERS, Verdict, verify_token
from table_following import TableHead
from table_heads import random_heads, random_sequential

PROMPT = (0, 1, 2, 1, 2, 0, 1)
TARGET = TableModel(seed=1)
DRAFT = TableModel(seed=2)
HEADS = random_heads()
SEQUENTIAL = random_sequential()
REDUCED_SEQUENTIAL = random_sequential(ids=(0, 2), window=1)
REDUCED_HEADS = random_heads(ids=(0, 2), shared=True, depth=2)
DRAFTERS: dict[str, Callable[[], Drafter]] = {
    "model": lambda: ModelDrafter(DRAFT),
    "model at its own temperature": lambda: ModelDrafter(DRAFT, temperature=0.6),
    "lookup": lambda: LookupDrafter(min_ngram=1),
    "suffix": lambda: SuffixDrafter(min_match=1, reach=3, min_probability=0.0),
    "medusa": lambda: MedusaDrafter(HEADS, LatestState()),
    "eagle": lambda: EagleDrafter(TableHead(), Features()),
    "medusa on a reduced vocabulary": lambda: MedusaDrafter(REDUCED_HEADS, LatestState()),
    "sequential heads": lambda: MedusaDrafter(SEQUENTIAL, LatestState()),
    "sequential heads on a reduced vocabulary": lambda: MedusaDrafter(REDUCED_SEQUENTIAL, LatestState()),
    "chain": lambda: ChainDrafter([LookupDrafter(min_ngram=2), ModelDrafter(DRAFT)]),
    "chain with medusa": lambda: ChainDrafter([LookupDrafter(min_ngram=3), MedusaDrafter(HEADS, LatestState())]),
}
OFF = SamplingParams(top_k=0, top_p=1.0, min_p=0.0)
TRUNCATIONS = {
    "plain": OFF,
    "top-k 3": OFF.replace(top_k=3),
    "top-k 2": OFF.replace(top_k=2),
    "top-p 0.8": OFF.replace(top_p=0.8),
    "min-p 0.1": OFF.replace(min_p=0.1),
}


def distance(drafter: Callable[[], Drafter], params: SamplingParams, samples: int, verify: str) -> float:
    counts = sample_outcomes(TARGET, drafter, params, PROMPT, samples, verify=verify)
    return total_variation(counts, outcome_law(TARGET, params, PROMPT))


def check(drafter: str, temperature: float, truncation: str, verify: str, samples: int) -> None:
    params = TRUNCATIONS[truncation].replace(temperature=temperature)
    assert distance(DRAFTERS[drafter], params, samples, verify) <= total_variation_bound(27, samples)


CELLS = [
    cell
    for cell in product(DRAFTERS, [0.3, 1.0], TRUNCATIONS, ["token", "block"])
    if cell[0] not in ("model at its own temperature", "chain with medusa") or cell[2] == "plain"
]


@pytest.mark.soak
@pytest.mark.parametrize(("drafter", "temperature", "truncation", "verify"), CELLS)
def test_output_law(drafter: str, temperature: float, truncation: str, verify: str) -> None:
    check(drafter, temperature, truncation, verify, 50_000)


REDUCED = [
    ("model", 1.0, "plain", "block"),
    ("model", 0.3, "top-p 0.8", "block"),
    ("model", 1.0, "top-k 2", "token"),
    ("model", 1.0, "min-p 0.1", "block"),
    ("model at its own temperature", 1.0, "plain", "block"),
    ("lookup", 1.0, "plain", "block"),
    ("lookup", 0.3, "top-k 3", "token"),
    ("suffix", 1.0, "plain", "block"),
    ("suffix", 0.3, "top-k 3", "token"),
    ("medusa", 1.0, "plain", "block"),
    ("medusa on a reduced vocabulary", 0.3, "top-p 0.8", "token"),
    ("sequential heads", 1.0, "plain", "block"),
    ("sequential heads", 0.3, "min-p 0.1", "token"),
    ("sequential heads on a reduced vocabulary", 1.0, "top-p 0.8", "block"),
    ("chain with medusa", 1.0, "plain", "block"),
    ("chain", 1.0, "top-p 0.8", "block"),
    ("chain", 0.3, "plain", "token"),
]


@pytest.mark.parametrize(("drafter", "temperature", "truncation", "verify"), REDUCED)
def test_output_law_reduced(drafter: str, temperature: float, truncation: str, verify: str) -> None:
    check(drafter, temperature, truncation, verify, 4_000)


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_rounds_draft_three_tokens_and_both_accept_and_reject(drafter: str) -> None:
    """So that the cells above test what they are for."""
    accepted: Counter[int] = Counter()
    for seed in range(300):
        request = GenerationRequest(prompt=PROMPT, params=OFF.replace(temperature=1.0, seed=seed), max_tokens=5)
        generation = generate(TARGET, request, DRAFTERS[drafter]())
        for _ in range(2):  # the prompt pass, then a round
            step(TARGET, [generation])
        if generation.stats.drafted == 3:
            accepted[generation.stats.accepted] += 1
        generation.close()
    assert sum(accepted.values()) > 150
    assert min(accepted[0], accepted[1] + accepted[2], accepted[3]) > 5


def test_two_generations_in_one_decode_keep_their_laws() -> None:
    """Different prompts, settings and drafters, each with its own seed, in the same target decode."""
    samples = 3_000
    settings = [(PROMPT, OFF.replace(temperature=1.0), "model"), ((2, 2, 0), TRUNCATIONS["top-k 2"], "chain")]
    counts: list[Counter[tuple[int, ...]]] = [Counter(), Counter()]
    for seed in range(samples):
        pair = [
            generate(
                TARGET, GenerationRequest(prompt=p, params=s.replace(seed=2 * seed + i), max_tokens=5), DRAFTERS[d]()
            )
            for i, (p, s, d) in enumerate(settings)
        ]
        while any(g.finish_reason is None for g in pair):
            step(TARGET, pair)
        for generation, count in zip(pair, counts, strict=True):
            count[tuple(generation.completion[1:4])] += 1
            generation.close()
    for (prompt, params, _), count in zip(settings, counts, strict=True):
        assert total_variation(count, outcome_law(TARGET, params, prompt)) <= total_variation_bound(27, samples)


# ---- negative controls: the bound is not too wide to notice ------------------------------------------------


def accepts_all(
    drafted: Sequence[int], _proposals: Sequence[Distribution], targets: Sequence[Distribution], rng: Uniforms
) -> Verdict:
    return Verdict((*drafted, targets[len(drafted)].sample(rng)), len(drafted))


def corrects_from_p(
    drafted: Sequence[int], proposals: Sequence[Distribution], targets: Sequence[Distribution], rng: Uniforms
) -> Verdict:
    verdict = verify_token(drafted, proposals, targets, rng)
    if verdict.accepted == len(drafted):
        return verdict
    return Verdict((*verdict.tokens[:-1], targets[verdict.accepted].sample(rng)), verdict.accepted)


@pytest.mark.parametrize(("biased", "drafter"), product([accepts_all, corrects_from_p], ["model", "lookup", "suffix"]))
def test_a_biased_verifier_exceeds_the_bound(biased, drafter: str, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setitem(VERIFIERS, "biased", biased)
    samples = 4_000
    found = distance(DRAFTERS[drafter], OFF.replace(temperature=1.0), samples, "biased")
    assert found > total_variation_bound(27, samples)


def test_the_bound_holds_for_plain_sampling_and_not_for_another_law() -> None:
    law = outcome_law(TARGET, OFF, PROMPT)
    outcomes, weights = list(law), np.array(list(law.values()))
    rng = np.random.default_rng(5)
    drawn = Counter(outcomes[i] for i in rng.choice(len(outcomes), size=4_000, p=weights / weights.sum()))
    assert total_variation(drawn, law) <= total_variation_bound(27, 4_000)
    assert total_variation(drawn, outcome_law(DRAFT, OFF, PROMPT)) > total_variation_bound(27, 4_000)
    assert total_variation_bound(27, 50_000) == pytest.approx(0.0232, abs=1e-4)
