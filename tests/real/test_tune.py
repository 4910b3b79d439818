"""`edgespec tune` on the starter model: every form is made, measured and judged; its figures are counts and ratios."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import edgespec
from edgespec.llama import requantize
from edgespec.tuning.agreement import agreement
from edgespec.tuning.judges import target_reference

pytestmark = pytest.mark.real

Record = Callable[..., None]
SETTINGS = ("--threads", "2", "--buffers", "auto", "--flash-attn", "off")  # nothing else is measured before


def test_the_starter_as_a_target(starter: Path, tmp_path: Path, record: Record) -> None:
    command = [sys.executable, "-m", "edgespec", "tune", str(starter), "--json", "-q", *SETTINGS]
    done = subprocess.run(
        command, env={**os.environ, "EDGESPEC_HOME": str(tmp_path)}, capture_output=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr.decode()
    found = json.loads(done.stdout)["target"]
    trials = {trial["type"]: trial for trial in found["trials"]}
    assert set(trials) >= {"as it is", "q4_0", "q4_0+q8_0", "q8_0"}
    assert found["used"] == "as it is"  # nobody was asked
    change = {name: trial["perplexity_change"] for name, trial in trials.items()}
    # So small a model suffers from four bits, and hardly from eight.
    assert abs(change["q8_0"]) < 0.03 < change["q4_0+q8_0"] < change["q4_0"]
    assert trials["q4_0"]["bytes"] < trials["q4_0+q8_0"]["bytes"] < trials["as it is"]["bytes"]
    assert found["recommended"] in ("as it is", "q8_0")
    assert not list(tmp_path.rglob("*.gguf"))
    record(
        spread=found["spread"],
        **{f"perplexity, {name}": trial["perplexity"] for name, trial in trials.items()},
        **{f"gain, {name}": trial["gain"] for name, trial in trials.items()},
    )


def test_agreement_of_the_starter_with_its_copies(starter: Path, tmp_path: Path, record: Record) -> None:
    with edgespec.load(starter, drafter="none", ctx_size=2048, parallel=1, tuned=False) as llm:
        known = target_reference(llm)
        own = agreement(llm.target, known)
    assert own.positions == known.positions > 700 + 64
    assert own.overlap == pytest.approx(1, abs=2e-2)  # decodes of one width; unlikely tokens are left out
    assert own.top1 == 1
    found = {"itself": own}
    for name in ("q8_0", "q4_0"):
        copy = requantize(starter, tmp_path / f"{name}.gguf", name)
        with edgespec.load(copy, drafter="none", ctx_size=2048, parallel=1, tuned=False) as llm:
            found[name] = agreement(llm.target, known)
    assert found["q4_0"].overlap < found["q8_0"].overlap < own.overlap
    assert found["q4_0"].top1 < found["q8_0"].top1 < 1
    record(**{f"{name}: {what}": getattr(found[name], what) for name in found for what in ("overlap", "top1")})
