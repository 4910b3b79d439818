"""How a model is loaded: validated before llama.cpp sees it, because it aborts on some of these."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ..errors import BadRequestError
from ..machine import physical_cores
from ..profile import Buffers
from . import binding

FlashAttention = Literal["auto", "on", "off"]
Progress = Callable[[float], None]

MIN_CONTEXT = 8
_WHOLE = {  # field: (its name in words, least, most)
    "n_ctx": ("context size", MIN_CONTEXT, 1 << 24),
    "n_batch": ("n_batch", 1, 1 << 16),
    "threads": ("threads", 1, 1024),
    "gpu_layers": ("gpu layers", -1, 10_000),
    "sequences": ("sequences", 1, 256),
    "max_width": ("max width", 1, 512),
}
_CHOICES = {
    "kv_type": ("kv type", tuple(binding.KV_TYPES)),
    "buffers": ("buffers", ("auto", "repack", "none")),
    "flash_attn": ("flash attention", ("auto", "on", "off")),
}
_OPTIONAL = ("n_ctx", "threads", "gpu_layers")  # may be None


def check_setting(field: str, value: object) -> None:
    """Raise BadRequestError unless a field of LoadSettings may have this value on some machine."""
    if field in _WHOLE and not (value is None and field in _OPTIONAL):
        _check_int(_WHOLE[field], value)
    elif field in _CHOICES:
        _check_choice(_CHOICES[field], value)


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadSettings:
    """Weights and context of one model.

    n_ctx: tokens of context; None: the model's own, capped by what fits in memory.  n_batch: tokens of
    one prompt chunk.  threads: None: physical cores.  gpu_layers: layers to offload, -1 all; None: all
    where the build can, else 0.  kv_type: one of binding.KV_TYPES (quantized ones need flash attention).
    buffers: "auto" lets llama.cpp choose weight layouts (AMX where the CPU has it), "repack" is the
    layout of a CPU without AMX, "none" the file's own (memory-mapped).  flash_attn: "auto" is off on CPU,
    where it is slower for few rows, and llama.cpp's choice on a GPU.  sequences: KV sequences held at
    once.  max_width: most rows one verification may score.  split: each sequence has an equal share of the context, in
    place of a claim on all of it: its rows are then not computed against what the others hold, but a decode in which
    sequences have different numbers of rows reads the weights several times.  mtp: load the layers for multi-token
    prediction, too.
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
    split: bool = False
    mtp: bool = False

    def __post_init__(self) -> None:
        for field in (*_WHOLE, *_CHOICES):
            check_setting(field, getattr(self, field))
        if not isinstance(self.split, bool):
            raise BadRequestError(f"split is {self.split!r}; it must be True or False")
        if self.gpu_layers and not binding.supports_gpu_offload():
            raise BadRequestError(
                "this llama.cpp build has no GPU support; use gpu layers 0, or rebuild with GGML_CUDA or GGML_METAL"
            )
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


def _check_int(bounds: tuple[str, int, int], value: object) -> None:
    name, low, high = bounds
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        shown = "NaN" if isinstance(value, float) and math.isnan(value) else repr(value)
        raise BadRequestError(f"{name} is {shown}; it must be a whole number from {low} to {high}")


def _check_choice(allowed: tuple[str, tuple[str, ...]], value: object) -> None:
    name, choices = allowed
    if value not in choices:
        raise BadRequestError(f"{name} is {value!r}; choose one of {', '.join(choices)}")
