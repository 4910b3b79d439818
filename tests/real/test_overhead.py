"""Our own share of a round: wall time outside llama_decode, of target and draft together."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from edgespec.drafters import ChainDrafter, LookupDrafter, ModelDrafter
from edgespec.drafting import Drafter
from edgespec.generation import Generation, GenerationRequest
from edgespec.llama import Context, LoadSettings, Model
from edgespec.sampling import SamplingParams
from edgespec.stats import RoundEvent
from edgespec.workloads import prompts

pytestmark = pytest.mark.real

SAMPLING = {"greedy": SamplingParams(temperature=0.0), "default": SamplingParams(seed=1)}


def _share(contexts: list[Context], drafter: Drafter | None, params: SamplingParams, tokens: int) -> float:
    """Share of the rounds' wall time that is spent outside llama.cpp's decodes."""
    target = contexts[0]
    text = f"<|im_start|>user\n{prompts('code')[0].text}<|im_end|>\n<|im_start|>assistant\n"
    request = GenerationRequest(
        prompt=tuple(target.vocab.tokenize(text, special=True)),
        params=params,
        max_tokens=tokens,
        draft_max=3 if drafter else 0,
    )
    generation = Generation(target, request, drafter)
    inside = total = 0.0
    before = None
    for event in generation:
        now = sum(c.decode_seconds for c in contexts)
        if isinstance(event, RoundEvent):
            inside += now - (before if before is not None else now)
            total += (event.draft_ms + event.verify_ms + event.other_ms) / 1000
        if isinstance(event, RoundEvent) or before is None:
            before = now
    return 1 - inside / total


@pytest.mark.soak
@pytest.mark.parametrize("sampling", list(SAMPLING))
@pytest.mark.parametrize("mode", ["plain", "lookup", "model"])
def test_share_on_the_1_5b(qwen_q4_target: Path, qwen_q4_draft: Path, mode: str, sampling: str, record) -> None:
    _check_share([qwen_q4_target, qwen_q4_draft], mode, sampling, 0.03, record)


@pytest.mark.soak
@pytest.mark.parametrize("sampling", list(SAMPLING))
@pytest.mark.parametrize("mode", ["plain", "lookup", "model"])
def test_share_on_the_135m(starter: Path, mode: str, sampling: str, record) -> None:
    _check_share([starter, starter], mode, sampling, 0.08, record)


def _check_share(paths: list[Path], mode: str, sampling: str, bar: float, record) -> None:
    with ExitStack() as stack:
        contexts = []
        for path in paths if mode == "model" else paths[:1]:
            model = stack.enter_context(Model(path, LoadSettings(n_ctx=1024)))
            contexts.append(stack.enter_context(Context(model)))
        drafter: Drafter | None = None
        if mode == "lookup":
            drafter = LookupDrafter()
        elif mode == "model":
            drafter = ChainDrafter([LookupDrafter(), ModelDrafter(contexts[1])])
        share = _share(contexts, drafter, SAMPLING[sampling], 100)
    record(mode=mode, sampling=sampling, share=share)
    assert share <= bar
