"""Before models are loaded: contexts that fit, where none was chosen, and what helps where memory is short."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from edgespec.models.header import Header, read_header
from edgespec.models.memory import default_context, estimate, fit, largest_context
from edgespec.models.offload import Gpu, fit_on_gpu, gpu_bytes
from edgespec.models.quoting import one_line

from ..heads.memory import NO_HEADS, HeadMemory
from .facts import gpu_here
from .settings import LoadSettings


@dataclass(frozen=True, slots=True)
class Planned:
    """A model as it is to be loaded. settings.n_ctx: given, or what fits here.  heads: loaded with it."""

    header: Header
    settings: LoadSettings
    heads: HeadMemory = NO_HEADS

    @property
    def n_ctx(self) -> int:
        """Tokens of context."""
        assert self.settings.n_ctx is not None  # `plan` has set it
        return self.settings.n_ctx

    @property
    def flash(self) -> bool:
        """With flash attention?"""
        return self.settings.flash_attention != 0

    def on_gpu(self, n_ctx: int | None = None) -> int:
        """Bytes that it takes on a GPU, at this or at another context."""
        settings, tokens = self.settings, n_ctx or self.n_ctx
        layers = gpu_bytes(self.header, tokens, settings.offload, kv_type=settings.kv_type, flash=self.flash)
        return layers + (self.heads.following(tokens, settings.kv_type, self.flash) if layers else 0)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be loaded. draft: None without one.  gpu: None where no layer goes to one."""

    target: Planned
    draft: Planned | None
    gpu: Gpu | None

    def shortage(self) -> str | None:
        """A line on what helps where the models take more memory than is free, on the GPU or here; None: they fit."""
        target, settings = self.target, self.target.settings
        if self.gpu is None:
            beside = 0 if self.draft is None else _beside(self.draft)
            found = fit(
                target.header,
                target.n_ctx,
                kv_type=settings.kv_type,
                flash=target.flash,
                heads=target.heads,
                beside=beside,
            )
        else:
            beside = 0 if self.draft is None else self.draft.on_gpu()
            found = fit_on_gpu(
                target.header,
                target.n_ctx,
                settings.offload,
                self.gpu,
                kv_type=settings.kv_type,
                flash=target.flash,
                heads=target.heads.following(target.n_ctx, settings.kv_type, target.flash) if settings.offload else 0,
                beside=beside,
            )
        if found.fits:
            return None
        return f"{one_line(target.header.path.name)} with a context of {target.n_ctx} tokens {found}"


def plan(
    path: Path, settings: LoadSettings, draft: tuple[Path, LoadSettings] | None, heads: HeadMemory = NO_HEADS
) -> Plan:
    """Both models with the contexts that they will have. A draft never needs more context than its target.

    heads: that are loaded with the target.

    Raises as `read_header` does.
    """
    small = None if draft is None else (read_header(draft[0]), draft[1])
    gpu = gpu_here() if settings.offload or (small is not None and small[1].offload) else None
    target = _sized(read_header(path), settings, gpu, heads)
    if small is None:
        return Plan(target, None, gpu)
    return Plan(target, _sized(*small, gpu, NO_HEADS, at_most=target.n_ctx), gpu)


def _sized(
    header: Header, settings: LoadSettings, gpu: Gpu | None, heads: HeadMemory, at_most: int | None = None
) -> Planned:
    if settings.n_ctx is not None:
        return Planned(header, settings, heads)
    tokens = default_context(header, kv_type=settings.kv_type, flash=settings.flash_attention != 0, heads=heads)
    planned = Planned(header, replace(settings, n_ctx=tokens if at_most is None else min(tokens, at_most)), heads)
    if gpu is None or planned.on_gpu() <= gpu.free:
        return planned
    # Where not even a short context fits, fewer layers are the answer, and not a shorter one.
    fits = largest_context(planned.n_ctx, gpu.free, planned.on_gpu)
    return replace(planned, settings=replace(settings, n_ctx=fits or tokens))


def _beside(draft: Planned) -> int:
    return estimate(draft.header, draft.n_ctx, kv_type=draft.settings.kv_type, flash=draft.flash).beside
