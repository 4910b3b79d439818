"""On rows of real rounds: block verification is expected to accept at least what token rejection does.

Expected over what may be drafted after each prefix (tests/exactness/test_block_prefix.py); given one whole
draft it can be lower, which is recorded beside it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from block_law import at_least_given_draft, by_block, by_token
from edgespec import generation
from edgespec.drafters import ModelDrafter
from edgespec.generation import Generation, GenerationRequest
from edgespec.llama import Context, LoadSettings, Model
from edgespec.sampling import SamplingParams
from edgespec.workloads import prompts

pytestmark = pytest.mark.real


def _rounds(target: Context, draft: Context, temperature: float, wanted: int, monkeypatch) -> list:
    """(p rows, q rows, drafted) of `wanted` rounds of three drafted tokens."""
    seen = []
    real = generation.VERIFIERS["block"]

    def spy(drafted, proposals, targets, rng):
        if len(drafted) == 3:
            seen.append(([targets[i] for i in range(4)], list(proposals), drafted))
        return real(drafted, proposals, targets, rng)

    monkeypatch.setitem(generation.VERIFIERS, "block", spy)
    for seed, code in enumerate(p.text for p in prompts("code")):
        text = f"<|im_start|>user\n{code}<|im_end|>\n<|im_start|>assistant\n"
        request = GenerationRequest(
            prompt=tuple(target.vocab.tokenize(text, special=True)),
            params=SamplingParams(temperature=temperature, seed=seed),
            max_tokens=120,
        )
        for _ in Generation(target, request, ModelDrafter(draft)):
            if len(seen) >= wanted:
                return seen
    return seen


@pytest.mark.parametrize(
    ("temperature", "wanted"),
    [
        (0.7, 12),
        (1.0, 12),
        pytest.param(0.7, 100, marks=pytest.mark.soak),
        pytest.param(1.0, 100, marks=pytest.mark.soak),
    ],
)
def test_block_accepts_at_least_token_in_every_round(
    qwen_q4_target: Path, qwen_q4_draft: Path, temperature: float, wanted: int, record, monkeypatch
) -> None:
    settings = LoadSettings(n_ctx=1024)
    with (
        Model(qwen_q4_target, settings) as target_model,
        Model(qwen_q4_draft, settings) as draft_model,
        Context(target_model) as target,
        Context(draft_model) as draft,
    ):
        rounds = _rounds(target, draft, temperature, wanted, monkeypatch)
    assert len(rounds) >= wanted
    token = [float(by_token(*r)) for r in rounds]
    block = [float(by_block(*r)) for r in rounds]
    given = [float(sum(at_least_given_draft(*r))) for r in rounds]
    record(
        temperature=temperature,
        rounds=len(rounds),
        token=float(np.mean(token)),
        block=float(np.mean(block)),
        block_higher=sum(b > t + 1e-9 for b, t in zip(block, token, strict=True)),
        block_given_whole_draft=float(np.mean(given)),
        lower_given_whole_draft=sum(g < t - 1e-9 for g, t in zip(given, token, strict=True)),
    )
    assert all(b >= t - 1e-9 for b, t in zip(block, token, strict=True))
