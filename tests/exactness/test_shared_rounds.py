"""Statistics of requests that share their decodes: each keeps its law, and they stay independent of each other.

Four at once, with drafters, settings and beginnings of their own; their planners share the width of each decode, so
that how much one drafts depends on what the others drew. `make soak` takes more samples.
"""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

from edgespec.costs import Costs, CostTable
from edgespec.drafters import Resources, planned
from edgespec.drafting import Drafter
from edgespec.generation import GenerationRequest, generate
from edgespec.rounds import Piece, step
from edgespec.sampling import SamplingParams
from edgespec.testing import TableModel, outcome_law, total_variation, total_variation_bound

OFF = SamplingParams(top_k=0, top_p=1.0, min_p=0.0, temperature=1.0)
TARGET = TableModel(seed=1, n_seq_max=4, max_width=10)  # too narrow for four whole drafts
DRAFT = TableModel(seed=2, n_seq_max=4)
CHEAP = CostTable((1, 2, 4, 8, 16), (10.0, 10.1, 10.2, 10.3, 10.4))  # drafting always seems worth a try
STEPS = CostTable((1, 16), (0.01, 0.02))
_PIECE = 3  # tokens of a prompt in one decode
SETTINGS = [
    ((0, 1, 2, 1, 2, 0, 1), OFF, ("model",)),
    ((2, 2, 0), OFF.replace(top_k=2), ("suffix", "lookup", "model")),
    ((1, 0, 1, 0, 1, 0), OFF.replace(temperature=0.6), ("suffix", "lookup")),
    ((0, 0), OFF.replace(top_p=0.8), ("model", "lookup")),
]


def drafter(names: tuple[str, ...]) -> Drafter:
    return planned(names, Resources(draft=DRAFT), Costs(CHEAP), draft_costs=Costs(STEPS))


def crowd(seed: int) -> tuple[list[tuple[int, ...]], int]:
    """Three tokens of each of the four, which begin one round apart, with prompts read in pieces beside the others; and
    the rounds in which several drafted.
    """
    waiting = [
        generate(TARGET, GenerationRequest(prompt=p, params=s.replace(seed=4 * seed + i), max_tokens=5), drafter(names))
        for i, (p, s, names) in enumerate(SETTINGS)
    ]
    made, came, together = list(waiting), [], 0
    while waiting or any(g.finish_reason is None for g in came):
        if waiting:
            came.append(waiting.pop(seed % len(waiting)))
        before = [g.stats.drafted for g in made]
        pieces = [Piece(g, _PIECE) for g in came if g.unread >= _PIECE and not g.completion_started]
        step(TARGET, [g for g in came if all(g is not p.generation for p in pieces)], pieces)
        together += sum(g.stats.drafted > b for g, b in zip(made, before, strict=True)) > 1
    for generation in made:
        generation.close()
    return [tuple(g.completion[1:4]) for g in made], together


def check(samples: int) -> None:
    counts: list[Counter[tuple[int, ...]]] = [Counter() for _ in SETTINGS]
    pairs: Counter[tuple[int, int]] = Counter()
    together = 0
    for seed in range(samples):
        outcomes, shared = crowd(seed)
        together += shared
        for outcome, count in zip(outcomes, counts, strict=True):
            count[outcome] += 1
        pairs[outcomes[0][0], outcomes[3][0]] += 1
    assert together > samples // 3  # width was shared
    for (prompt, params, _), count in zip(SETTINGS, counts, strict=True):
        assert total_variation(count, outcome_law(TARGET, params, prompt)) <= total_variation_bound(27, samples)
    first, last = (firsts(outcome_law(TARGET, SETTINGS[i][1], SETTINGS[i][0])) for i in (0, 3))
    independent = {(a, b): first.get(a, 0.0) * last.get(b, 0.0) for a, b in product(range(3), repeat=2)}
    assert total_variation(pairs, independent) <= total_variation_bound(9, samples)


def firsts(law: dict[tuple[int, ...], float]) -> dict[int, float]:
    found: Counter[int] = Counter()
    for outcome, p in law.items():
        found[outcome[0]] += p  # type: ignore[assignment]
    return dict(found)


def test_four_requests_in_shared_rounds_keep_their_laws() -> None:
    check(1_500)


@pytest.mark.soak
def test_four_requests_in_shared_rounds_keep_their_laws_in_full() -> None:
    check(40_000)


def test_rows_of_another_request_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: each request is given the rows of its neighbour in the decode."""
    score = TARGET.score
    monkeypatch.setattr(TARGET, "score", lambda requests: (rows := score(requests))[1:] + rows[:1])
    with pytest.raises((AssertionError, IndexError)):
        check(400)
