"""Sequential heads: what each sees, what q is, likely tokens out of a large vocabulary, and mutants that are caught."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from edgespec.drafters import MedusaDrafter
from edgespec.drafting import Draft, Drafter, LatestState
from edgespec.errors import BadRequestError, ModelLoadError
from edgespec.generation import GenerationRequest, generate
from edgespec.heads.medusa import Facts
from edgespec.heads.quantized import Quantized
from edgespec.heads.sequential import SequentialHeads
from edgespec.sampling import Sampler, SamplingParams
from edgespec.testing import TableModel, outcome_law, sample_outcomes, total_variation, total_variation_bound
from table_heads import TableStates, random_sequential

OFF = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
PROMPT = (0, 1, 2, 1, 2, 0, 1)
TARGET = TableModel(seed=1)
HEADS = random_sequential(gain=2, seed=79)  # what was drafted changes much
SAMPLES = 2000


def expected(heads: SequentialHeads, state: np.ndarray, tokens: Sequence[int], drafted: Sequence[int]) -> np.ndarray:  # type: ignore[type-arg]
    """Logits of the head after `drafted`, written out in float64."""
    rows = heads.rows.whole().astype(np.float64)
    seen = rows @ heads.basis
    seen /= np.sqrt(np.mean(seen**2))
    text, s = [*tokens, *drafted], (state - heads.centre) / heads.unit.astype(np.float64)
    for k, step in enumerate(heads.steps[: len(drafted) + 1]):
        end = len(tokens) + k
        around = [text[i] if i >= 0 else None for i in range(end - heads.window, end)]
        known = {int(token): row for token, row in zip(heads.ids, seen, strict=True)}
        given = np.concatenate([s, *(known.get(t, np.zeros(seen.shape[1])) for t in around)])  # type: ignore[arg-type]
        z = step.mix @ given + step.mix_bias
        h = step.inner @ z + step.inner_bias
        s = z + step.outer @ (h / (1 + np.exp(-h)))
    return rows @ s + heads.bias  # type: ignore[no-any-return]


@pytest.mark.parametrize("window", [1, 2, 5])
def test_a_head_sees_the_latest_tokens_and_what_was_drafted_before_it(window: int) -> None:
    heads = random_sequential(vocab_size=5, ids=(0, 1, 3), window=window)
    state = TARGET.state(PROMPT)
    for tokens in ((0, 1, 4, 3), (3,)):  # one is outside the draft vocabulary; a text shorter than what can be seen
        for drafted in ((0, 1), (1, 3), (3, 3)):
            guesses = heads.guesses(state, tokens, 3)
            found = [next(guesses), *(guesses.send(token) for token in drafted)]
            for i, (ids, logits) in enumerate(found):
                assert ids.tolist() == [0, 1, 3]
                assert np.allclose(logits, expected(heads, state, tokens, drafted[:i]), atol=1e-4)
            with pytest.raises(StopIteration):
                guesses.send(0)
    assert heads.step_ms > 0


def test_q_of_every_row_is_that_of_the_tokens_drawn_before_it() -> None:
    params = OFF.replace(temperature=1.5, top_k=2, repeat_penalty=1.3)
    drafts = set()
    for seed in range(20):
        drafter = MedusaDrafter(HEADS, TableStates(TARGET))
        draft = drafter.draft(PROMPT, 3, Sampler(params, 3), np.random.default_rng(seed))
        walk = Sampler(params, 3).walk(PROMPT)
        for i, q in enumerate(draft.proposals):
            logits = expected(HEADS, TARGET.state(PROMPT[:-1]), PROMPT, draft.tokens[:i]).astype(np.float32)
            wanted = walk.distribution(logits)
            assert np.array_equal(q.ids, wanted.ids)
            assert np.allclose(q.probs, wanted.probs, atol=1e-4)
            walk.advance(draft.tokens[i])
        drafts.add(draft.tokens)
    assert len(drafts) > 2


class OfAWrongPrefix(MedusaDrafter):
    """Draws each token from the right distribution, and reports the one after another token in its place."""

    def draft(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Draft:
        draft = super().draft(tokens, min(k, 2), sampler, rng)
        state = self.states.before(tokens)
        if len(draft.tokens) < 2 or state is None:
            return draft
        guesses = self._heads.guesses(state, tokens, 2)
        next(guesses)
        ids, logits = guesses.send((draft.tokens[0] + 1) % 3)
        row = np.full(3, -np.inf, np.float32)
        row[ids] = logits
        walk = sampler.walk(tokens)
        walk.advance(draft.tokens[0])
        return replace(draft, proposals=(draft.proposals[0], walk.distribution(row)))


def distance(make: Callable[[], Drafter]) -> float:
    counts = sample_outcomes(TARGET, make, OFF, PROMPT, SAMPLES)
    return total_variation(counts, outcome_law(TARGET, OFF, PROMPT))


def test_q_of_a_wrong_prefix_breaks_the_law_and_is_caught() -> None:

    assert distance(lambda: MedusaDrafter(HEADS, LatestState())) <= total_variation_bound(27, SAMPLES)
    assert distance(lambda: OfAWrongPrefix(HEADS, LatestState())) > total_variation_bound(27, SAMPLES)


def test_of_a_large_vocabulary_the_likeliest_tokens_are_guessed() -> None:
    """Rough logits choose 256 tokens, exact ones make q; all others have probability 0."""
    heads = random_sequential(vocab_size=5000, n_embd=160, seen=150, ids=range(7, 4000, 2), hidden=16)
    state = np.random.default_rng(1).standard_normal(160).astype(np.float32)
    ids, logits = next(heads.guesses(state, (8, 9), 3))
    exact = dict(zip(heads.ids.tolist(), expected(heads, state, (8, 9), ()).tolist(), strict=True))
    assert len(ids) == 256
    assert np.array_equal(ids, np.unique(ids))
    assert np.allclose(logits, [exact[token] for token in ids.tolist()], atol=1e-3)
    best = sorted(exact, key=exact.__getitem__)[-30:]
    assert set(best) <= set(ids.tolist())
    drafter = MedusaDrafter(heads, LatestState())
    drafter.states.put(1, state)
    for seed in range(3):
        draft = drafter.draft((8, 9), 3, Sampler(OFF, 5000), np.random.default_rng(seed))
        for q in draft.proposals:
            assert len(q.ids) == 256
            assert q.probs.sum() == pytest.approx(1)


def test_a_generation_with_them_is_the_plain_one() -> None:
    for seed in range(10):
        params = OFF.replace(temperature=0, seed=seed)
        texts = []
        for drafter in (None, MedusaDrafter(HEADS, LatestState())):
            target = TableModel(seed=seed)
            generation = generate(target, GenerationRequest(prompt=PROMPT, params=params, max_tokens=20), drafter)
            list(generation)
            texts.append(generation.completion)
        assert texts[0] == texts[1]


def test_eight_bits_are_near_and_stay_the_same() -> None:
    matrix = np.random.default_rng(0).standard_normal((20, 30)).astype(np.float32)
    matrix[3] = 0
    found = Quantized.of(matrix)
    assert np.abs(found.whole() - matrix).max() <= np.abs(matrix).max() / 250
    assert np.array_equal(Quantized.of(found.whole()).codes, found.codes)
    assert np.array_equal(found.part(np.array([4, 1])), found.whole()[[4, 1]])
    with pytest.raises(BadRequestError, match="not finite"):
        Quantized.of(np.full((1, 2), np.nan, np.float32))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ids": np.array([0, 0, 2])}, "ascending, each once"),
        ({"steps": ()}, "there are 0 heads"),
        ({"window": 0}, "a head sees 0 tokens"),
        ({"window": 1}, r"first matrix has shape \(6, 14\)"),
        ({"unit": np.zeros(6, np.float32)}, "not above 0"),
        ({"centre": np.ones(5, np.float32)}, "the centre has shape"),
        ({"bias": np.ones(5, np.float32)}, "the bias has shape"),
        ({"unit": np.ones(5, np.float32)}, "the unit has shape"),
        ({"basis": np.ones((6, 7), np.float32)}, "the basis has shape"),
        ({"rows": Quantized.of(np.ones((2, 6), np.float32))}, "the rows have shape"),
        ({"facts": Facts(3, 7)}, "the rows have shape"),
    ],
)
def test_parts_that_do_not_fit_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(BadRequestError, match=message):
        replace(HEADS, **change)  # type: ignore[arg-type]


def test_they_serve_one_model() -> None:
    heads = random_sequential(target="z")
    mine = {"vocab_size": 3, "n_embd": 6, "identities": ("y", "z"), "name": "tiny.gguf"}
    heads.check_target(**mine)  # type: ignore[arg-type]
    with pytest.raises(ModelLoadError, match="another file"):
        heads.check_target(**{**mine, "identities": ("x",)})  # type: ignore[arg-type]
