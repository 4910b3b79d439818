"""`edgespec train` on a tiny model: what it leaves, and that an interrupted training goes on to the same heads."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from edgespec_command import Cli, Models
from safetensors.numpy import load_file
from training import FEW, SETTINGS, Silent, after, load, stopped_anywhere, trained

from edgespec.errors import EdgeSpecError, NoSpaceError
from edgespec.heads.storage import read_heads
from edgespec.history import History
from edgespec.tiny_gguf import CHATML_TEMPLATE
from edgespec.train import collect, data, fit, process, room, sequential


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
    greedy, sampled = shown["scores"]["measured"]
    assert (greedy["temperature"], sampled["temperature"]) == (0, 0.8)
    assert greedy["tau"] == pytest.approx(found["tau"], abs=1e-3)
    assert sampled["tau"] == pytest.approx(found["sampled_tau"], abs=1e-3)
    assert found["rounds"] > 10
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


def test_saved_chats_are_prompts_where_that_is_asked_for(own: Cli, models: Models, tmp_path: Path) -> None:
    """Each turn of the user's with what was said before it; without --chats nothing of them is read."""
    with History(Path(own.env["EDGESPEC_HOME"]) / "history" / "history.db") as saved:
        chat = saved.new_conversation(model="chat.gguf", system="Be brief.")
        first = saved.add_message(chat, None, "user", "hello there")
        reply = saved.add_message(chat, first, "assistant", "hello")
        saved.add_message(chat, reply, "user", "and a list?")
        raw = saved.new_conversation(raw=True)
        saved.add_message(raw, None, "user", "once upon a time")
    out = tmp_path / "mine.safetensors"
    done = own.here("train", models.chat, *FEW, "--chats", "-o", out)
    assert done.code == 0, done.err
    assert json.loads(read_heads(out).facts.recipe)["own"] == 2
    done = own.here("train", models.chat, *FEW, "-o", out)
    assert json.loads(read_heads(out).facts.recipe)["own"] == 0


def test_a_chat_is_encoded_with_what_was_said_before(tiny: Callable[..., Path]) -> None:
    with load(tiny(chat_template=CHATML_TEMPLATE), SETTINGS) as llm:
        chat = (("user", "one"), ("assistant", "two"), ("user", "three"))
        assert collect.encoded(llm, ["one", chat]) == [
            tuple(llm.encode([{"role": "user", "content": "one"}])),
            tuple(llm.encode([{"role": role, "content": text} for role, text in chat])),
        ]
        assert len(collect.encoded(llm, [chat, (*chat, ("assistant", "x " * 400), ("user", "y"))])) == 1


def test_interrupted_anywhere_it_goes_on_to_the_same_heads(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tensors(path: Path) -> dict[str, Any]:
        return {name: array.tobytes() for name, array in load_file(path).items()}

    stopped_anywhere(
        tiny_model,
        tmp_path,
        monkeypatch,
        SETTINGS,
        tensors,
        (collect, "write_shard", 0),
        (collect, "write_shard", 2),
        (collect.Writing, "take", 30),
        (fit.Trainer, "run_epoch", 0),
        (fit.Trainer, "_adam", 2),
        (process, "write_arrays", 1),
        (sequential, "write_heads", 0),
        (process, "measure", 1),
        (sequential, "write_heads", 1),
    )


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
    groups = -(-done.tokens // (12 * SETTINGS.reply)) + 1
    assert len(written) == groups - 2  # two were there already
    monkeypatch.setattr(process.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10})())
    with pytest.raises(NoSpaceError, match=r"training needs .* MB free"):
        trained(tiny_model, tmp_path / "b.safetensors")


def test_too_little_memory_is_said_and_loses_nothing(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before learning begins, or where it fills up in the middle of it."""
    with monkeypatch.context() as patch:
        patch.setattr(room, "free_memory", lambda: 1000)
        with pytest.raises(EdgeSpecError, match=r"learning needs .* MB of memory and 0 MB are free"):
            trained(tiny_model, tmp_path / "a.safetensors")
    with monkeypatch.context() as patch:
        patch.setattr(fit.Trainer, "run_epoch", after(1, fit.Trainer.run_epoch, MemoryError()))
        with pytest.raises(EdgeSpecError, match="the memory is full; close other programs and give the same command"):
            trained(tiny_model, tmp_path / "a.safetensors")
    monkeypatch.setattr(collect, "write_texts", after(0, collect.write_texts, AssertionError()))  # all is there
    progress = Silent()
    trained(tiny_model, tmp_path / "a.safetensors", progress=progress)
    assert "going on after pass 1" in progress.lines


def test_time_ends_collecting_and_training(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 600.0  # each look at it finds ten minutes gone
        return now

    progress = Silent()
    done = trained(tiny_model, tmp_path / "a.safetensors", clock=clock, progress=progress)
    assert done.tokens < 300
    assert done.epochs == 1  # what there was time for, by the time that a few steps took
    assert any("in 1 passes" in line for line in progress.lines)
    monkeypatch.setattr(process, "_affordable", lambda *_: 3)
    done = trained(tiny_model, tmp_path / "b.safetensors", clock=clock, progress=progress)
    assert done.epochs == 1
    assert "time is up after pass 1" in progress.lines


def test_where_time_is_up_within_a_group_what_is_written_is_kept(tiny_model: Path) -> None:
    looks = 0

    def over() -> bool:
        nonlocal looks
        looks += 1
        return looks == 30

    with load(tiny_model, SETTINGS) as llm:
        prompts = [tuple(range(5, 9 + i)) for i in range(12)]
        whole = collect.write_texts(llm, prompts, 1, SETTINGS, 4)
        assert [len(text.tokens) for text in whole] == [24] * 12
        part = collect.write_texts(llm, prompts, 1, SETTINGS, 4, over)
        assert [len(text.tokens) for text in part] == [24] * 4 + [6] * 4
        for text, all_of_it in zip(part, whole, strict=False):
            assert text.tokens.tolist() == all_of_it.tokens[: len(text.tokens)].tolist()
            assert len(text.states) == len(text.top) == len(text.tokens)


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
        (("--form", "eagle", "-o", "a.safetensors"), 2, "its name must end with .gguf"),
        (("--form", "hydra"), 2, "form is 'hydra'; it must be one of sequential, eagle"),
        (("--prompts-file", "nowhere.jsonl"), 2, "cannot read"),
    ],
)
def test_errors_are_one_line(own: Cli, models: Models, arguments: tuple[str, ...], code: int, message: str) -> None:
    done = own.here("train", models.chat, *arguments)
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert own.here("train", "nowhere.gguf").code == 3
