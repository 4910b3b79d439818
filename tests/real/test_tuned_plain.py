"""The measured settings of real models against those that llama.cpp and its binding choose by themselves."""

from __future__ import annotations

import os
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

import edgespec
from edgespec import profile_store
from edgespec.llama import profiling
from edgespec.llama.profiling import Bench, runtime_profile
from edgespec.models.header import read_header
from edgespec.profile import Choice, Forced

pytestmark = pytest.mark.real

# Speed behind 1,024 tokens over the library's defaults, at least. The library's own settings, where they are chosen,
# are compared with themselves and count as 1.0.
BARS = {"starter": 1.5, "qwen_q4_draft": 1.2, "qwen_q4_target": 1.0}
_ROUNDS = 7


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGESPEC_HOME", str(tmp_path))
    return tmp_path


def test_the_starter_is_measured_once(starter: Path, monkeypatch: pytest.MonkeyPatch, record) -> None:
    lines: list[str] = []
    with edgespec.load(starter, ctx_size=256, announce=lines.append) as llm:
        used = llm.target.settings
    assert lines == [f"measuring the best settings for {starter.name} here (once)"]
    profile = profile_store.remembered(read_header(starter), Forced())
    assert profile is not None
    best, library = profile.best, profile.library
    assert best is not None
    assert library is not None
    chosen = profile.choice
    assert (used.buffers, used.flash_attn, used.threads) == (chosen.buffers, chosen.flash_attn, chosen.threads)
    assert best.ms <= library.ms / 0.97  # a choice that is 3% faster would have been taken
    monkeypatch.setattr(profiling, "Bench", None)  # a second measurement would fail
    with edgespec.load(starter, ctx_size=256, announce=lines.append) as llm:
        assert llm.target.settings == used
    assert len(lines) == 1
    record(
        buffers=chosen.buffers,
        flash_attn=chosen.flash_attn,
        threads=chosen.threads,
        short_ms=best.short_ms,
        long_ms=best.long_ms,
        library_short_ms=library.short_ms,
        library_long_ms=library.long_ms,
    )


@pytest.mark.soak
@pytest.mark.parametrize("model", list(BARS))
def test_tuned_plain_against_the_librarys_defaults(model: str, request: pytest.FixtureRequest, record) -> None:
    """Turn by turn in one process: the machine's moods meet all alike."""
    path = request.getfixturevalue(model)
    profile = runtime_profile(path, Forced())
    tuned, library = profile.choice, profile.library
    assert library is not None
    # llama_cpp.Llama: no flash attention, half of the CPUs.
    binding = replace(library.choice, flash_attn="off", threads=max((os.cpu_count() or 1) // 2, 1))
    times: dict[Choice, list[float]] = {tuned: [], library.choice: [], binding: []}
    with Bench(read_header(path), "f16") as bench:
        for _ in range(_ROUNDS):
            for choice, found in times.items():
                trial = bench(choice, float("inf"))
                assert trial.long_ms is not None, trial.error
                found.append(trial.long_ms)

    def over(choice: Choice) -> float:
        if choice == tuned:
            return 1.0
        return statistics.median(b / a for a, b in zip(times[tuned], times[choice], strict=True))

    record(
        model=path.name,
        buffers=tuned.buffers,
        flash_attn=tuned.flash_attn,
        threads=tuned.threads,
        tuned_ms=statistics.median(times[tuned]),
        over_library=over(library.choice),
        over_binding=over(binding),
    )
    assert over(library.choice) >= BARS[model]
