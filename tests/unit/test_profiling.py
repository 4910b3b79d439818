"""Settings measured on tiny models, and what load() makes of them. No test looks at how long anything took."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import edgespec
from edgespec import profile_store
from edgespec.costs import Costs, CostTable
from edgespec.llama import profiling
from edgespec.llama.profiling import runtime_profile
from edgespec.models.header import read_header
from edgespec.models.memory import default_context
from edgespec.models.offload import Gpu, gpu_bytes
from edgespec.profile import Choice, Forced, Trial

Tiny = Callable[..., Path]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of the test's own, steps that are timed once or twice, and no file too small to be measured."""
    monkeypatch.setenv("EDGESPEC_HOME", str(tmp_path))
    monkeypatch.setattr(profiling.probe, "working", lambda: ("auto", "repack", "none"))
    monkeypatch.setattr(profiling, "others_cpu_seconds", lambda: 0.0)  # whatever else this machine does
    for name in ("_WARM_UP_S", "_TIMED_S", "SMALLEST"):
        monkeypatch.setattr(profiling, name, 0)
    return tmp_path


class Scripted:
    """Stands for Bench: times by a rule, no model. Counts what it was asked."""

    asked = 0

    def __init__(self, *_: object) -> None:
        pass

    def __call__(self, choice: Choice, beat: float) -> Trial:
        type(self).asked += 1
        if choice.gpu_layers:
            return Trial(choice, None, None, "no room")
        ms = 10 * (0.5 if choice.flash_attn == "on" else 1) * (0.5 if choice.buffers == "none" else 1) + choice.threads
        return Trial(choice, ms, ms)

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> type[Scripted]:
    kind = type("Counted", (Scripted,), {})
    monkeypatch.setattr(profiling, "Bench", kind)
    monkeypatch.setattr(profiling, "physical_cores", lambda: 2)
    monkeypatch.setattr(profiling, "logical_cores", lambda: 2)
    return kind


# ---- once per model -----------------------------------------------------------------------------------------


def test_measured_once_and_announced(tiny: Tiny, scripted: type[Scripted]) -> None:
    lines: list[str] = []
    first = runtime_profile(tiny(), Forced(), announce=lines.append)
    assert lines == [f"measuring the best settings for {tiny().name} here (once)"]
    assert first.choice == Choice(buffers="auto", flash_attn="on", threads=1, gpu_layers=0)
    asked = scripted.asked
    assert runtime_profile(tiny(), Forced(), announce=lines.append) == first
    assert (scripted.asked, len(lines)) == (asked, 1)
    assert runtime_profile(tiny(), Forced(), announce=lines.append, again=True) == first
    assert (scripted.asked, len(lines)) == (2 * asked, 2)


def test_a_damaged_record_is_measured_again(tiny: Tiny, scripted: type[Scripted], home: Path) -> None:
    first = runtime_profile(tiny(), Forced())
    (path,) = (home / "cache" / "profiles").iterdir()
    path.write_text('{"buffers": "none"', "utf-8")
    asked = scripted.asked
    assert runtime_profile(tiny(), Forced()) == first
    assert scripted.asked == 2 * asked
    assert runtime_profile(tiny(), Forced()) == first
    assert scripted.asked == 2 * asked


