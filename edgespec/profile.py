"""The settings that a model decodes fastest with here: what is tried, in which order, and what wins.

Nothing here knows a model or a clock: a callable measures, so tests run the search on made-up times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

Buffers = Literal["auto", "repack", "none"]
Flash = Literal["on", "off"]

SMALLEST = 32_000_000  # bytes of a file that is worth measuring: a smaller model's steps are fast, and mostly overhead
SHORT, LONG = 64, 1024  # tokens that timed steps stand behind
ALL_LAYERS = -1
_GAIN = 0.03  # what a choice must be faster by: less is noise
_TOGETHER = 2.5  # times less that attention to a token costs each of several rows, without flash attention
_DOUBTFUL = 2.0  # times the fastest choice: slower is measured once more


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How a model is run. gpu_layers: -1 all."""

    buffers: Buffers
    flash_attn: Flash
    threads: int
    gpu_layers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Forced:
    """What the user has chosen; None: what is fastest. kv_type: quantized ones need flash attention."""

    buffers: Buffers | None = None
    flash_attn: Flash | None = None
    threads: int | None = None
    gpu_layers: int | None = None
    kv_type: str = "f16"


@dataclass(frozen=True, slots=True)
class Trial:
    """Milliseconds that a plain step took with one choice.

    short_ms: behind a short text; None: the model did not load so, `error` says why.  long_ms: behind a long one;
    None where only the short one counts: a running state is as large after any text, or short_ms was already slower
    than another choice in all.
    """

    choice: Choice
    short_ms: float | None
    long_ms: float | None
    error: str = ""

    @property
    def ms(self) -> float:
        """What trials are compared by: the geometric mean of both; infinite for one that failed."""
        if self.short_ms is None:
            return math.inf
        return self.short_ms if self.long_ms is None else math.sqrt(self.short_ms * self.long_ms)


