"""The likeliest tokens of each place are those of the target's own row, also where tokens were drafted."""

from __future__ import annotations

import numpy as np
import pytest

from edgespec.drafters.lookup import LookupDrafter
from edgespec.errors import BadRequestError
from edgespec.generation import GenerationRequest, generate
from edgespec.sampling import SamplingParams
from edgespec.stats import TokenEvent
from edgespec.testing import TableModel


@pytest.mark.parametrize("draft_max", [0, 4])
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_top_tokens_are_the_targets(draft_max: int, temperature: float) -> None:
    target = TableModel(6, seed=3, order=1)
    request = GenerationRequest(
        prompt=(0, 1, 0, 1),
        params=SamplingParams(temperature=temperature, seed=1),
        max_tokens=40,
        draft_max=draft_max,
        top_logprobs=3,
    )
    generation = generate(target, request, LookupDrafter())
    events = [event for event in generation if isinstance(event, TokenEvent)]
    assert (generation.stats.accepted > 0) == (draft_max > 0)
    for place, event in enumerate(events, len(request.prompt)):
        row = target.logits(generation.tokens[:place]).astype(np.float64)
        logprobs = row - np.log(np.exp(row).sum())
        assert [top.id for top in event.top] == np.argsort(-logprobs, kind="stable")[:3].tolist()
        assert [top.logprob for top in event.top] == pytest.approx(np.sort(logprobs)[::-1][:3], abs=1e-4)
        assert event.logprob == pytest.approx(logprobs[event.id], abs=1e-4)


def test_none_are_named_unless_asked_for_and_twenty_are_the_most() -> None:
    target = TableModel(6, seed=3, order=1)
    for event in generate(target, GenerationRequest(prompt=(0,), max_tokens=5)):
        assert not isinstance(event, TokenEvent) or event.top == ()
    for wrong in (-1, 21, True, 1.5, "3"):
        with pytest.raises(BadRequestError, match="top_logprobs"):
            GenerationRequest(prompt=(0,), top_logprobs=wrong)  # type: ignore[arg-type]
