"""Memory estimates come from the header alone and match what llama.cpp allocates."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgespec.llama import Context, LoadSettings, Model
from edgespec.models.header import read_header
from edgespec.models.memory import default_context, estimate

Tiny = Callable[..., Path]


@pytest.mark.parametrize("kv_type", ["f32", "f16", "q8_0", "q4_0"])
@pytest.mark.parametrize("arch", ["llama", "gemma3", "jamba", "lfm2"])
def test_kv_estimate_is_what_llama_cpp_allocates(
    tiny: Tiny, caplog: pytest.LogCaptureFixture, arch: str, kv_type: str
) -> None:
    caplog.set_level(logging.DEBUG, "edgespec.llama")
    settings = LoadSettings(n_ctx=512, threads=1, buffers="none", kv_type=kv_type)
    with Model(tiny(arch), settings) as model, Context(model) as context:
        said = re.findall(r"llama_kv_cache: size = +([\d.]+) MiB", caplog.text)
        allocated = sum(map(float, said))
        assert said
        assert context.memory.kv / 2**20 == pytest.approx(allocated, abs=0.02)
        assert context.memory.weights == pytest.approx(model.weight_bytes, rel=0.01)


def test_a_recurrent_model_has_no_kv_cache(tiny: Tiny) -> None:
    header = read_header(tiny("mamba"))
    assert estimate(header, 4096).kv == estimate(header, 256).kv


def test_estimate_grows_with_context(tiny: Tiny) -> None:
    header = read_header(tiny())
    small, large = estimate(header, 256), estimate(header, 1024)
    assert large.kv == 4 * small.kv
    assert large.compute > small.compute
    assert large.weights == small.weights
    assert large.total == large.kv + large.compute + large.weights + large.vocabulary + large.program
    assert estimate(header, 1024, flash=True).compute < large.compute
    assert "1024" in str(large)


def test_default_context(tiny: Tiny) -> None:
    header = read_header(tiny(n_ctx_train=8192))
    assert default_context(header, free=64 << 30) == 8192
    assert default_context(header, free=0) == 512
    million = dataclasses.replace(header, context_length=1 << 20)
    chosen = [default_context(million, free=n << 20) for n in (64, 256, 1024, 4096)]
    assert chosen == sorted(chosen)
    for free, n_ctx in zip((64, 256, 1024, 4096), chosen, strict=True):
        fits = estimate(header, n_ctx)
        assert n_ctx == 512 or fits.kv + fits.compute < 0.5 * (free << 20)
    assert chosen[-1] < 1 << 20


def test_the_models_own_context_is_the_default(tiny: Tiny, open_context: Any) -> None:
    assert open_context(tiny(n_ctx_train=96), n_ctx=None).n_ctx == 96


@pytest.mark.real
def test_estimate_for_a_real_model(qwen_target: Path) -> None:
    header = read_header(qwen_target)
    assert estimate(header, 4096).kv == 28 * 2 * 256 * 2 * 4096  # layers, K and V, 2 heads of 128, f16
    assert 2048 <= default_context(header, free=16 << 30) <= 32768
