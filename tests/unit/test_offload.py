"""Layers on a GPU that this machine need not have: what they take, and what is advised where that is too much."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import edgespec
from edgespec.cli import show, show_gpu
from edgespec.llama import binding, room
from edgespec.llama.facts import Device, Facts
from edgespec.llama.settings import LoadSettings
from edgespec.models.header import Header, read_header
from edgespec.models.memory import default_context, estimate
from edgespec.models.offload import Gpu, fit_on_gpu, gpu_bytes, layers_that_fit

LAYERS = 6


@pytest.fixture
def path(tiny: Callable[..., Path]) -> Path:
    return tiny(n_layer=LAYERS, n_ctx_train=65536)


@pytest.fixture
def header(path: Path) -> Header:
    return read_header(path)


@pytest.fixture
def offloading(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """offloading(free): from now on this build has a GPU with so many free bytes."""

    def build(free: int) -> None:
        monkeypatch.setattr(binding, "supports_gpu_offload", lambda: True)
        monkeypatch.setattr(room, "gpu_here", lambda: Gpu("CUDA0", free))

    return build


def test_layers_take_their_weights_and_their_part_of_the_cache(header: Header) -> None:
    taken = [gpu_bytes(header, 4096, layers) for layers in range(LAYERS + 3)]
    sizes = {t.name: t.nbytes for t in header.tensors}
    each = sum(n for name, n in sizes.items() if name.startswith("blk.")) / LAYERS + estimate(header, 4096).kv / LAYERS
    assert taken[0] == 0
    assert taken[1] > sizes["output.weight"] + estimate(header, 4096).compute  # the output matrix is the first
    assert all(taken[n + 1] - taken[n] == pytest.approx(each, abs=1) for n in range(1, LAYERS + 1))
    assert taken[LAYERS + 1] == taken[LAYERS + 2] == gpu_bytes(header, 4096, -1)


def test_tied_embeddings_are_the_output_matrix_as_well(tiny: Callable[..., Path]) -> None:
    tied, untied = (read_header(tiny(tied=t, n_layer=LAYERS)) for t in (True, False))
    assert gpu_bytes(tied, 512, 1) == gpu_bytes(untied, 512, 1)


def test_the_number_of_layers_that_fit_is_the_largest(header: Header) -> None:
    for layers in range(1, LAYERS + 2):
        room = gpu_bytes(header, 4096, layers)
        assert layers_that_fit(header, 4096, room) == layers
        assert layers_that_fit(header, 4096, room - 1) == layers - 1
    assert layers_that_fit(dataclasses.replace(header, block_count=None), 4096, 1 << 40) == 0


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6, 0.9])
def test_all_that_is_advised_fits(header: Header, share: float) -> None:
    least, whole = gpu_bytes(header, 512, 1), gpu_bytes(header, 65536, -1)
    free = int(least + (whole - least) * share)
    found = fit_on_gpu(header, 65536, -1, Gpu("CUDA0", free))
    assert not found.fits
    assert str(found).startswith(f"needs {whole / 1e6:.0f} MB, but {free / 1e6:.0f} MB are free on CUDA0: ")
    fewer = layers_that_fit(header, 65536, free)
    assert (f"--gpu-layers {fewer} fits" in found.advice) is (fewer > 0)
    assert fewer or share < 0.9
    for advice in found.advice:
        options = dict(re.findall(r"--([a-z-]+) (\S+)", advice))
        packed = "kv-type" in options
        taken = gpu_bytes(
            header,
            int(options.get("ctx-size", 65536)),
            int(options.get("gpu-layers", -1)),
            kv_type=options.get("kv-type", "f16"),
            flash=packed,
        )
        assert taken <= free


def test_a_draft_beside_it_may_be_what_is_too_much(header: Header) -> None:
    whole = gpu_bytes(header, 4096, -1)
    assert "--draft-gpu-layers 0 fits" in fit_on_gpu(header, 4096, -1, Gpu("CUDA0", whole), beside=whole).advice
    assert fit_on_gpu(header, 4096, 0, Gpu("CUDA0", 9), beside=10).advice == ("--draft-gpu-layers 0 fits",)
    assert fit_on_gpu(header, 4096, -1, Gpu("CUDA0", 9)).advice == ("--gpu-layers 0 uses the CPU",)


def test_a_load_says_what_helps_and_a_default_context_fits(
    path: Path, header: Header, offloading: Callable[[int], None]
) -> None:
    offloading(gpu_bytes(header, 4096, -1, flash=True))  # as llama.cpp chooses on a GPU

    def loaded(**options: int) -> tuple[int, list[str]]:
        lines: list[str] = []
        with edgespec.load(path, threads=1, announce=lines.append, **options) as llm:
            return llm.target.n_ctx, lines

    assert loaded() == (4096, [])
    assert default_context(header) > 4096
    n_ctx, (line,) = loaded(ctx_size=8192)
    assert n_ctx == 8192
    assert "a context of 8192 tokens needs " in line
    assert "are free on CUDA0: --ctx-size 4096 fits, or --kv-type q8_0 with --ctx-size " in line
    layers = int(line.rpartition("--gpu-layers ")[2].removesuffix(" fits"))
    assert 1 <= layers <= LAYERS
    assert loaded(ctx_size=8192, gpu_layers=layers) == (8192, [])


def test_a_draft_is_planned_with_no_more_context_than_its_target(path: Path, tiny: Callable[..., Path]) -> None:
    short, long = tiny(n_ctx_train=1024), path
    planned = room.plan(short, LoadSettings(threads=1), (long, LoadSettings(threads=1)))
    assert planned.draft is not None
    assert (planned.target.n_ctx, planned.draft.n_ctx) == (1024, 1024)
    assert planned.gpu is None


def test_show_tells_whether_all_layers_fit(path: Path, header: Header, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgespec.llama import facts

    def run(free: int, *options: str) -> str:
        found = Facts("1.0", (), True, (Device("CUDA0", "A GPU", 1, free),))
        monkeypatch.setattr(facts, "facts", lambda: found)
        monkeypatch.setattr(show_gpu, "has_gpu_backend", lambda: True)
        done = CliRunner().invoke(show.show, [str(path), "--ctx-size", "8192", *options], catch_exceptions=False)
        return done.stdout

    whole = gpu_bytes(header, 8192, -1)
    assert f"on the GPU     needs {whole / 1e6:.0f} MB of the {whole / 1e6:.0f} MB that are free on CUDA0" in run(whole)
    assert "too large      needs" in run(whole // 2)
    told = json.loads(run(whole - 1, "--json"))["gpu"]
    assert (told["name"], told["layers"], told["needed"], told["free"]) == ("CUDA0", -1, whole, whole - 1)
    assert f"--gpu-layers {LAYERS} fits" in told["advice"]
