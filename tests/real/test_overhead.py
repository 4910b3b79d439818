"""Our own share of a round: wall time outside llama_decode, of target and draft together, with rounds planned."""

from __future__ import annotations

from pathlib import Path

import pytest

import edgespec
from edgespec.api import LLM
from edgespec.stats import RoundEvent
from edgespec.workloads import prompts

pytestmark = [pytest.mark.real, pytest.mark.soak]

SAMPLING: dict[str, dict[str, float | int | str]] = {
    "greedy": {"temperature": 0.0, "verify": "block"},
    "default": {"seed": 1, "verify": "block"},
}
_TOKENS = 128


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGESPEC_HOME", str(tmp_path))
    return tmp_path


def _shares(llm: LLM, sampling: str) -> tuple[float, float]:
    """Share of the rounds' wall time outside llama.cpp's decodes, and tokens for each round, over three prompts."""
    contexts = [c for c in (llm.target, llm.draft) if c is not None]
    inside = total = 0.0
    rounds = produced = 0
    for prompt in prompts("code")[:3]:
        before = None
        with llm.stream(prompt.messages, max_tokens=_TOKENS, **SAMPLING[sampling]) as stream:
            for event in stream.events():
                now = sum(c.decode_seconds for c in contexts)
                if isinstance(event, RoundEvent):
                    assert before is not None
                    inside += now - before
                    total += (event.draft_ms + event.verify_ms + event.other_ms) / 1000
                    rounds, produced = rounds + 1, produced + event.produced
                if isinstance(event, RoundEvent) or before is None:
                    before = now
    return 1 - inside / total, produced / rounds


@pytest.mark.parametrize("sampling", list(SAMPLING))
@pytest.mark.parametrize("drafter", ["none", "auto"])
def test_share_on_the_1_5b(qwen_q4_target: Path, qwen_q4_draft: Path, drafter: str, sampling: str, record) -> None:
    draft = "none" if drafter == "none" else qwen_q4_draft
    with edgespec.load(qwen_q4_target, draft=draft, drafter=drafter, ctx_size=1024) as llm:
        share, tau = _shares(llm, sampling)
    record(drafter=drafter, sampling=sampling, share=share, tau=tau)
    assert share <= 0.02
    assert (tau > 1.2) == (drafter == "auto")


@pytest.mark.parametrize("sampling", list(SAMPLING))
@pytest.mark.parametrize("drafter", ["none", "auto"])
def test_share_on_the_135m(starter: Path, drafter: str, sampling: str, record) -> None:
    with edgespec.load(starter, draft="none", drafter=drafter, ctx_size=1024) as llm:
        share, tau = _shares(llm, sampling)
    record(drafter=drafter, sampling=sampling, share=share, tau=tau)
    assert share <= 0.06
