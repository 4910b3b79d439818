"""On rows of real rounds: block verification is expected to accept at least what token rejection does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgespec import generation
from edgespec.drafters import ModelDrafter
from edgespec.generation import Generation, GenerationRequest
from edgespec.llama import Context, LoadSettings, Model
from edgespec.sampling import SamplingParams
from workloads import prompts

pytestmark = pytest.mark.real


def expected_by_token(p: list, q: list, drafted: tuple[int, ...]) -> float:
    """E[accepted] of token rejection on this path: sum over i of prod_{j<=i} min(1, p_j / q_j)."""
    total, alive = 0.0, 1.0
    for i, x in enumerate(drafted):
        alive *= min(1.0, p[i].prob(x) / q[i].prob(x))
        total += alive
    return total


def expected_by_block(p: list, q: list, drafted: tuple[int, ...]) -> float:
    """E[accepted] of block verification on this path: tau is the largest i with u_i <= h_i."""
    k = len(drafted)
    weight, heads = 1.0, []
    for i, x in enumerate(drafted):
        weight = min(1.0, weight * p[i].prob(x) / q[i].prob(x))
        if i == k - 1:
            heads.append(weight)
        else:
            rest = p[i + 1].excess(q[i + 1], weight)
            heads.append(1.0 if rest + 1 - weight == 0 else rest / (rest + 1 - weight))
    return float(sum(1 - np.prod([1 - h for h in heads[i:]]) for i in range(k)))


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
    token = [expected_by_token(*r) for r in rounds]
    block = [expected_by_block(*r) for r in rounds]
    record(
        temperature=temperature,
        rounds=len(rounds),
        token=float(np.mean(token)),
        block=float(np.mean(block)),
        rounds_where_block_is_higher=sum(bool(b > t + 1e-9) for b, t in zip(block, token, strict=True)),
    )
    assert all(b >= t - 1e-9 for b, t in zip(block, token, strict=True))
