"""One home and one set of tiny models for all tests of the command."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgespec_command import Cli, Models
from safetensors.numpy import save_file

import edgespec
from edgespec.tiny_gguf import CHATML_TEMPLATE, TinyVocab, write_tiny


@pytest.fixture(scope="session")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Cli:
    """The command, in a home of its own: the kernel probe runs once."""
    home = tmp_path_factory.mktemp("home")
    theirs = {name: value for name, value in os.environ.items() if not name.startswith("EDGESPEC_")}
    return Cli({**theirs, "EDGESPEC_HOME": str(home), "PYTHONIOENCODING": "utf-8"})


@pytest.fixture(scope="session")
def probed(cli: Cli) -> bytes:
    """What the kernel probe remembers."""
    cli.run([sys.executable, "-m", "edgespec.llama"])
    return (Path(cli.env["EDGESPEC_HOME"]) / "cache" / "probe.json").read_bytes()


@pytest.fixture
def own(cli: Cli, probed: bytes, tmp_path: Path) -> Cli:
    """The command in a home that knows which kernels run, and nothing else."""
    home = tmp_path / "home"
    (home / "cache").mkdir(parents=True)
    (home / "cache" / "probe.json").write_bytes(probed)
    return Cli({**cli.env, "EDGESPEC_HOME": str(home)})


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    folder = tmp_path_factory.mktemp("models")
    endless: dict[str, Any] = {"end_gain": 0.0, "n_ctx_train": 16384}
    return Models(
        chat=write_tiny(folder / "chat.gguf", chat_template=CHATML_TEMPLATE, **endless),
        draft=write_tiny(folder / "draft.gguf", noise=0.05, **endless),
        raw=write_tiny(folder / "raw.gguf", **endless),
        mismatched=write_tiny(folder / "mismatched.gguf", vocab=TinyVocab(swap=(100, 101)), **endless),
    )


@pytest.fixture(scope="session")
def chat(cli: Cli, models: Models) -> Cli:
    """`edgespec run` on the tiny chat model with a short context."""
    return Cli(cli.env, ("-m", models.chat, "--ctx-size", "512"))


@pytest.fixture(scope="session")
def llm(models: Models) -> Iterator[edgespec.LLM]:
    """What `chat` runs, through the Python API."""
    with edgespec.load(models.chat, ctx_size=512, threads=1) as loaded:
        yield loaded


@pytest.fixture
def tiny_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: Callable[..., Path]) -> Path:
    monkeypatch.setenv("EDGESPEC_HOME", str(tmp_path / "home"))
    return tiny()


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Medusa checkpoint as published, for the tiny models: three heads of one block, in float16."""
    rng = np.random.default_rng(0)
    tensors: dict[str, Any] = {}
    for k in range(3):
        tensors[f"{k}.0.linear.weight"] = rng.standard_normal((128, 128)) / 12
        tensors[f"{k}.0.linear.bias"] = np.zeros(128)
        tensors[f"{k}.1.weight"] = rng.standard_normal((512, 128)) / 6
    folder = tmp_path_factory.mktemp("published")
    save_file({n: v.astype(np.float16) for n, v in tensors.items()}, folder / "medusa_lm_head.safetensors")
    return folder