def test_small_files_and_forced_settings_are_not_measured(
    tiny: Tiny, scripted: type[Scripted], monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    forced = Forced(buffers="none", flash_attn="on", threads=3, gpu_layers=0)
    found = runtime_profile(tiny(), forced)
    assert found.choice == Choice(buffers="none", flash_attn="on", threads=3, gpu_layers=0)
    monkeypatch.setattr(profiling, "SMALLEST", tiny().stat().st_size + 1)
    assert runtime_profile(tiny(), Forced()).choice.threads == 2
    assert scripted.asked == 0
    assert not (home / "cache").exists()


def test_nothing_is_remembered_where_nothing_loads(
    tiny: Tiny, scripted: type[Scripted], monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setattr(scripted, "__call__", lambda _, choice, beat: Trial(choice, None, None, "no memory"))
    assert runtime_profile(tiny(), Forced()).trials == ()
    assert not (home / "cache").exists()


@pytest.mark.parametrize(("cores", "busy"), [(0.4, False), (0.6, True)])
def test_what_is_measured_on_a_busy_machine_is_provisional(
    tiny: Tiny, scripted: type[Scripted], monkeypatch: pytest.MonkeyPatch, cores: float, busy: bool
) -> None:
    clock = itertools.chain([5.0], itertools.repeat(15.0))
    used = itertools.chain([1e6], itertools.repeat(1e6 + 10 * cores))
    monkeypatch.setattr(profiling, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(profiling, "others_cpu_seconds", lambda: next(used))
    assert runtime_profile(tiny(), Forced()).provisional == busy
    known = profile_store.remembered(read_header(tiny()), Forced())
    assert known is not None
    assert known.provisional == busy


def test_a_gpu_that_did_not_take_the_model_is_named_at_every_load(
    tiny: Tiny, scripted: type[Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiling.binding, "supports_gpu_offload", lambda: True)
    lines: list[str] = []
    for _ in range(2):
        profile = runtime_profile(tiny(), Forced(), announce=lines.append)
        assert profile.choice.gpu_layers == 0
        assert profile.provisional
    assert lines[0].startswith("measuring")
    assert (
        lines[1:]
        == [f"{tiny().name} runs on the CPU, the GPU did not take it (no room); --gpu-layers -1 tries again"] * 2
    )
    assert runtime_profile(tiny(), Forced(gpu_layers=0), announce=lines.append).choice.gpu_layers == 0
    assert lines[3:] == [lines[0]]
    header = read_header(tiny())
    room = gpu_bytes(header, default_context(header, flash=True), 2, flash=True)
    monkeypatch.setattr(profiling, "gpu_here", lambda: Gpu("CUDA0", room))
    runtime_profile(tiny(), Forced(), announce=lines.append)
    assert lines[-1].endswith("the GPU did not take it (no room); --gpu-layers 2 fits on CUDA0")


# ---- load() -------------------------------------------------------------------------------------------------


def settings_of(llm: edgespec.LLM) -> tuple[str, str, int, int]:
    settings = llm.target.settings
    return llm.target.model.buffers, settings.flash_attn, settings.n_threads, settings.offload


def test_load_uses_what_was_measured(tiny: Tiny, scripted: type[Scripted]) -> None:
    lines: list[str] = []
    with edgespec.load(tiny(quant="q4_0"), ctx_size=128, announce=lines.append) as llm:
        assert settings_of(llm) == ("none", "on", 1, 0)
        assert llm.announce == lines.append
        assert llm.complete("a", max_tokens=3, draft_max=0).text
    assert len(lines) == 1
    asked = scripted.asked
    with edgespec.load(tiny(quant="q4_0"), ctx_size=64) as llm:  # whatever the context, the profile is one
        assert settings_of(llm) == ("none", "on", 1, 0)
    assert scripted.asked == asked


def test_load_uses_what_is_forced(tiny: Tiny, scripted: type[Scripted]) -> None:
    path = tiny(quant="q4_0")
    for forced, expected in (
        ({"buffers": "auto"}, ("auto", "on", 1, 0)),
        ({"flash_attn": "off"}, ("none", "off", 1, 0)),
        ({"threads": 2, "flash_attn": "off"}, ("none", "off", 2, 0)),
        ({"buffers": "repack", "flash_attn": "off", "threads": 2}, ("repack", "off", 2, 0)),
    ):
        with edgespec.load(path, ctx_size=64, **forced) as llm:  # type: ignore[arg-type]  # options of load
            assert settings_of(llm) == expected
    asked = scripted.asked
    with edgespec.load(path, ctx_size=64, buffers="none", flash_attn="off", threads=1) as llm:
        assert settings_of(llm) == ("none", "off", 1, 0)
    assert scripted.asked == asked
    with edgespec.load(path, ctx_size=64, kv_type="q8_0", buffers="auto") as llm:
        assert settings_of(llm)[1] == "on"


@pytest.mark.usefixtures("scripted")
def test_a_draft_has_its_own_profile(tiny: Tiny, home: Path) -> None:
    target, draft = tiny(quant="q4_0"), tiny(quant="f16", noise=0.05)
    lines: list[str] = []
    with edgespec.load(target, draft=draft, ctx_size=64, flash_attn="off", announce=lines.append) as llm:
        assert settings_of(llm) == ("none", "off", 1, 0)
        assert llm.draft is not None
        assert (llm.draft.model.buffers, llm.draft.settings.flash_attn) == ("auto", "off")  # all layouts of f16 are one
    assert [line.split(" for ")[1].split()[0] for line in lines] == [target.name, draft.name]
    assert len(list((home / "cache" / "profiles").iterdir())) == 2


def test_load_on_a_real_measurement(tiny: Tiny) -> None:
    path = tiny(quant="q4_0")
    with edgespec.load(path, ctx_size=64) as llm:
        profile = profile_store.remembered(read_header(path), Forced())
        assert profile is not None
        choice = profile.choice
        assert settings_of(llm) == (choice.buffers, choice.flash_attn, choice.threads, choice.gpu_layers)
        assert all(trial.short_ms for trial in profile.trials)


@pytest.mark.usefixtures("scripted")
@pytest.mark.parametrize(("factor", "stays"), [(1.0, True), (4.0, False)])
def test_a_profile_is_forgotten_when_the_machine_is_no_longer_the_same(tiny: Tiny, factor: float, stays: bool) -> None:
    path = tiny(quant="q4_0")
    with edgespec.load(path, ctx_size=64) as llm:
        llm.costs = Costs(CostTable((1,), (2.0,)))
        for _ in range(300):
            llm.costs.observe(1, 2.0 * factor)
    assert (profile_store.remembered(read_header(path), Forced()) is not None) == stays
