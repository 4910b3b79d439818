"""`edgespec train --form eagle` on a tiny model: the head that it leaves, and that drafts are what was trained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgespec_command import Cli, Models
from training import FEW, SETTINGS, load, stopped_anywhere, trained

import edgespec
from edgespec.cli.train import _say
from edgespec.drafters import EagleDrafter
from edgespec.drafting import Features
from edgespec.errors import EdgeSpecError, NoSpaceError
from edgespec.heads.eagle import write_eagle
from edgespec.heads.eagle_file import read_eagle
from edgespec.heads.medusa import Facts
from edgespec.llama.following import open_eagle
from edgespec.llama.head import HeadContext
from edgespec.models.header import read_header
from edgespec.models.identity import file_identity
from edgespec.sampling import Sampler, SamplingParams
from edgespec.scoring import ScoreRequest
from edgespec.train import eagle, fit, process, room
from edgespec.train.data import BEFORE, TOP, Text
from edgespec.train.eagle_layer import root_of
from edgespec.train.forms import FORMS
from edgespec.train.measure import Measured
from edgespec.train.output import embedding_rows

EAGLE = replace(SETTINGS, form="eagle")


def test_a_training_leaves_a_registered_head_that_drafts(own: Cli, models: Models) -> None:
    done = own.here("train", models.chat, *FEW, "--form", "eagle", "--json")
    assert done.code == 0, done.err
    found, path = done.json, Path(done.json["path"])
    assert (found["source"], found["epochs"], len(found["acceptance"])) == ("eagle", 2, 3)
    assert found["tau"] >= 1
    assert found["rounds"] > 10
    assert "pass 2: loss" in done.err
    assert not list((Path(own.env["EDGESPEC_HOME"]) / "train").iterdir())
    head = read_eagle(path)
    assert head.own
    assert (head.vocabulary, head.facts.target_name) == (found["vocabulary"], "chat.gguf")
    assert head.facts.target == file_identity(read_header(models.chat))
    assert {tensor.type for tensor in head.header.tensors} == {"F32", "Q8_0", "I64"}
    shown = own.here("show", models.chat, "--json").json
    assert shown["heads"] is None
    assert (shown["eagle"]["recipe"]["form"], shown["eagle"]["recipe"]["passes"]) == ("eagle", 2)
    greedy, sampled = shown["eagle"]["scores"]["measured"]
    assert greedy["tau"] == pytest.approx(found["tau"], abs=1e-3)
    assert sampled["tau"] == pytest.approx(found["sampled_tau"], abs=1e-3)
    small = ("-n", "8", "--ctx-size", "512", "--temperature", "0", "--json", "-q", "hello")
    auto = own.here("run", "-m", models.chat, *small).json
    assert auto["drafter"] == "suffix,lookup,eagle"
    alone = own.here("run", "-m", models.chat, "--drafter", "eagle", "--draft-max", "3", *small).json
    assert alone["stats"]["per_source"]["eagle"]["drafted"] > 3
    assert alone["text"] == own.here("run", "-m", models.chat, "--drafter", "none", *small).json["text"]


def test_people_are_told_what_was_made(capsys: pytest.CaptureFixture[str]) -> None:
    score, measured = fit.Score((0.5, 0.4), 1.7, 1.0, 1.0), Measured(0.0, 1.6, (0.4, 0.5), 99)
    _say(Path("m.gguf"), process.Trained(Path("h.gguf"), "eagle", 1000, 64, 2, score, (measured,), 60.0))
    said = capsys.readouterr().out
    assert "m.gguf: an EAGLE head for 2 guesses over 64 tokens, learned from 1,000 tokens in 1.0 min" in said
    assert "registered: it drafts with h.gguf" in said


@pytest.fixture
def made(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, eagle.EagleTrainer]:
    """The head of a training, and the trainer with its weights."""
    trainers: list[eagle.EagleTrainer] = []
    write = eagle.EagleTrainer.write
    monkeypatch.setattr(
        eagle.EagleTrainer, "write", lambda self, *arguments: (trainers.append(self), write(self, *arguments))[1]
    )
    trained(tiny_model, tmp_path / "head.gguf", EAGLE)
    return tmp_path / "head.gguf", trainers[-1]


def test_drafts_are_what_the_trained_layer_guesses(
    tiny_model: Path, made: tuple[Path, eagle.EagleTrainer], tmp_path: Path
) -> None:
    """Through llama.cpp, from several places of a text that the model wrote: the same logits, step by step, and the
    drafter's guesses are their likeliest. In 8 bits they differ by little.
    """
    path, trainer = made
    exact = tmp_path / "exact.gguf"
    with load(tiny_model, EAGLE) as llm:
        size, width = llm.target.vocab.size, llm.target.state_size
        write_eagle(trainer.head(Facts(size, width)), exact, matrices="f32")
        table = embedding_rows(read_header(tiny_model), np.arange(size))
        assert table is not None
        trainer._embedded = table * root_of(table, trainer.frame.shape.eps)  # of tokens beyond those it learned from
        tokens = [*range(40, 46), *llm.complete(list(range(40, 46)), max_tokens=24, temperature=0).tokens]
        sequence = llm.target.sequence()
        llm.target.score([ScoreRequest(sequence, tokens[:1], tokens[1:], states=True)])
        states = llm.target.states(sequence).copy()
        sequence.close()
        exactly, stored = open_eagle(read_eagle(exact), llm.target), open_eagle(read_eagle(path), llm.target)
        try:
            for start in (3, 11, 17):
                drafted = drafts(exactly, tokens[: start + 2], states)
                assert len(drafted) == EAGLE.heads
                logits = guessed(trainer, tokens[1 : start + 2] + drafted, states[: start + 1])
                assert drafted == trainer.ids[logits.argmax(axis=1)].tolist()
                for head, tolerance in ((exactly, 5e-3), (stored, 0.25)):
                    rows = fed(head, tokens[1 : start + 2], drafted, states[: start + 1])
                    assert np.allclose(rows[:, trainer.ids], logits, atol=tolerance * float(logits.std() + 1))
        finally:
            exactly.close()
            stored.close()


def drafts(head: HeadContext, tokens: list[int], states: Any) -> list[int]:
    """A greedy draft after these tokens."""
    features = Features()
    features.put(0, states[: len(tokens) - 1])
    drafter = EagleDrafter(head, features)
    sampler = Sampler(SamplingParams(temperature=0), head.vocab_size)
    drafted = drafter.draft(tokens, EAGLE.heads, sampler, np.random.default_rng(0))
    drafter.close()
    return list(drafted.tokens)


def fed(head: HeadContext, tokens: list[int], drafted: list[int], states: Any) -> Any:
    """Logits of the head, a row for each token of a draft."""
    share = head.open()
    assert share is not None
    row, feature = share.feed(0, tokens, states)
    rows = [row.copy()]
    for place, token in enumerate(drafted[:-1]):
        row, feature = share.feed(len(tokens) + place, [token], feature[None])
        rows.append(row.copy())
    share.close()
    return np.stack(rows)


def guessed(trainer: eagle.EagleTrainer, tokens: list[int], states: Any) -> Any:
    """The same of the trained layer: a text that ends with the draft, of which the target has no states."""
    m = len(tokens)
    every = np.concatenate([states, np.zeros((m - len(states), states.shape[1]))]).astype(np.float32)
    text = Text(np.array(tokens, np.int32), every, np.full((m, TOP), -1, np.int32), np.zeros((m, TOP), np.float16),
                np.full(BEFORE, -1, np.int32))  # fmt: skip
    pieces = eagle.Pieces.of([text], trainer.ids, EAGLE.heads, np.arange(len(trainer._embedded)))
    steps = trainer.unrolled(pieces, np.array([0]))[2]
    return np.stack([passed.made[len(states) - 1] @ trainer._rows.T for passed in steps])


def test_interrupted_it_goes_on_to_the_same_head(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped_anywhere(
        tiny_model, tmp_path, monkeypatch, EAGLE, Path.read_bytes,
        (fit.Trainer, "_adam", 2), (eagle, "write_eagle", 1),
    )  # fmt: skip


def test_too_little_room_is_said_before_the_work_begins(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what this form takes: room for heads of the other would do for the tiny model."""
    working = FORMS["eagle"].working(128, 64, EAGLE)
    assert working > FORMS["sequential"].working(128, 64, EAGLE)
    with monkeypatch.context() as patch:
        patch.setattr(room, "free_memory", lambda: working)
        with pytest.raises(EdgeSpecError, match=r"learning needs .* MB of memory"):
            trained(tiny_model, tmp_path / "a.gguf", EAGLE)
    needed = 4 * 5 * FORMS["eagle"].weights(128, 3) + room._SPARE
    monkeypatch.setattr(process.shutil, "disk_usage", lambda _: type("Usage", (), {"free": needed})())
    with pytest.raises(NoSpaceError, match=r"training needs .* MB free"):
        trained(tiny_model, tmp_path / "b.gguf", EAGLE)


def test_embeddings_that_cannot_be_read_are_an_error(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eagle, "embedding_rows", lambda *_: None)
    with pytest.raises(EdgeSpecError, match="keeps its embeddings in a form that cannot be read here"):
        trained(tiny_model, tmp_path / "a.gguf", EAGLE)
    assert not edgespec.load(tiny_model, draft=None, ctx_size=512).has["has_eagle"]
