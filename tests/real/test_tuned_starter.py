"""`edgespec tune` on the starter model: its forms are made and judged by real counts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import edgespec
from edgespec.costs import CostTable
from edgespec.llama import requantize
from edgespec.tuned import AS_IS
from edgespec.tuning.agreement import agreement
from edgespec.tuning.judges import target_reference
from edgespec.tuning.loading import Models, Settings
from edgespec.tuning.process import tune

pytestmark = pytest.mark.real

Record = Callable[..., None]
QUICK = Settings(threads=2, buffers="auto", flash_attn="off")  # nothing is measured before


def test_the_starter_as_a_target(
    starter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: Record
) -> None:
    """Perplexities are real; the clock says that Q8_0 is the fastest form."""
    monkeypatch.setenv("EDGESPEC_HOME", str(tmp_path))

    def measure(llm: edgespec.LLM) -> CostTable:
        return CostTable((1,), (5.0 if llm.target.model.header.quant == "Q8_0" else 10.0,))

    progress = Mock(spec=("step", "part", "note"))
    measured, kept = tune(
        Models(starter, None, QUICK), keep_target=False, decide=lambda _: True, progress=progress, measure=measure
    )
    trials = {trial.type: trial for trial in measured.target.trials}
    assert list(trials) == [AS_IS, "q4_0", "q4_0+q8_0", "q8_0"]
    found = {name: trial.perplexity for name, trial in trials.items() if trial.perplexity is not None}
    # So small a model suffers from four bits, and hardly from eight.
    assert abs(found["q8_0"].change) < 0.03 < found["q4_0+q8_0"].change < found["q4_0"].change
    assert all(0 < p.error < 0.1 for name, p in found.items() if name != AS_IS)
    assert trials["q4_0"].nbytes < trials["q4_0+q8_0"].nbytes < trials[AS_IS].nbytes < trials["q8_0"].nbytes
    assert measured.recommended.type == kept.target.type == "q8_0"
    assert list(tmp_path.rglob("*.gguf")) == [kept.target.path]
    progress.note.assert_not_called()
    with edgespec.load(starter, drafter="none", ctx_size=256, threads=2, buffers="auto", flash_attn="off") as llm:
        assert llm.target.model.path == kept.target.path
        assert llm.complete("The capital of France is", max_tokens=8, temperature=0).text.strip().startswith("Paris")
    record(**{f"perplexity, {name}": p.value for name, p in found.items()})


@pytest.mark.soak
def test_agreement_of_the_starter_with_its_copies(starter: Path, tmp_path: Path, record: Record) -> None:
    alone: dict[str, Any] = {"drafter": "none", "ctx_size": 2048, "parallel": 1, "tuned": False, "threads": 2}
    alone |= {"buffers": "auto", "flash_attn": "off"}
    with edgespec.load(starter, **alone) as llm:
        known = target_reference(llm)
        own = agreement(llm.target, known)
    assert own.positions == known.positions > 700 + 64
    assert own.overlap == pytest.approx(1, abs=2e-2)  # decodes of one width; unlikely tokens are left out
    assert own.top1 == 1
    found = {"itself": own}
    for name in ("q8_0", "q4_0"):
        copy = requantize(starter, tmp_path / f"{name}.gguf", name)
        with edgespec.load(copy, **alone) as llm:
            found[name] = agreement(llm.target, known)
    assert found["q4_0"].overlap < found["q8_0"].overlap < own.overlap
    assert found["q4_0"].top1 < found["q8_0"].top1 < 1
    record(**{f"{name}: {what}": getattr(found[name], what) for name in found for what in ("overlap", "top1")})