@dataclass(frozen=True, slots=True)
class RuntimeProfile:
    """The choice to use. trials: what was measured for it, in order; empty where nothing was.

    library: the trial of llama.cpp's own defaults (flash attention on, its own buffers, a thread per core), as far as
    the user left them open.  provisional: the machine was busy, or a GPU did not take the model: true for now.
    """

    choice: Choice
    library: Trial | None = None
    trials: tuple[Trial, ...] = ()
    provisional: bool = False

    @property
    def best(self) -> Trial | None:
        """The trial of the choice; None where nothing was measured."""
        return next((trial for trial in self.trials if trial.choice == self.choice), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Where to search. start: the choice that others must beat.  The rest: candidates, one where nothing is open."""

    start: Choice
    library: Choice
    gpu_layers: tuple[int, ...]
    flash_attn: tuple[Flash, ...]
    threads: tuple[int, ...]
    buffers: tuple[Buffers, ...]

    @property
    def settled(self) -> bool:
        """True where there is nothing to choose."""
        return all(len(c) == 1 for c in (self.gpu_layers, self.flash_attn, self.threads, self.buffers))


# Measures a choice. The second argument is the time to beat in milliseconds: a step behind a short text that is slower
# makes the long one needless. Never raises for a choice that cannot be loaded.
Measure = Callable[[Choice, float], Trial]


def flash_for(profile: RuntimeProfile, at_once: int) -> Flash:
    """Flash attention or not, for so many requests at once that share a cache on a CPU.

    Without it a row is computed against what all of them hold, and costs less the more rows there are; with it, against
    its own text alone, at the price of a single row. Where that was not measured: as for one request.
    """
    chosen = profile.choice
    ms: dict[Flash, float] = {}
    for trial in profile.trials:
        alike = replace(trial.choice, flash_attn=chosen.flash_attn) == chosen
        if alike and trial.short_ms is not None and trial.long_ms is not None:
            rows = at_once if trial.choice.flash_attn == "on" else at_once**2 / _TOGETHER
            # Behind texts of half that length.
            ms[trial.choice.flash_attn] = trial.short_ms + 0.5 * max(0.0, trial.long_ms - trial.short_ms) * rows
    if at_once < 2 or len(ms) < 2:
        return chosen.flash_attn
    return "on" if ms["on"] < (1 - _GAIN) * ms["off"] else "off"


def search_space(
    forced: Forced, *, cores: int, logical: int, working: Sequence[Buffers], distinct: Sequence[Buffers], gpu: bool
) -> Space:
    """What is open, with defaults first.

    cores, logical: physical cores and hyper-threads allowed.  working: buffers whose kernels run on this CPU, best
    first.  distinct: buffers that choose different kernels for this model.  gpu: the build can offload.
    """
    offload = (ALL_LAYERS, 0) if gpu else (0,)
    gpu_layers = offload if forced.gpu_layers is None else (forced.gpu_layers,)
    threads = (cores, logical, cores - 1, cores // 2) if forced.threads is None else (forced.threads,)
    flash: tuple[Flash, ...] = ("on", "off") if gpu_layers[0] else ("off", "on")
    if forced.flash_attn is not None or forced.kv_type not in ("f32", "f16", "bf16"):
        flash = (forced.flash_attn or "on",)
    buffers = tuple(b for b in working if b in distinct) or tuple(working[:1]) or ("auto",)
    if forced.buffers is not None:
        buffers = (forced.buffers,)
    start = Choice(buffers=buffers[0], flash_attn=flash[0], threads=threads[0], gpu_layers=gpu_layers[0])
    return Space(
        start=start,
        library=replace(start, flash_attn="on" if "on" in flash else "off"),
        gpu_layers=gpu_layers,
        flash_attn=flash,
        threads=tuple(dict.fromkeys(n for n in threads if n >= 1)),
        buffers=buffers,
    )


def search(space: Space, measure: Measure, *, spent: Callable[[], bool] = lambda: False) -> RuntimeProfile:
    """The fastest choice, one setting after the other: offload, flash attention, threads, buffers.

    In this order because only the first and the last need the model loaded anew. A choice replaces the one before only
    if it is faster by more than noise, also when that one is measured once more: the machine may have been busy the
    first time. So may it have been where a choice seems very slow: it gets a second chance. spent: once it is true,
    nothing more is tried.
    """
    found: dict[Choice, Trial] = {}

    def measured(choice: Choice, beat: float = math.inf) -> Trial:
        fastest = min((t.ms for t in found.values()), default=math.inf)
        trials = [found[choice]] if choice in found else []
        trials.append(measure(choice, beat))
        if _DOUBTFUL * fastest < trials[-1].ms < math.inf and not spent():
            trials.append(measure(choice, beat))
        found[choice] = min(trials, key=lambda t: t.ms)
        return found[choice]

    best = measured(space.start)
    if space.library not in found:
        measured(space.library)
    for stage in (_offload, _flash, _threads, _buffers):
        for choice in stage(space, best.choice):
            if choice not in found and spent():
                continue
            trial = found[choice] if choice in found else measured(choice, best.ms)
            if _wins(trial, best) and best.short_ms is not None:
                best = measured(best.choice)
            if _wins(trial, best):
                best = trial
    return RuntimeProfile(best.choice, found[space.library], tuple(found.values()))


def _wins(trial: Trial, best: Trial) -> bool:
    return trial.short_ms is not None and trial.ms <= (1 - _GAIN) * best.ms


def _offload(space: Space, now: Choice) -> Iterator[Choice]:
    return (replace(now, gpu_layers=n) for n in space.gpu_layers if n != now.gpu_layers)


def _flash(space: Space, now: Choice) -> Iterator[Choice]:
    return (replace(now, flash_attn=f) for f in space.flash_attn if f != now.flash_attn)


def _threads(space: Space, now: Choice) -> Iterator[Choice]:
    return (replace(now, threads=n) for n in space.threads if n != now.threads and now.gpu_layers != ALL_LAYERS)


def _buffers(space: Space, now: Choice) -> Iterator[Choice]:
    return (replace(now, buffers=b) for b in space.buffers if b != now.buffers and now.gpu_layers != ALL_LAYERS)
