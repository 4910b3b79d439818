"""What `edgespec show` says of a GPU: the layers that go there, and whether they fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import EdgeSpecError
from ..heads.memory import HeadMemory
from ..machine import has_gpu_backend
from ..models.header import Header
from ..models.memory import Fit
from ..models.offload import Gpu, fit_on_gpu


@dataclass(frozen=True, slots=True)
class OnGpu:
    """name: of the GPU.  layers: that go there, -1: all.  fit: into what is free there now."""

    name: str
    layers: int
    fit: Fit


def on_gpu(header: Header, n_ctx: int, layers: int, *, kv_type: str, flash: bool, heads: HeadMemory) -> OnGpu | None:
    """None where no layers go to a GPU, or there is none."""
    gpu = gpu_memory() if layers else None
    if gpu is None:
        return None
    theirs = heads.following(n_ctx, kv_type, flash)
    return OnGpu(gpu.name, layers, fit_on_gpu(header, n_ctx, layers, gpu, kv_type=kv_type, flash=flash, heads=theirs))


def gpu_memory() -> Gpu | None:
    """What is free on the GPUs that the build uses: asked in a child process, and only where it has a GPU backend."""
    if not has_gpu_backend():
        return None
    from ..llama.facts import facts

    try:
        return facts().gpu
    except EdgeSpecError:  # `edgespec doctor` tells
        return None


def gpu_json(found: OnGpu | None) -> dict[str, Any] | None:
    """The `gpu` object of --json."""
    if found is None:
        return None
    fit = found.fit
    return {
        "name": found.name,
        "layers": found.layers,
        "needed": fit.needed,
        "free": fit.free,
        "advice": list(fit.advice),
    }
