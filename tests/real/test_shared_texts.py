"""Real models answering several requests in shared rounds: greedy texts are those of requests that run alone.

llama.cpp's logits differ slightly with what else is in a decode, so near ties may fall either way. Where two texts
part, the two tokens must be a near tie of the target alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from edgespec.api import LLM
from edgespec.engine.local import LocalEngine
from edgespec.engine.protocol import Finished, GenerateSpec, LoadSpec
from edgespec.forks import first_difference
from edgespec.loading import load_for_engine
from edgespec.messages import Message
from edgespec.scoring import ScoreRequest
from edgespec.workloads import prompts

pytestmark = pytest.mark.real

NEAR_TIE = 0.3  # logits; the widths of one request's own decodes differ by up to 0.1 at forks


def compare(model: Path, draft: str, workloads: tuple[str, ...], max_tokens: int, record) -> None:  # type: ignore[no-untyped-def]
    chosen = [prompt for name in workloads for prompt in prompts(name)[:3]]
    seen: list[LLM] = []

    def loader(spec: LoadSpec, progress) -> LLM:  # type: ignore[no-untyped-def]
        seen.append(load_for_engine(spec, progress))
        return seen[-1]

    engine = LocalEngine(loader)
    try:
        engine.load(LoadSpec(model=str(model), draft=draft, ctx_size=8192, at_once=4, parallel=5))
        specs = [
            GenerateSpec(
                messages=tuple(Message(m["role"], m["content"]) for m in prompt.messages),
                options={"temperature": 0.0, "max_tokens": max_tokens},
            )
            for prompt in chosen
        ]
        alone = [engine.generate(spec).result(Finished).reply for spec in specs]
        together = [asked.result(Finished).reply for asked in [engine.generate(spec) for spec in specs]]
        gaps = []
        for spec, one, other in zip(specs, alone, together, strict=True):
            place = first_difference(one.tokens, other.tokens)
            if place is None:
                assert one.tokens == other.tokens
                continue
            gaps.append(gap(seen[0], spec, one.tokens, other.tokens, place))
    finally:
        engine.close()
    assert sum(reply.stats.shared_rounds for reply in together) > len(chosen) * max_tokens // 8
    record(requests=len(chosen), identical=len(chosen) - len(gaps), gaps=[round(g, 4) for g in gaps])
    assert all(abs(g) <= NEAR_TIE for g in gaps)


def gap(llm: LLM, spec: GenerateSpec, one: tuple[int, ...], other: tuple[int, ...], place: int) -> float:
    """Logit of the one token above the other, after what both texts begin with, by the target alone."""
    tokens = (*llm.encode(spec.input), *one[:place])
    sequence = llm.target.sequence(tokens)
    with llm.target.turn:
        row = llm.target.score([ScoreRequest(sequence, tokens)])[0][0]
        found = float(row[one[place]] - row[other[place]])
    sequence.close()
    return found


def test_the_starter_answers_six_at_once_as_one_by_one(starter: Path, record) -> None:  # type: ignore[no-untyped-def]
    compare(starter, "none", ("chat", "code"), 16, record)


@pytest.mark.soak
def test_the_pair_answers_twelve_at_once_as_one_by_one(qwen_q4_target: Path, qwen_q4_draft: Path, record) -> None:  # type: ignore[no-untyped-def]
    compare(qwen_q4_target, str(qwen_q4_draft), ("chat", "code", "edit", "summarise"), 64, record)
