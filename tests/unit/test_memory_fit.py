"""Where a model needs more memory than is free, what is advised does fit."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgespec.cli import show
from edgespec.errors import BadRequestError
from edgespec.models.header import Header, read_header
from edgespec.models.memory import estimate, fit, largest_context, layers_that_fit, shortage


@pytest.fixture
def header(tiny: Callable[..., Path]) -> Header:
    return read_header(tiny(n_ctx_train=65536))


def test_what_fits_needs_no_advice(header: Header) -> None:
    needed = estimate(header, 4096).total
    found = fit(header, 4096, free=needed)
    assert (found.fits, found.needed, found.advice) == (True, needed, ())


@pytest.mark.parametrize("share", [0.2, 0.4, 0.6, 0.8, 0.99])
def test_every_context_that_is_advised_fits_and_is_the_largest(header: Header, share: float) -> None:
    whole = estimate(header, 32768)
    free = whole.program + int(whole.beside * share)
    found = fit(header, 32768, free=free)
    assert not found.fits
    assert found.advice
    for advice in found.advice:
        kv_type = "q8_0" if "q8_0" in advice else "f16"
        flash = kv_type == "q8_0"
        match = re.search(r"--ctx-size (\d+)", advice)
        context = int(match[1]) if match else 32768
        assert estimate(header, context, kv_type=kv_type, flash=flash).total <= free
        if match:
            assert estimate(header, context + 256, kv_type=kv_type, flash=flash).total > free
    assert "MB" in str(found)


def test_a_draft_beside_it_may_be_too_much(header: Header) -> None:
    needed = estimate(header, 4096).total
    found = fit(header, 4096, beside=needed, free=needed)
    assert "--draft none fits" in found.advice


def test_where_nothing_helps_a_smaller_model_is_advised(header: Header) -> None:
    assert fit(header, 4096, free=1000).advice == ("take a smaller model or a smaller quantization",)


def test_layers_for_a_gpu(header: Header) -> None:
    all_of_it = estimate(header, 4096).total
    assert layers_that_fit(header, 4096, all_of_it) == header.block_count
    assert layers_that_fit(header, 4096, 0) == 0
    room = estimate(header, 4096).compute + (all_of_it - estimate(header, 4096).compute) // 2
    assert 1 <= layers_that_fit(header, 4096, room) <= header.block_count
    found = fit(header, 4096, free=room, layers_on="the GPU")
    assert any("--gpu-layers" in advice and "the GPU" in advice for advice in found.advice)
    assert layers_that_fit(dataclasses.replace(header, block_count=None), 4096, room) == 0


def test_largest_context_of_no_room(header: Header) -> None:
    assert largest_context(header, 4096, 0) == 0
    assert largest_context(header, 4096, 1 << 40) == 4096


def test_a_shortage_is_one_line(tiny: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    from edgespec.models import memory

    monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: type("Memory", (), {"available": 2_000_000})())
    line = shortage(tiny(), tiny(seed=1), 512, kv_type="f16", flash=False)
    assert line is not None
    assert "\n" not in line
    assert "512 tokens needs" in line
    monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: type("Memory", (), {"available": 1 << 40})())
    assert shortage(tiny(), None, None, kv_type="f16", flash=False) is None


def test_show_tells_the_memory_of_a_context_and_what_helps(
    tiny: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from edgespec.models import memory

    path = tiny()
    needed = estimate(read_header(path), 100_000).total
    monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: type("Memory", (), {"available": needed // 2})())

    def run(*options: str) -> str:
        return CliRunner().invoke(show.show, [str(path), *options], catch_exceptions=False).stdout

    facts = json.loads(run("--ctx-size", "100000", "--json"))["memory"]
    assert facts["n_ctx"] == 100_000
    assert facts["free"] == needed // 2
    assert facts["advice"]
    text = run("--ctx-size", "100000")
    assert "as asked for" in text
    assert f"too large      needs {needed / 1e6:.0f} MB" in text
    assert "too large" not in run()
    small = json.loads(run("--ctx-size", "512", "--kv-type", "q8_0", "--json"))["memory"]
    assert small["advice"] == []
    assert small["kv"] == estimate(read_header(path), 512, kv_type="q8_0").kv
    for wrong in (("--ctx-size", "0"), ("--kv-type", "q3")):
        with pytest.raises(BadRequestError, match=r"must be|choose one of"):
            run(*wrong)
