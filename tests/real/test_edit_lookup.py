"""Prompt lookup where text repeats: rewriting a source file with a small change."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgespec.drafters import LookupDrafter
from edgespec.forks import first_difference
from edgespec.generation import Generation, GenerationRequest
from edgespec.llama import Context, LoadSettings, Model
from edgespec.sampling import SamplingParams
from edgespec.workloads import edit_tasks

pytestmark = pytest.mark.real

DRAFT_MAX = 7


def _run(context: Context, prompt: tuple[int, ...], max_tokens: int, k: int) -> Generation:
    request = GenerationRequest(
        prompt=prompt, params=SamplingParams(temperature=0.0), max_tokens=max_tokens, draft_max=k
    )
    generation = Generation(context, request, LookupDrafter() if k else None)
    list(generation)
    return generation


def _speedups(path: Path, tasks: int, max_tokens: int) -> tuple[list[float], float]:
    """Per task the paired ratio of decode speed over A B B A, and tau over all tasks."""
    ratios, rounds, produced = [], 0, 0
    with Model(path, LoadSettings(n_ctx=4096, buffers="repack")) as model, Context(model) as context:
        for task in edit_tasks()[:tasks]:
            text = f"<|im_start|>user\n{task.prompt}<|im_end|>\n<|im_start|>assistant\n"
            prompt = tuple(context.vocab.tokenize(text, special=True))
            _run(context, prompt, 2, 0)  # reads the prompt once; the timed runs find it in the cache
            runs = [_run(context, prompt, max_tokens, k) for k in (0, DRAFT_MAX, DRAFT_MAX, 0)]
            plain, fast = (runs[0], runs[3]), (runs[1], runs[2])
            speed = [sum(g.stats.tokens_per_s or 0 for g in pair) for pair in (plain, fast)]
            ratios.append(speed[1] / speed[0])
            rounds += sum(g.stats.rounds for g in fast)
            produced += sum(g.stats.produced for g in fast)
    return ratios, produced / rounds


@pytest.mark.soak
def test_edit_tasks_tau_and_speed(qwen_q4_target: Path, record) -> None:
    ratios, tau = _speedups(qwen_q4_target, 10, 160)
    rng = np.random.default_rng(0)
    medians = [float(np.median(rng.choice(ratios, len(ratios)))) for _ in range(2000)]
    record(
        tasks=len(ratios),
        k=DRAFT_MAX,
        tau=tau,
        speedup=float(np.median(ratios)),
        interval=[round(float(x), 3) for x in np.percentile(medians, [2.5, 97.5])],
        per_task=[round(r, 2) for r in ratios],
    )
    assert tau >= 3
    assert float(np.median(ratios)) >= 1.5


def test_lookup_follows_a_text_that_repeats(starter: Path, record) -> None:
    """Counts only: a test that passes by the clock fails by it."""
    source = edit_tasks()[0].source
    with Model(starter, LoadSettings(n_ctx=4096)) as model, Context(model) as context:
        prompt = tuple(context.vocab.tokenize(source + "\n" + source[: len(source) // 3], special=False))
        plain = _run(context, prompt, 60, 0)
        fast = _run(context, prompt, 60, 3)
    record(tau=fast.stats.tau, acceptance=fast.stats.acceptance)
    assert fast.stats.tau is not None
    assert fast.stats.tau >= 2.5
    assert first_difference(plain.completion, fast.completion) is None
