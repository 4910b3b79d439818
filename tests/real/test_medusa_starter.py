"""Heads on the starter model: exact output, with heads that a regression over a few hundred tokens makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from starter_heads import guessed_exactly, states_of

import edgespec
from edgespec import LLM
from edgespec.checks import CheckOptions, built_in, verify
from edgespec.heads.medusa import Facts, MedusaHeads
from edgespec.heads.storage import write_heads
from edgespec.train.process import train
from edgespec.train.settings import TrainSettings

pytestmark = pytest.mark.real

Record = Callable[..., None]
HEADS = 3
TEXT = (
    "The lighthouse keeper climbed the stairs every evening and lit the lamp. He wrote the weather into a book: wind, "
    "clouds, rain, ships that passed. In the morning he climbed the stairs again and put the lamp out. He wrote the "
    "time into the book, drank his tea and slept until noon. On Sundays a boat came with bread, letters and oil for "
    "the lamp. The lighthouse keeper carried the oil up the stairs, read the letters and wrote answers in the evening. "
)


@pytest.fixture(scope="module")
def plain(starter: Path) -> Iterator[LLM]:
    with edgespec.load(starter, draft=None, drafter="none", ctx_size=1024, tuned=False) as llm:
        yield llm


@pytest.fixture(scope="module")
def heads(plain: LLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ridge regression from the state of a token to the tokens two, three and four places on."""
    tokens = plain.tokenize(TEXT * 2)
    rows = states_of(plain, tokens)
    ids = np.unique(tokens)
    inverse = np.linalg.inv(rows.T @ rows + 10 * np.eye(rows.shape[1]))
    projections = []
    for k in range(HEADS):
        wanted = np.zeros((len(rows), len(ids)))
        known = len(rows) - k - 2
        wanted[np.arange(known), np.searchsorted(ids, tokens[k + 2 : k + 2 + known])] = 1
        projections.append((20 * (inverse @ rows.T @ wanted).T).astype(np.float32))
    facts = Facts(plain.target.vocab.size, plain.target.state_size, target_name=plain.name)
    made = MedusaHeads(facts, ids.astype(np.int64), ((),) * HEADS, tuple(projections))
    path = tmp_path_factory.mktemp("heads") / "heads.safetensors"
    write_heads(made, path)
    return path


@pytest.fixture(scope="module")
def llm(starter: Path, heads: Path) -> Iterator[LLM]:
    with edgespec.load(
        starter, draft=None, drafter="medusa", heads=heads, ctx_size=1024, parallel=1, tuned=False
    ) as loaded:
        yield loaded


def test_text_with_heads_is_the_plain_text_or_the_models_own_fork(llm: LLM, record: Record) -> None:
    reply = guessed_exactly(llm, "medusa", TEXT + "The lighthouse keeper", draft_max=HEADS)
    record(
        tau=reply.stats.tau,
        accepted=reply.stats.accepted,
        drafted=reply.stats.drafted,
        head_ms=llm.heads.step_ms if llm.heads else None,
        step_ms=llm.measured().at(1),
    )
    assert reply.stats.accepted > 5


@pytest.mark.soak
@pytest.mark.parametrize(("form", "source"), [("sequential", "medusa"), ("eagle", "eagle")])
def test_trained_heads_guess_text_about_other_subjects(
    starter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: Record, form: str, source: str
) -> None:
    """Few tokens, so that it takes minutes; more of them guess better."""
    settings = TrainSettings(form=form, tokens=12_000, epochs=4, minutes=60)
    model = starter.absolute()
    monkeypatch.setenv("EDGESPEC_HOME", str(tmp_path))

    def load(path: Path, chosen: TrainSettings) -> LLM:
        return edgespec.load(
            path, draft=None, drafter="none", ctx_size=chosen.at_once * 416, parallel=chosen.at_once, buffers="auto"
        )

    done = train(model, settings, load, Mock(spec=("step", "part", "note")))
    record(
        form=form,
        tokens=done.tokens,
        tau=[round(measured.tau, 3) for measured in done.measured],
        acceptance=[[round(share, 3) for share in measured.acceptance] for measured in done.measured],
        coverage=done.score.coverage,
        seconds=done.seconds,
    )
    assert done.measured[0].tau > 1.1
    with edgespec.load(model, draft=None, ctx_size=1024) as trained:
        assert trained.drafter == f"suffix,lookup,{source}"


@pytest.mark.soak
def test_verify_holds(llm: LLM, record: Record) -> None:
    report = verify(llm, built_in(llm, 2), CheckOptions(max_tokens=24, samples=200), lambda *_: None)
    for row in (*report.distribution, report.control):
        record(drafter=row.drafter, samples=row.samples, tv=row.tv, bound=row.bound, accepted=row.accepted)
    record(greedy=report.greedy.counts(), seed=report.seed.counts())
    assert report.ok
    assert [row.drafter for row in report.distribution] == ["medusa", "probe"]
