"""Draft heads that a model was loaded without are there for whoever names them."""

from __future__ import annotations

from pathlib import Path

import pytest
from edgespec_command import Cli, Models

import edgespec
from edgespec.errors import BadRequestError
from edgespec.heads.registry import register
from edgespec.heads.storage import write_heads
from edgespec.models.header import read_header
from edgespec.models.identity import file_identity
from table_heads import random_heads


@pytest.fixture
def heads(own: Cli, models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGESPEC_HOME", own.env["EDGESPEC_HOME"])
    write_heads(random_heads(512, 128), path := tmp_path / "heads.safetensors")
    register(file_identity(read_header(models.chat)), path)


@pytest.mark.usefixtures("heads")
def test_bench_loads_what_a_mode_needs_and_auto_goes_without(own: Cli, models: Models, tmp_path: Path) -> None:
    (prompts := tmp_path / "p.jsonl").write_text('{"prompt": "hello hello hello"}\n')
    done = own.here("bench", "-m", models.chat, "--draft", "none", "--drafter", "lookup", "--mode", "auto",
               "--mode", "medusa:2", "--threads", "1", "--ctx-size", "512", "--workload", prompts, "-n", "8",
               "--json")  # fmt: skip
    assert done.code == 0, done.err
    auto, fixed = done.json["workloads"]
    assert (auto["mode"], fixed["mode"]) == ("auto", "medusa:2")
    assert fixed["acceptance"] is not None


@pytest.mark.usefixtures("heads")
def test_the_api_says_how_to_load_them(models: Models) -> None:
    with edgespec.load(models.chat, draft=None, drafter="lookup", ctx_size=256, threads=1) as llm:
        with pytest.raises(BadRequestError, match="was loaded without what drafter medusa needs; load it with drafter"):
            llm.use_drafter("medusa")
        assert llm.sources == ("lookup",)
        llm.use_drafter("auto")
        assert llm.sources == ("suffix", "lookup")
