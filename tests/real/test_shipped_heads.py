"""The heads that come with EdgeSpec for the starter model: found, exact, worth what is said of them, left unused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import edgespec
from edgespec import LLM
from edgespec.checks import built_in
from edgespec.checks.identity import check_greedy
from edgespec.costs import Costs, CostTable
from edgespec.drafters import MedusaDrafter
from edgespec.drafting import LatestState
from edgespec.heads.registry import shipped
from edgespec.heads.sequential import SequentialHeads
from edgespec.heads.storage import described, read_heads
from edgespec.models.header import read_header
from edgespec.models.identity import file_identity
from edgespec.train.measure import measure
from edgespec.train.prompts import MEASURED
from edgespec.train.prompts import shipped as training_prompts

pytestmark = pytest.mark.real

Record = Callable[..., None]
LARGEST = 12_000_000  # bytes
GREEDY, SAMPLED = 1.2, 1.2
PROMPTS = (
    "What is the difference between a violin and a cello?",
    "My tomato plants have yellow leaves. What can I do?",
    "Write a Python function that returns the longest word of a sentence.",
    "Write a short thank-you note to a colleague who helped me move.",
    "How does a refrigerator keep food cold?",
    "Summarise in two sentences: The ferry was late because of fog. Two buses waited at the pier, and most passengers "
    "reached the city by noon. The company gave every passenger a free coffee and apologised on the radio.",
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starter: Path) -> Path:
    """A folder without registered heads. The starter's own folder would go with it, so it is named by its path."""
    monkeypatch.setenv("EDGESPEC_HOME", str(tmp_path))
    return starter.absolute()


@pytest.fixture
def llm(home: Path) -> Iterator[LLM]:
    with edgespec.load(
        home, draft=None, drafter="medusa", ctx_size=2048, threads=2, buffers="auto", flash_attn="off", tuned=False
    ) as loaded:
        yield loaded


@pytest.mark.parametrize(("temperature", "least"), [(0.0, GREEDY), pytest.param(0.8, SAMPLED, marks=pytest.mark.soak)])
def test_they_are_found_and_guess_as_well_as_is_said(
    llm: LLM, record: Record, temperature: float, least: float
) -> None:
    """By counts of real rounds, on prompts that are not among those of the training, nor of their forms."""
    assert isinstance(llm.heads, SequentialHeads)
    assert llm.drafter == "medusa"
    assert not set(PROMPTS) & {text for texts in training_prompts() for text in (*texts, *MEASURED)}
    ids = [tuple(llm.encode([{"role": "user", "content": text}])) for text in PROMPTS]
    heads, ends = llm.heads, llm.target.vocab.is_eog
    found = measure(
        llm,
        lambda: MedusaDrafter(heads, LatestState(), ends=ends),
        heads.count,
        ids,
        temperature=temperature,
        reply=64,
        seed=1,
    )
    record(temperature=temperature, tau=found.tau, acceptance=found.acceptance, rounds=found.rounds)
    record(head_ms=llm.heads.step_ms)
    assert found.rounds > 60
    assert found.tau > least


def test_text_with_them_is_the_plain_text_or_the_models_own_fork(llm: LLM) -> None:
    check = check_greedy(llm, built_in(llm, 1), 24, 3, lambda _: None)
    assert check.ok
    assert check.drafted["medusa"] > 15


def test_where_a_step_is_cheap_the_plan_leaves_them_out_and_says_why(llm: LLM) -> None:
    """With decode times as on a processor that has no use for rows: nothing here depends on how fast this one is."""

    class Stated(Costs):
        def observe(self, *_: object, **__: object) -> None:
            pass

    llm.costs = Stated(CostTable((1, 2, 4, 16), (7.0, 28.0, 56.0, 224.0)))
    reply = llm.complete("The list of colours is", max_tokens=24, temperature=0)
    assert reply.stats.drafted == 0
    assert reply.stats.why.startswith("medusa off: one step costs")


def test_the_command_line_finds_them_and_says_what_it_did(home: Path, starter: Path) -> None:
    def run(*arguments: Any) -> dict[str, Any]:
        command = [sys.executable, "-m", "edgespec", *map(str, arguments), "--json"]
        done = subprocess.run(command, capture_output=True, check=True, timeout=300, env=os.environ.copy())
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    shown = run("show", home)["heads"]
    assert shown["path"] == str(shipped(file_identity(read_header(home))))
    assert shown["scores"]["measured"][0]["tau"] > GREEDY
    settings = ("-m", home, "--draft", "none", "--threads", "2", "--buffers", "auto", "--flash-attn", "off")
    run("run", *settings, "-n", "1", "--ctx-size", "512", "--drafter", "medusa", "hi")  # measures decode times
    tables = list((Path(os.environ["EDGESPEC_HOME"]) / "cache" / "costs").glob("*.json"))
    assert tables
    for path in tables:
        slow_rows(path)
    reply = run("run", *settings, "-n", "16", "--ctx-size", "512", "--drafter", "medusa", "-q", "hi")
    assert reply["drafter"] == "medusa"
    assert reply["stats"]["drafted"] == 0
    assert reply["stats"]["why"].startswith("medusa off: one step costs")
    assert run("run", *settings, "-n", "1", "--ctx-size", "512", "-q", "hi")["drafter"] == "suffix,lookup"


def slow_rows(path: Path) -> None:
    """Make all decode times of a table but that of one row a hundred times as long."""
    found = json.loads(path.read_text())
    found["ms"] = [ms * (1 if i == 0 else 100) for i, ms in enumerate(found["ms"])]
    path.write_text(json.dumps(found))


def test_the_card_has_the_figures_that_the_file_has(starter: Path) -> None:
    path = shipped(file_identity(read_header(starter)))
    assert path is not None
    assert path.stat().st_size <= LARGEST
    heads = read_heads(path)
    scores, recipe = described(heads.facts.scores), described(heads.facts.recipe)
    assert isinstance(scores, dict)
    assert isinstance(recipe, dict)
    card = (path.parent / "README.md").read_text("utf-8")
    for measured in scores["measured"]:
        assert f"{measured['tau']:.2f}" in card
    assert f"{recipe['tokens']:,}" in card
    assert path.name in card
