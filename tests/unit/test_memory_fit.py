"""Where a model needs more memory than is free, what is advised does fit."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgespec.cli import show
from edgespec.errors import BadRequestError
from edgespec.models import memory
from edgespec.models.header import Header, read_header
from edgespec.models.memory import default_context, estimate, fit, largest_context


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


def test_largest_context_of_no_room(header: Header) -> None:
    assert largest_context(4096, 0, lambda tokens: estimate(header, tokens).total) == 0
    assert largest_context(4096, 1 << 40, lambda tokens: estimate(header, tokens).total) == 4096


def test_what_is_free_is_what_a_container_leaves(
    tiny: Callable[..., Path], header: Header, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default context, the fit and the line at loading all follow the limit."""
    import edgespec
    from edgespec import container

    assert default_context(header) == 65536
    assert fit(header, 65536).fits
    left = 60_000_000
    monkeypatch.setattr(container, "memory", lambda: container.MemoryLimit(2 * left, left))
    assert default_context(header) < 65536
    assert fit(header, 65536).free == left
    lines: list[str] = []
    with edgespec.load(tiny(n_ctx_train=65536), threads=1, announce=lines.append) as llm:
        assert llm.target.n_ctx == default_context(header)
    assert [line for line in lines if f"tokens needs {estimate(header, llm.target.n_ctx).total / 1e6:.0f} MB" in line]


def test_show_tells_the_memory_of_a_context_and_what_helps(
    tiny: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tiny()
    needed = estimate(read_header(path), 100_000).total
    monkeypatch.setattr(memory, "free_memory", lambda: needed // 2)

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
