"""Heads from the command line: convert, show, run, verify, bench."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from edgespec_command import Cli, Models

from edgespec.heads.storage import read_heads


@pytest.fixture
def heads(own: Cli, checkpoint: Path, tmp_path: Path) -> Path:
    path = tmp_path / "heads.safetensors"
    assert own.here("convert", checkpoint, "-o", path).code == 0
    return path


def test_converted_heads_draft_when_given(own: Cli, models: Models, heads: Path) -> None:
    done = own.here("run", "-m", models.chat, "--heads", heads, "--drafter", "medusa", "--draft-max", "3", "-n", "16",
               "--ctx-size", "512", "--temperature", "0", "--jsonl", "hello")  # fmt: skip
    assert done.code == 0, done.err
    *events, reply = [json.loads(line) for line in done.out.splitlines()]
    assert {e["source"] for e in events if e["type"] == "round"} == {"medusa", "target"}  # the last has no room
    assert reply["drafter"] == "medusa"
    assert reply["stats"]["per_source"]["medusa"]["drafted"] > 10
    assert "using the draft heads in heads.safetensors" in done.err
    plain = own.here("run", "-m", models.chat, "--drafter", "none", "-n", "16", "--ctx-size", "512",
                "--temperature", "0", "--json", "hello")  # fmt: skip
    assert plain.json["text"] == reply["text"]


def test_heads_bound_to_a_model_are_registered_and_shown(
    own: Cli, models: Models, checkpoint: Path, tmp_path: Path
) -> None:
    path = tmp_path / "bound.safetensors"
    done = own.here("convert", checkpoint, "-o", path, "-m", models.chat, "--json")
    assert done.code == 0, done.err
    assert done.json == {
        "path": str(path), "source": "medusa", "count": 3, "vocabulary": 512, "n_embd": 128,
        "bytes": path.stat().st_size, "target": str(models.chat),
    }  # fmt: skip
    assert read_heads(path).facts.target_name == "chat.gguf"
    shown = own.here("show", models.chat, "--json").json["heads"]
    assert (shown["path"], shown["count"], shown["recipe"]) == (
        str(path), 3, "converted from medusa_lm_head.safetensors",
    )  # fmt: skip
    assert "medusa, 3 heads over 512 tokens" in own.here("show", models.chat).out
    assert own.here("show", models.raw, "--json").json["heads"] is None
    auto = own.here("run", "-m", models.chat, "-n", "4", "--ctx-size", "512", "--json", "-q", "hello")
    assert auto.json["drafter"] == "suffix,lookup,medusa"
    other = own.here("run", "-m", models.raw, "--heads", path, "-n", "4", "hello")
    assert (other.code, other.out) == (4, "")
    assert "these heads were made for another file (chat.gguf) than raw.gguf" in other.err
    path.unlink()
    gone = own.here("run", "-m", models.chat, "-n", "4", "--ctx-size", "512", "--json", "hello")
    assert gone.json["drafter"] == "suffix,lookup"
    assert "are gone" in gone.err


def test_verify_checks_heads(own: Cli, models: Models, heads: Path) -> None:
    done = own.here("verify", "-m", models.chat, "--draft", "none", "--heads", heads, "--drafter", "medusa",
               "--threads", "1", "--ctx-size", "512", "--prompts", "2", "-n", "16",
               "--samples", "150", "--json")  # fmt: skip
    assert done.code == 0, done.err
    assert [row["drafter"] for row in done.json["distribution"]] == ["medusa", "probe"]
    assert done.json["distribution"][0]["tv"] is not None
    assert done.json["ok"]


def test_bench_knows_the_mode(own: Cli, models: Models, heads: Path, tmp_path: Path) -> None:
    (prompts := tmp_path / "p.jsonl").write_text('{"prompt": "hello"}\n')
    done = own.here("bench", "-m", models.chat, "--draft", "none", "--heads", heads, "--mode", "medusa:2",
               "--threads", "1", "--ctx-size", "512", "--workload", prompts, "-n", "8", "--json")  # fmt: skip
    assert done.code == 0, done.err
    (cell,) = done.json["workloads"]
    assert cell["mode"] == "medusa:2"
    assert cell["acceptance"] is not None
