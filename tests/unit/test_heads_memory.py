"""What draft heads take is part of every estimate: before a load, in `show`, and of a model that is loaded."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import save_file

import edgespec
from edgespec import container
from edgespec.cli import show
from edgespec.heads.eagle import write_eagle
from edgespec.heads.memory import HeadMemory, array_bytes, head_memory, usual_memory
from edgespec.heads.registry import EAGLE, register
from edgespec.heads.storage import Heads, read_heads, write_heads
from edgespec.models.header import Header, read_header
from edgespec.models.identity import file_identity
from edgespec.models.memory import default_context, estimate, fit
from edgespec.models.offload import Gpu, fit_on_gpu, gpu_bytes
from table_heads import random_heads, random_sequential
from tiny_heads import own_head, write_mtp

Tiny = Callable[..., Path]
SMALL: dict[str, Any] = {"ctx_size": 256, "threads": 1, "kv_type": "f32", "buffers": "none", "draft": None}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGESPEC_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def heads(tmp_path: Path) -> Path:
    path = tmp_path / "heads.safetensors"
    write_heads(random_heads(512, 128), path)
    return path


def registered(path: Path, heads: Path, *kind: str) -> Header:
    header = read_header(path)
    register(file_identity(header), heads, *kind)
    return header


@pytest.mark.parametrize(
    "made",
    [
        random_heads(4000, 128, count=2),
        random_heads(4000, 128, shared=True, ids=range(0, 4000, 2)),
        random_sequential(4000, 128, seen=32, hidden=64),
        random_sequential(600, 128, seen=32, hidden=64),  # a small vocabulary has other tables
        random_sequential(3000, 384, seen=192, hidden=64),
    ],
)
def test_it_is_what_they_take_once_they_have_drafted(tmp_path: Path, made: Heads) -> None:
    path = tmp_path / "heads.safetensors"
    write_heads(made, path)
    read_heads(path)  # what modules take
    tracemalloc.start()
    try:
        read = read_heads(path)
        guesses = read.guesses(np.ones(read.facts.n_embd, np.float32), (1, 2), read.count)
        next(guesses)
        for _ in range(read.count - 1):
            guesses.send(1)
        guesses.close()
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert array_bytes(path) == pytest.approx(taken, rel=0.05)


def test_what_cannot_be_read_counts_as_nothing(tmp_path: Path) -> None:
    (broken := tmp_path / "heads.safetensors").write_bytes(b"no heads")
    assert head_memory(broken, broken) == HeadMemory()
    assert head_memory(tmp_path / "gone", tmp_path / "gone") == HeadMemory()
    odd = {"rows": np.zeros(3, np.int8), "basis": np.zeros((2, 2, 2), np.float32)}
    save_file(odd, odd_one := tmp_path / "odd.safetensors")
    assert array_bytes(odd_one) == 3 + 32


def test_show_counts_registered_heads(tiny: Tiny, home: Path, heads: Path) -> None:
    path = tiny()

    def shown(*options: str) -> str:
        return CliRunner().invoke(show.show, [str(path), *options], catch_exceptions=False).stdout

    assert json.loads(shown("--json"))["memory"]["heads"] == 0
    assert "draft heads" not in shown()
    registered(path, heads)
    assert json.loads(shown("--json"))["memory"]["heads"] == array_bytes(heads) > 500_000
    (line,) = (line for line in shown().splitlines() if line.startswith("memory"))
    assert f"draft heads {array_bytes(heads) / 1e6:.0f} MB" in line


def test_the_line_before_a_load_and_the_default_context_count_them(
    tiny: Tiny, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tiny(n_ctx_train=65536)
    write_heads(random_heads(512, 128, count=16, depth=8), large := tmp_path / "large.safetensors")
    header = registered(path, large)
    heads = usual_memory(header)
    free = estimate(header, 2048, heads=heads).total - 1_000_000
    monkeypatch.setattr(container, "memory", lambda: container.MemoryLimit(2 * free, free))
    assert default_context(header, heads=heads) < default_context(header)
    lines: list[str] = []
    options = {"threads": 1, "draft": None, "ctx_size": 2048, "announce": lines.append}
    with edgespec.load(path, **options) as llm:
        assert llm.memory.heads == array_bytes(large)
    (line,) = (line for line in lines if "are free" in line)
    assert "--ctx-size" in line
    assert line.endswith("--heads none fits")
    lines.clear()
    with edgespec.load(path, heads="none", **options) as llm:
        assert llm.memory.heads == 0
    assert not [line for line in lines if "are free" in line]


def test_an_eagle_head_counts_with_its_cache(tiny: Tiny, home: Path, tmp_path: Path) -> None:
    write_eagle(own_head(), head := tmp_path / "own.gguf")
    header = registered(tiny(), head, EAGLE)
    heads = usual_memory(header)
    assert heads(256, "f16", False) > sum(tensor.nbytes for tensor in read_header(head).tensors)
    assert heads(4096, "f16", False) > heads(256, "f16", False)
    with edgespec.load(tiny(), **SMALL) as llm:
        assert llm.memory.heads == heads(256, "f32", False)
    with edgespec.load(tiny(), drafter="lookup", **SMALL) as llm:
        assert llm.memory.heads == 0


def test_mtp_layers_take_work_buffers(home: Path, tmp_path: Path) -> None:
    path = write_mtp(tmp_path / "mtp.gguf")
    with edgespec.load(path, **SMALL) as llm:
        assert llm.memory.heads == usual_memory(read_header(path))(256, "f32", False) > 0


def test_what_leaving_heads_out_helps_is_said_where_it_does(tiny: Tiny) -> None:
    header, theirs = read_header(tiny()), HeadMemory(5_000_000)
    needed = estimate(header, 512).total
    assert fit(header, 512, heads=theirs, free=needed).advice[-1] == "--heads none fits"
    assert "--heads none fits" not in fit(header, 512, heads=theirs, free=needed - 1).advice
    on_gpu = gpu_bytes(header, 512, -1)
    assert "--heads none fits" in fit_on_gpu(header, 512, -1, Gpu("CUDA0", on_gpu), heads=9).advice
    assert "--heads none fits" not in fit_on_gpu(header, 512, -1, Gpu("CUDA0", on_gpu - 1), heads=9).advice
