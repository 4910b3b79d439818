"""Plain steps timed on tiny models, one setting at a time. No test looks at how long anything took."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edgespec.errors import ModelLoadError
from edgespec.llama import Model, profiling
from edgespec.llama.profiling import Bench
from edgespec.models.header import read_header
from edgespec.profile import LONG, SHORT, Choice, Trial

Tiny = Callable[..., Path]
FREE = Choice(buffers="none", flash_attn="off", threads=1, gpu_layers=0)


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """As few steps as there may be."""
    for name in ("_WARM_UP_S", "_TIMED_S"):
        monkeypatch.setattr(profiling, name, 0)


@pytest.fixture
def bench(tiny: Tiny) -> Iterator[Bench]:
    with Bench(read_header(tiny()), "f16") as made:
        yield made


def test_both_contexts_are_timed(bench: Bench) -> None:
    for choice in (FREE, dataclasses.replace(FREE, flash_attn="on"), dataclasses.replace(FREE, buffers="auto")):
        trial = bench(choice, float("inf"))
        assert trial.choice == choice
        assert trial.error == ""
        assert trial.short_ms is not None
        assert trial.short_ms > 0
        assert trial.long_ms is not None
        assert trial.long_ms > 0


def test_threads_are_those_of_the_choice(bench: Bench) -> None:
    for threads in (1, 3, 2):
        bench(dataclasses.replace(FREE, threads=threads), float("inf"))
        for view in bench._views.values():
            assert view.context.n_threads == view.context._lib.llama_n_threads(view.context._handle) == threads


def test_the_long_context_is_left_out_where_the_short_one_is_too_slow(bench: Bench) -> None:
    assert bench(FREE, 0.0).long_ms is None


@pytest.mark.parametrize("arch", ["llama", "gemma3"])
@pytest.mark.parametrize("flash", ["off", "on"])
def test_the_cache_of_the_long_context_is_full_of_copies(tiny: Tiny, arch: str, flash: Any) -> None:
    with Bench(read_header(tiny(arch)), "f16") as bench:
        bench(dataclasses.replace(FREE, flash_attn=flash), float("inf"))
        short, deep = bench._views[flash, False], bench._views[flash, True]
        for view in (short, deep):
            view.sequence.truncate(SHORT)
        sizes = [len(view.sequence.save()) for view in (short, deep)]
        assert deep.context.n_ctx > LONG > short.context.n_ctx
        assert sizes[1] == pytest.approx(LONG / SHORT * sizes[0], rel=0.05)


def test_a_running_state_has_one_context(tiny: Tiny) -> None:
    with Bench(read_header(tiny("mamba")), "f16") as bench:
        trial = bench(FREE, float("inf"))
        assert trial.short_ms is not None
        assert trial.long_ms is None
        assert bench(FREE, float("inf")).short_ms is not None  # its state cannot go back: it reads the text again


def test_weights_of_one_choice_at_a_time(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []

    class Watched(Model):
        def __init__(self, path: Path, settings: Any) -> None:
            super().__init__(path, settings)
            events.append(f"open {settings.buffers}")

        def close(self) -> None:
            events.append("close")
            super().close()

    monkeypatch.setattr(profiling, "Model", Watched)
    with Bench(read_header(tiny()), "f16") as bench:
        for choice in (FREE, dataclasses.replace(FREE, threads=2), dataclasses.replace(FREE, flash_attn="on")):
            bench(choice, float("inf"))
        bench(dataclasses.replace(FREE, buffers="auto"), float("inf"))
    assert events == ["open none", "close", "open auto", "close"]


def test_what_cannot_be_loaded_is_a_trial_that_failed(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[str] = []

    def load(path: Path, settings: Any) -> Model:
        attempts.append(settings.buffers)
        if settings.buffers == "auto":
            raise ModelLoadError("no memory for it")
        return Model(path, settings)

    monkeypatch.setattr(profiling, "Model", load)
    with Bench(read_header(tiny()), "f16") as bench:
        auto = dataclasses.replace(FREE, buffers="auto")
        assert bench(auto, float("inf")) == Trial(auto, None, None, "no memory for it")
        assert bench(dataclasses.replace(auto, threads=2), float("inf")).error == "no memory for it"
        assert bench(FREE, float("inf")).short_ms is not None
    assert attempts == ["auto", "none"]  # the same weights are not tried twice


def test_a_context_that_cannot_be_opened_spoils_its_own_trial_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = profiling._opened

    def fail(model: Model, choice: Choice, *, deep: bool) -> Any:
        if choice.flash_attn == "on":
            raise ModelLoadError("no such context")
        return opened(model, choice, deep=deep)

    monkeypatch.setattr(profiling, "_opened", fail)
    assert bench(dataclasses.replace(FREE, flash_attn="on"), float("inf")).error == "no such context"
    assert bench(FREE, float("inf")).error == ""


def test_layouts_that_are_alike_for_a_file_are_not_tried(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, quantized, other = (read_header(tiny(quant=q)) for q in ("f32", "q4_0", "q8_0"))
    monkeypatch.setattr(profiling.binding, "has_amx", lambda: False)
    found = [profiling._distinct(header) for header in (whole, other, quantized)]
    assert found == [("auto",), ("auto",), ("auto", "none")]  # no matrix of q8_0 can be repacked
    monkeypatch.setattr(profiling.binding, "has_amx", lambda: True)
    found = [profiling._distinct(header) for header in (whole, other, quantized)]
    assert found == [("auto",), ("auto", "none"), ("auto", "repack", "none")]
