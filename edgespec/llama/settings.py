"""How a model is loaded: validated before llama.cpp sees it, because it aborts on some of these."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import psutil

from ..errors import BadRequestError
from . import binding

Buffers = Literal["auto", "repack", "none"]
FlashAttention = Literal["auto", "on", "off"]
Progress = Callable[[float], None]

MIN_CONTEXT = 8


def physical_cores() -> int:
    """Cores that this process may use, not counting hyper-threads: more threads than that slow decoding."""
    cores = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    return max(1, min(cores, allowed))


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadSettings:
    """Weights and context of one model.

    n_ctx: tokens of context; None: the model's own, capped by what fits in memory.  n_batch: tokens of
    one prompt chunk.  threads: None: physical cores.  gpu_layers: layers to offload, -1 all; None: all
    where the build can, else 0.  kv_type: one of binding.KV_TYPES (quantized ones need flash attention).
    buffers: "auto" lets llama.cpp choose weight layouts (AMX where the CPU has it), "repack" is the
    layout of a CPU without AMX, "none" the file's own (memory-mapped).  flash_attn: "auto" is off on CPU,
    where it is slower for few rows, and llama.cpp's choice on a GPU.  sequences: KV sequences held at
    once.  max_width: most rows one verification may score.
    """

    n_ctx: int | None = None
    n_batch: int = 512
    threads: int | None = None
    gpu_layers: int | None = None
    kv_type: str = "f16"
    buffers: Buffers = "auto"
    flash_attn: FlashAttention = "auto"
    sequences: int = 4
    max_width: int = 32

    def __post_init__(self) -> None:
        if self.n_ctx is not None:
            _check_int("context size", self.n_ctx, MIN_CONTEXT, 1 << 24)
        _check_int("n_batch", self.n_batch, 1, 1 << 16)
        if self.threads is not None:
            _check_int("threads", self.threads, 1, 1024)
        if self.gpu_layers is not None:
            _check_int("gpu layers", self.gpu_layers, -1, 10_000)
            if self.gpu_layers and not binding.supports_gpu_offload():
                raise BadRequestError(
                    "this llama.cpp build has no GPU support; use gpu layers 0, or rebuild with GGML_CUDA or GGML_METAL"
                )
        _check_choice("kv type", self.kv_type, tuple(binding.KV_TYPES))
        _check_choice("buffers", self.buffers, ("auto", "repack", "none"))
        _check_choice("flash attention", self.flash_attn, ("auto", "on", "off"))
        _check_int("sequences", self.sequences, 1, 256)
        _check_int("max width", self.max_width, 1, 512)
        if self.kv_quantized and self.flash_attn == "off":
            raise BadRequestError(f"kv type {self.kv_type} needs flash attention; use --flash-attn on or --kv-type f16")

    @property
    def kv_quantized(self) -> bool:
        return self.kv_type not in ("f32", "f16", "bf16")

    @property
    def offload(self) -> int:
        """Layers to offload, resolved: -1 all, 0 none."""
        if self.gpu_layers is not None:
            return self.gpu_layers
        return -1 if binding.supports_gpu_offload() else 0

    @property
    def flash_attention(self) -> int:
        """llama.cpp's enum value, resolved."""
        if self.flash_attn != "auto":
            return binding.FLASH_ATTN[self.flash_attn]
        if self.kv_quantized:
            return binding.FLASH_ATTN["on"]
        return binding.FLASH_ATTN["auto" if self.offload else "off"]

    @property
    def n_threads(self) -> int:
        return self.threads or physical_cores()


def _check_int(name: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        shown = "NaN" if isinstance(value, float) and math.isnan(value) else repr(value)
        raise BadRequestError(f"{name} is {shown}; it must be a whole number from {low} to {high}")


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise BadRequestError(f"{name} is {value!r}; choose one of {', '.join(choices)}")
