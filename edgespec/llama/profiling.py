"""Measures the settings that a model runs fastest with here, once per model, build and machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from edgespec.models.header import Header, read_header
from edgespec.models.memory import default_context
from edgespec.models.offload import layers_that_fit

from .. import profile_store
from ..errors import EdgeSpecError
from ..machine import logical_cores, others_cpu_seconds, physical_cores
from ..profile import (
    LONG,
    SHORT,
    SMALLEST,
    Buffers,
    Choice,
    Flash,
    Forced,
    RuntimeProfile,
    Space,
    Trial,
    flash_for,
    search,
    search_space,
)
from ..scoring import ScoreRequest
from . import binding, probe
from .context import Context
from .facts import gpu_here
from .model import Model, repackable
from .sequence import Sequence
from .settings import LoadSettings

_ROOM = 64  # cells for the timed steps
_WARM_UP_S, _MOST_WARM_UP = 0.15, 20  # threads take some steps to settle on their cores
_TIMED_S, _LEAST_TIMED, _MOST_TIMED = 0.3, 5, 15
_BUSY = 0.5  # cores that other processes use meanwhile: what is measured then holds for now
_ENOUGH_S = 40.0  # no further choice is measured after so long: a large model takes long to load


def runtime_profile(
    path: Path, forced: Forced, *, announce: Callable[[str], None] | None = None, again: bool = False
) -> RuntimeProfile:
    """The remembered profile of a file, measured now where there is none.

    Without trials where there was nothing to measure: every choice is forced, the file is smaller than SMALLEST, or no
    choice could be loaded.  announce: told one line before a measurement.  again: measure also where it is remembered.
    Raises ModelNotFoundError and ModelLoadError for a file that is no model.
    """
    header = read_header(path)
    gpu = binding.supports_gpu_offload()
    space = search_space(
        forced,
        cores=physical_cores(),
        logical=logical_cores(),
        working=probe.working(),
        distinct=_distinct(header),
        gpu=gpu,
    )
    if space.settled or header.file_size < SMALLEST:
        return RuntimeProfile(space.start)
    profile = None if again else profile_store.remembered(header, forced)
    if profile is None:
        profile = _measured(header, forced, space, announce)
    failed = _offload_failed(profile)
    if announce and failed:
        helps = _gpu_advice(header, forced.kv_type)
        announce(f"{path.name} runs on the CPU, the GPU did not take it ({failed.error}); {helps}")
    return profile


def _measured(header: Header, forced: Forced, space: Space, announce: Callable[[str], None] | None) -> RuntimeProfile:
    if announce:
        announce(f"measuring the best settings for {header.path.name} here (once)")
    begin, others = time.monotonic(), others_cpu_seconds()
    with Bench(header, forced.kv_type) as bench:
        profile = search(space, bench, spent=lambda: time.monotonic() - begin > _ENOUGH_S)
    if profile.best is None or profile.best.short_ms is None:  # loading says what is wrong
        return RuntimeProfile(space.start)
    busy = others_cpu_seconds() - others > _BUSY * (time.monotonic() - begin)
    profile = replace(profile, provisional=busy or _offload_failed(profile) is not None)
    profile_store.remember(header, forced, profile)
    return profile


def _offload_failed(profile: RuntimeProfile) -> Trial | None:
    """Why a model runs on the CPU though there is a GPU."""
    if profile.choice.gpu_layers:
        return None
    return next((trial for trial in profile.trials if trial.choice.gpu_layers and trial.error), None)


def _gpu_advice(header: Header, kv_type: str) -> str:
    gpu = gpu_here()
    tokens = default_context(header, kv_type=kv_type, flash=True)
    layers = 0 if gpu is None else layers_that_fit(header, tokens, gpu.free, kv_type=kv_type, flash=True)
    return f"--gpu-layers {layers} fits on {gpu.name}" if gpu and layers else "--gpu-layers -1 tries again"


def fastest(
    path: Path,
    settings: LoadSettings,
    forced: Forced,
    at_once: int = 1,
    *,
    announce: Callable[[str], None] | None = None,
) -> LoadSettings:
    """The settings with those that are fastest here for so many requests at once. Else as runtime_profile()."""
    profile = runtime_profile(path, forced, announce=announce)
    settings = applied(settings, profile)
    if forced.flash_attn is None and not settings.offload and not settings.split:
        settings = replace(settings, flash_attn=flash_for(profile, at_once)) if profile.trials else settings
    return settings


def applied(settings: LoadSettings, profile: RuntimeProfile) -> LoadSettings:
    """The settings with what was measured in them."""
    if not profile.trials:
        return settings
    choice = profile.choice
    return replace(
        settings,
        buffers=choice.buffers,
        flash_attn=choice.flash_attn,
        threads=choice.threads,
        gpu_layers=choice.gpu_layers,
    )


def _distinct(header: Header) -> tuple[Buffers, ...]:
    """Buffers that choose different kernels for this file: between others, noise would choose."""
    if not binding.has_amx():
        return ("auto", "none") if repackable(header) else ("auto",)  # "auto" is repacked where it can be
    if all(tensor.type in ("F32", "F16", "BF16") for tensor in header.tensors):
        return ("auto",)
    return ("auto", "repack", "none") if repackable(header) else ("auto", "none")


@dataclass(frozen=True, slots=True)
class _View:
    """A context with a text in its cache."""

    context: Context
    sequence: Sequence
    tokens: tuple[int, ...]


class Bench:
    """Times plain steps of one file, for profile.search. Holds the weights of one choice at a time."""

    def __init__(self, header: Header, kv_type: str) -> None:
        self._header, self._kv_type = header, kv_type
        self._model: Model | None = None
        self._loaded: tuple[Buffers, int] | None = None
        self._broken: dict[tuple[Buffers, int], str] = {}
        self._views: dict[tuple[Flash, bool], _View] = {}

    def __call__(self, choice: Choice, beat: float) -> Trial:
        """Milliseconds of a step behind a short text and, where that beats `beat`, behind a long one."""
        try:
            model = self._weights(choice)
            short = self._step_ms(model, choice, deep=False)
            # A running state is as large after any text.
            deep = not model.recurrent and short < beat
            return Trial(choice, short, self._step_ms(model, choice, deep=True) if deep else None)
        except EdgeSpecError as error:
            return Trial(choice, None, None, str(error))

    def close(self) -> None:
        """Free the weights."""
        self._views.clear()
        if self._model is not None:
            self._model.close()
        self._model = self._loaded = None

    def __enter__(self) -> Bench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _weights(self, choice: Choice) -> Model:
        wanted = (choice.buffers, choice.gpu_layers)
        if self._model is not None and self._loaded == wanted:
            return self._model
        if wanted in self._broken:
            raise EdgeSpecError(self._broken[wanted])
        self.close()
        settings = LoadSettings(
            n_ctx=SHORT + _ROOM,
            n_batch=SHORT,
            threads=choice.threads,
            gpu_layers=choice.gpu_layers,
            kv_type=self._kv_type,
            buffers=choice.buffers,
            flash_attn=choice.flash_attn,
            sequences=2,
            max_width=1,
        )
        try:
            self._model = Model(self._header.path, settings)
        except EdgeSpecError as error:
            self._broken[wanted] = str(error)
            raise
        self._loaded = wanted
        return self._model

    def _step_ms(self, model: Model, choice: Choice, *, deep: bool) -> float:
        """Median over some steps of one token, from the same text each time."""
        view = self._views.get((choice.flash_attn, deep))
        if view is None:
            view = self._views[choice.flash_attn, deep] = _opened(model, choice, deep=deep)
        context, tokens = view.context, list(view.tokens)
        context.use_threads(choice.threads)

        def step() -> float:
            tokens.append(_token(context, len(tokens)))
            before = context.decode_seconds
            context.score([ScoreRequest(view.sequence, tokens)])
            return context.decode_seconds - before

        _repeat(step, seconds=_WARM_UP_S, least=2, most=_MOST_WARM_UP)
        return 1000 * statistics.median(_repeat(step, seconds=_TIMED_S, least=_LEAST_TIMED, most=_MOST_TIMED))


def _opened(model: Model, choice: Choice, *, deep: bool) -> _View:
    """A context behind SHORT tokens, or one that works as hard as behind LONG of them."""
    settings = replace(
        model.settings,
        n_ctx=(LONG if deep else SHORT) + _ROOM,
        threads=choice.threads,
        flash_attn=choice.flash_attn,
    )
    context = Context(model, settings)
    tokens = tuple(_token(context, i) for i in range(SHORT))
    sequence = context.sequence()
    context.score([ScoreRequest(sequence, tokens)])
    if deep:
        deepen(context, sequence, tokens, LONG)
    return _View(context, sequence, tokens)


def deepen(context: Context, sequence: Sequence, tokens: tuple[int, ...], cells: int) -> None:
    """Fill the cache up to `cells` with copies of what it holds of a sequence, `tokens`: reading a text takes seconds.

    A decode looks at all cells, whatever they hold, so its time is that behind a text as long. Needs a second slot, and
    a model without a running state.
    """
    state = sequence.save()
    spare = context.sequence()
    for _ in range(cells // len(tokens) - 1):
        spare.restore(state, tokens)
        context.share(spare, sequence)


def _token(context: Context, position: int) -> int:
    """Any tokens do: the time of a step does not depend on which they are."""
    return (7 * position + 1) % context.vocab.size


def _repeat(step: Callable[[], float], *, seconds: float, least: int, most: int) -> list[float]:
    times: list[float] = []
    while len(times) < least or (sum(times) < seconds and len(times) < most):
        times.append(step())
    return times
