"""Decodes with more rows than asked for give the same rows, and leave nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from edgespec.distribution import Distribution
from edgespec.drafting import Draft
from edgespec.generation import Generation, GenerationRequest
from edgespec.llama import Context
from edgespec.sampling import Sampler, SamplingParams
from edgespec.scoring import ScoreRequest
from edgespec.stats import RoundEvent

Tiny = Callable[..., Path]
Open = Callable[..., Context]

PROMPT = [7, 8, 9, 10, 7, 8, 9, 10, 7, 8]


class Guesses:
    """Drafts the two ids that follow the last one."""

    name = "guesses"

    def draft(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Draft:
        ids = tuple(tokens[-1] + i for i in (1, 2))[:k]
        return Draft(ids, tuple(Distribution.one_hot(i) for i in ids), self.name)

    def observe(self, event: RoundEvent) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def padded(tiny: Tiny, open_context: Open) -> Context:
    """A context whose decodes of two and three rows run as four."""
    context = open_context(tiny("llama"), n_ctx=32)
    context.model.padding = {2: 4, 3: 4}
    return context


def test_padding_changes_no_row_and_leaves_no_cell(tiny: Tiny, open_context: Open, padded: Context) -> None:
    plain = open_context(tiny("llama"), n_ctx=32)
    for drafted in ((), (11,), (11, 12), (11, 12, 13), (11, 12, 13, 14)):
        pair = []
        for context in (plain, padded):
            sequence = context.sequence(PROMPT)
            context.sync(sequence, PROMPT[:-1])
            pair.append(context.score([ScoreRequest(sequence, PROMPT, drafted)])[0].copy())
            assert list(sequence.cached) == [*PROMPT, *drafted]
            assert context.save(sequence) != b""
            sequence.close()
        assert pair[0].shape == pair[1].shape == (len(drafted) + 1, plain.vocab.size)
        assert np.abs(pair[0] - pair[1]).max() < 1e-3


def test_the_cache_after_a_padded_decode_is_that_of_a_plain_one(
    tiny: Tiny, open_context: Open, padded: Context
) -> None:
    """Saved states have the same size: no cell of the padding is in them."""
    sizes = []
    for context in (open_context(tiny("llama"), n_ctx=32), padded):
        sequence = context.sequence(PROMPT)
        context.sync(sequence, PROMPT[:-1])
        context.score([ScoreRequest(sequence, PROMPT, (11,))])
        sizes.append(len(context.save(sequence)))
    assert sizes[0] == sizes[1]


def test_sequences_that_share_a_decode_are_padded_together(tiny: Tiny, open_context: Open, padded: Context) -> None:
    """Three rows of two sequences run as four; neither sees the other, nor the padding."""
    plain = open_context(tiny("llama"), n_ctx=64)
    found = []
    for context in (plain, padded):
        one, other = context.sequence(PROMPT), context.sequence(PROMPT[::-1])
        for sequence, text in ((one, PROMPT), (other, PROMPT[::-1])):
            context.sync(sequence, text[:-1])
        rows = context.score([ScoreRequest(one, PROMPT, (11,)), ScoreRequest(other, PROMPT[::-1], ())])
        found.append(np.concatenate(rows))
        assert list(other.cached) == PROMPT[::-1]
    assert np.abs(found[0] - found[1]).max() < 1e-3


def test_no_room_no_padding(padded: Context) -> None:
    """The last cells of the context go to tokens."""
    text = [3 + i % 50 for i in range(31)]
    sequence = padded.sequence(text)
    padded.sync(sequence, text[:-1])
    assert padded.score([ScoreRequest(sequence, text, (5,))])[0].shape[0] == 2
    assert len(sequence.cached) == 32


def test_padding_takes_no_cache_from_another_conversation(padded: Context) -> None:
    """A decode that fits without padding evicts nobody for it."""
    first, second = [3 + i for i in range(18)], [60 + i for i in range(12)]
    kept = padded.sequence(first)
    padded.sync(kept, first)
    sequence = padded.sequence(second)
    padded.sync(sequence, second[:-1])
    padded.score([ScoreRequest(sequence, second, (5,))])
    assert list(kept.cached) == first


def test_text_is_the_same_with_padding(tiny: Tiny, open_context: Open, padded: Context) -> None:
    texts = []
    for context in (open_context(tiny("llama"), n_ctx=32), padded):
        request = GenerationRequest(
            prompt=tuple(PROMPT), params=SamplingParams(temperature=0), max_tokens=20, draft_max=2
        )
        generation = Generation(context, request, Guesses())
        for _ in generation:
            pass
        texts.append(generation.completion)
        assert generation.stats.drafted > 0
    assert texts[0] == texts[1]
