"""The Qwen2.5-Coder pair, greedy: acceptance on code, and text equal to plain decoding or explained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgespec.drafters import ModelDrafter
from edgespec.forks import explain_fork, rounds_of
from edgespec.generation import Generation, GenerationRequest
from edgespec.llama import Context, LoadSettings, Model
from edgespec.sampling import SamplingParams
from edgespec.workloads import prompts

pytestmark = pytest.mark.real

GREEDY = SamplingParams(temperature=0.0)
HUMANEVAL = Path(__file__).parents[3] / "shared" / "data" / "humaneval.jsonl"


def _ask(context: Context, code: str) -> tuple[int, ...]:
    text = f"<|im_start|>user\nComplete this Python function:\n{code}<|im_end|>\n<|im_start|>assistant\n"
    return tuple(context.vocab.tokenize(text, special=True))


def _compare(target_path: Path, draft_path: Path, codes: list[str], max_tokens: int, record) -> float:
    """Plain and speculative greedy text for every prompt; returns tau. Every fork must be explained."""
    # One sequence: cells of others, though masked, would change the order of sums, which no fresh context repeats.
    settings = LoadSettings(n_ctx=2048, sequences=1)
    steps = produced = drafted = accepted = identical = 0
    forks = []
    with (
        Model(target_path, settings) as target_model,
        Model(draft_path, settings) as draft_model,
        Context(target_model) as target,
        Context(draft_model) as draft,
    ):
        for code in codes:
            request = {"prompt": _ask(target, code), "params": GREEDY, "max_tokens": max_tokens}
            reader = target.sequence()  # both runs find the prompt in the cache, read anew from its start
            reader.sync([])
            reader.sync(request["prompt"][:-1])
            reader.close()
            plain = Generation(target, GenerationRequest(**request, draft_max=0))
            list(plain)
            fast = Generation(target, GenerationRequest(**request, draft_max=3), ModelDrafter(draft))
            rounds = rounds_of(fast)
            steps += fast.stats.rounds
            produced += fast.stats.produced
            drafted += fast.stats.drafted
            accepted += fast.stats.accepted
            fork = explain_fork(target_model, request["prompt"], plain.completion, fast.completion, rounds)
            if fork is None:
                assert plain.completion == fast.completion
                identical += 1
            else:
                forks.append(fork)
    tau = produced / steps
    record(
        prompts=len(codes),
        max_tokens=max_tokens,
        tau=tau,
        acceptance=accepted / drafted,
        identical=identical,
        explained=sum(f.explained for f in forks),
        forks=[(f.position, round(f.gap_at_one, 4), round(f.gap_at_width, 4), f.explained) for f in forks],
    )
    assert all(f.explained for f in forks)
    return tau


@pytest.mark.soak
def test_humaneval_tau_and_identity(qwen_target: Path, qwen_draft: Path, record) -> None:
    if not HUMANEVAL.exists():
        pytest.skip("the HumanEval prompts are not here")
    codes = [json.loads(line)["prompt"] for line in HUMANEVAL.read_text("utf-8").splitlines()[:10]]
    assert _compare(qwen_target, qwen_draft, codes, 128, record) >= 2.5


def test_own_code_prompts_tau_and_identity(qwen_target: Path, qwen_draft: Path, record) -> None:
    assert _compare(qwen_target, qwen_draft, [p.text for p in prompts("code")[:2]], 40, record) >= 2.0
