"""EAGLE heads and MTP layers from the command line: convert, show, run, verify, bench."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from edgespec_command import Cli, Models

from tiny_heads import write_eagle3, write_mtp

SMALL = ("--threads", "1", "--ctx-size", "512", "--draft", "none")


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_eagle3(tmp_path_factory.mktemp("eagle") / "head.gguf")


def test_a_head_drafts_when_given_and_once_registered(own: Cli, models: Models, head: Path, tmp_path: Path) -> None:
    given = own.here("run", "-m", models.chat, "--heads", head, "--drafter", "eagle", "--draft-max", "3", "-n", "16",
                     *SMALL, "--temperature", "0", "--jsonl", "hello")  # fmt: skip
    assert given.code == 0, given.err
    *events, reply = [json.loads(line) for line in given.out.splitlines()]
    assert {e["source"] for e in events if e["type"] == "round"} == {"eagle", "target"}  # the last has no room
    assert reply["stats"]["per_source"]["eagle"]["drafted"] > 10
    assert "using the EAGLE head in head.gguf" in given.err
    path = tmp_path / "kept.gguf"
    done = own.here("convert", head, "-o", path, "-m", models.chat, "--json")
    assert done.code == 0, done.err
    assert done.json == {
        "path": str(path), "source": "eagle", "count": 1, "vocabulary": 64, "n_embd": 128,
        "bytes": path.stat().st_size, "target": str(models.chat),
    }  # fmt: skip
    assert path.read_bytes() == head.read_bytes()
    shown = own.here("show", models.chat, "--json").json
    assert (shown["eagle"]["path"], shown["eagle"]["vocabulary"], shown["heads"]) == (str(path), 64, None)
    assert "EAGLE-3 over layers 0, 1, 1" in own.here("show", models.chat).out
    auto = own.here("run", "-m", models.chat, "-n", "4", *SMALL, "--json", "-q", "hello")
    assert auto.json["drafter"] == "suffix,lookup,eagle"
    none = own.here("run", "-m", models.chat, "-n", "4", *SMALL, "--heads", "none", "--json", "-q", "hello")
    assert none.json["drafter"] == "suffix,lookup"
    plain = own.here("run", "-m", models.chat, "--drafter", "none", "-n", "16", *SMALL, "--temperature", "0",
                     "--json", "hello")  # fmt: skip
    assert plain.json["text"] == reply["text"]


def test_verify_and_bench_know_it(own: Cli, models: Models, head: Path, tmp_path: Path) -> None:
    done = own.here("verify", "-m", models.chat, "--heads", head, "--drafter", "eagle", *SMALL, "--prompts", "2",
                    "-n", "16", "--samples", "150", "--json")  # fmt: skip
    assert done.code == 0, done.err
    assert [row["drafter"] for row in done.json["distribution"]] == ["eagle", "probe"]
    assert done.json["ok"]
    (prompts := tmp_path / "p.jsonl").write_text('{"prompt": "hello"}\n')
    done = own.here("bench", "-m", models.chat, "--heads", head, "--mode", "eagle:2", *SMALL, "--workload", prompts,
                    "-n", "8", "--json")  # fmt: skip
    assert done.code == 0, done.err
    (cell,) = done.json["workloads"]
    assert (cell["mode"], cell["acceptance"] is None) == ("eagle:2", False)


def test_mtp_layers_draft_by_themselves(own: Cli, tmp_path: Path) -> None:
    path = write_mtp(tmp_path / "mtp.gguf")
    assert own.here("show", path, "--json").json["mtp_layers"] == 1
    done = own.here(
        "run", "-m", path, "--raw", "-n", "16", *SMALL, "--drafter", "mtp", "--draft-max", "3", "--json", "hello"
    )
    assert done.code == 0, done.err
    assert done.json["stats"]["per_source"]["mtp"]["drafted"] > 10
    auto = own.here("run", "-m", path, "--raw", "-n", "4", *SMALL, "--json", "-q", "hello")
    assert auto.json["drafter"] == "suffix,lookup,mtp"
