"""`edgespec train` on a tiny model: what it leaves, and that an interrupted training goes on to the same heads."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgespec_command import Cli, Models
from safetensors.numpy import load_file

import edgespec
from edgespec.errors import EdgeSpecError, NoSpaceError
from edgespec.heads.storage import read_heads
from edgespec.train import collect, data, fit, process
from edgespec.train.settings import TrainSettings

FEW = ("--threads", "1", "--tokens", "300", "--epochs", "2", "--at-once", "4", "--vocabulary", "64")
SETTINGS = TrainSettings(tokens=300, epochs=3, reply=24, at_once=4, vocabulary=64, minutes=60)


class Silent:
    """Keeps what was said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def step(self, text: str) -> None:
        self.lines.append(text)

    def part(self, fraction: float) -> None:
        assert 0 <= fraction <= 1

    def note(self, line: str) -> None:
        self.lines.append(line)


def test_a_training_leaves_registered_heads_and_nothing_else(own: Cli, models: Models) -> None:
    done = own.here("train", models.chat, *FEW, "--json")
    assert done.code == 0, done.err
    found, home = done.json, Path(own.env["EDGESPEC_HOME"])
    assert (found["source"], found["epochs"], len(found["acceptance"])) == ("medusa", 2, 3)
    assert found["tokens"] >= 300
    assert found["tau"] >= 1
    assert "pass 2: loss" in done.err
    assert "MB on disk" in done.err
    heads = read_heads(Path(found["path"]))
    assert (heads.count, len(heads.ids), heads.facts.target_name) == (3, found["vocabulary"], "chat.gguf")
    assert not list((home / "train").iterdir())
    shown = own.here("show", models.chat, "--json").json["heads"]
    assert shown["recipe"]["passes"] == 2
    assert shown["scores"]["tau"] == pytest.approx(found["tau"], abs=1e-3)
    auto = own.here("run", "-m", models.chat, "-n", "4", "--ctx-size", "512", "--json", "-q", "hello")
    assert auto.json["drafter"] == "suffix,lookup,medusa"


def test_prompts_of_ones_own_and_a_place_for_the_heads(own: Cli, models: Models, tmp_path: Path) -> None:
    (prompts := tmp_path / "p.jsonl").write_text('{"prompt": "the list of"}\n' * 9)
    out = tmp_path / "mine.safetensors"
    done = own.here("train", models.raw, *FEW, "--heads", "2", "--prompts-file", prompts, "-o", out)
    assert done.code == 0, done.err
    assert "2 heads over" in done.out
    assert "registered" in done.out
    assert read_heads(out).count == 2


@pytest.fixture
def tiny_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: Callable[..., Path]) -> Path:
    monkeypatch.setenv("EDGESPEC_HOME", str(tmp_path / "home"))
    return tiny()


def load(path: Path, settings: TrainSettings) -> edgespec.LLM:
    return edgespec.load(
        path,
        draft=None,
        drafter="none",
        heads=None,
        ctx_size=1024,
        threads=1,
        buffers="none",
        parallel=settings.at_once,
    )


def trained(path: Path, out: Path, **more: Any) -> process.Trained:
    return process.train(path, SETTINGS, load, more.pop("progress", Silent()), out=out, **more)


def after(calls: int, function: Callable[..., Any], error: BaseException) -> Callable[..., Any]:
    """`function`, which fails from its call number `calls` on."""
    made = 0

    def run(*arguments: Any, **more: Any) -> Any:
        nonlocal made
        made += 1
        if made > calls:
            raise error
        return function(*arguments, **more)

    return run


def test_interrupted_anywhere_it_goes_on_to_the_same_heads(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(tiny_model, tmp_path / "whole.safetensors")
    whole = load_file(tmp_path / "whole.safetensors")
    stop = KeyboardInterrupt()
    for place, name, calls in (
        (collect, "write_shard", 0),
        (collect, "write_shard", 2),
        (collect, "step", 7),
        (fit.Trainer, "run_epoch", 0),
        (fit.Trainer, "_adam", 2),
        (process, "write_arrays", 1),
        (process, "write_heads", 0),
    ):
        out = tmp_path / "again.safetensors"
        with monkeypatch.context() as patch:
            patch.setattr(place, name, after(calls, getattr(place, name), stop))
            with pytest.raises(KeyboardInterrupt):
                trained(tiny_model, out)
        assert not out.exists()
        trained(tiny_model, out)
        again = load_file(out)
        assert set(again) == set(whole)
        assert all(np.array_equal(again[tensor], whole[tensor]) for tensor in whole), (name, calls)
        out.unlink()


def test_a_full_disk_loses_nothing(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    with monkeypatch.context() as patch:
        patch.setattr(collect, "write_shard", after(2, data.write_shard, full))
        with pytest.raises(NoSpaceError, match="is full; free some space and give the same command again"):
            trained(tiny_model, tmp_path / "a.safetensors")
    written: list[int] = []
    write_shard = data.write_shard
    monkeypatch.setattr(collect, "write_shard", lambda path, texts: (written.append(1), write_shard(path, texts))[1])
    done = trained(tiny_model, tmp_path / "a.safetensors")
    groups = -(-done.tokens // (4 * SETTINGS.reply)) + 1
    assert len(written) == groups - 2  # two were there already
    monkeypatch.setattr(process.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10})())
    with pytest.raises(NoSpaceError, match=r"training needs .* MB free"):
        trained(tiny_model, tmp_path / "b.safetensors")


def test_time_ends_collecting_and_training(tiny_model: Path, tmp_path: Path) -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 600.0  # each look at it finds ten minutes gone
        return now

    progress = Silent()
    done = trained(tiny_model, tmp_path / "a.safetensors", clock=clock, progress=progress)
    assert done.tokens < 300
    assert done.epochs < 3
    assert any("time is up after pass" in line for line in progress.lines)


def test_models_that_heads_cannot_draft_for_are_refused(
    tiny_model: Path, tiny: Callable[..., Path], tmp_path: Path
) -> None:
    for arch, message in (("lfm2", "hidden states or its logits"), ("mamba", "can have no heads")):
        with pytest.raises(EdgeSpecError, match=message):
            trained(tiny(arch), tmp_path / "a.safetensors")
    with pytest.raises(EdgeSpecError, match="ends every text at once"):
        trained(tiny(end_gain=1000.0), tmp_path / "a.safetensors")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--minutes", "0"), 2, "minutes is 0.0"),
        (("--heads", "9"), 2, "heads is 9; it must be a whole number from 1 to 8"),
        (("-o", "a.bin"), 2, "its name must end with .safetensors"),
        (("--prompts-file", "nowhere.jsonl"), 2, "cannot read"),
    ],
)
def test_errors_are_one_line(own: Cli, models: Models, arguments: tuple[str, ...], code: int, message: str) -> None:
    done = own.here("train", models.chat, *arguments)
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert own.here("train", "nowhere.gguf").code == 3
