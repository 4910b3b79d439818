"""Layers on a GPU: what they take of its memory, and what helps where that is more than is free there."""

from __future__ import annotations

from dataclasses import dataclass

from .header import Header
from .memory import Fit, estimate, less

_SPARE = 256_000_000  # a margin for what drivers and their matrix libraries take beside; not measured
_ROWS = 32  # of logits: the widest verification


@dataclass(frozen=True, slots=True)
class Gpu:
    """Where layers can go. name: of the device, or how many there are.  free: bytes, of all together."""

    name: str
    free: int


def gpu_bytes(header: Header, n_ctx: int, layers: int, *, kv_type: str = "f16", flash: bool = False) -> int:
    """GPU memory that so many layers take (-1: all), with their part of the cache and all work buffers.

    The output matrix counts as the first layer to go there: llama.cpp, src/llama-model.cpp.
    """
    count = header.block_count or 0
    if not layers or not count:
        return 0
    on_gpu = count if layers < 0 else min(layers - 1, count)
    taken = estimate(header, n_ctx, kv_type=kv_type, flash=flash)
    in_layers = sum(tensor.nbytes for tensor in header.tensors if tensor.name.startswith("blk."))
    sizes = {tensor.name: tensor.nbytes for tensor in header.tensors}
    output = sizes.get("output.weight", sizes.get("token_embd.weight", 0))  # one matrix may serve as both
    logits = 4 * _ROWS * header.tokenizer.vocab_size
    return (in_layers + taken.kv) * on_gpu // count + output + logits + taken.compute + _SPARE


def layers_that_fit(header: Header, n_ctx: int, room: int, *, kv_type: str = "f16", flash: bool = False) -> int:
    """How many layers, the output matrix among them, fit into `room` bytes of GPU memory; 0: none."""
    low, high = 0, (header.block_count or -1) + 1
    while low < high:
        middle = (low + high + 1) // 2
        if gpu_bytes(header, n_ctx, middle, kv_type=kv_type, flash=flash) <= room:
            low = middle
        else:
            high = middle - 1
    return low


def fit_on_gpu(
    header: Header,
    n_ctx: int,
    layers: int,
    gpu: Gpu,
    *,
    kv_type: str = "f16",
    flash: bool = False,
    heads: int = 0,
    beside: int = 0,
) -> Fit:
    """Do `layers` layers (-1: all) fit on `gpu` at a context of `n_ctx` tokens, and if not, what would help?

    heads, beside: bytes that draft heads and a draft model take there.
    """
    taken = gpu_bytes(header, n_ctx, layers, kv_type=kv_type, flash=flash)
    needed, room, where = taken + heads + beside, gpu.free - heads - beside, f" on {gpu.name}"
    if needed <= gpu.free:
        return Fit(needed, gpu.free, (), where)

    def at(context: int, kv: str, fast: bool) -> int:
        return gpu_bytes(header, context, layers, kv_type=kv, flash=fast)

    advice = list(less(n_ctx, room, at, kv_type, flash)) if taken else []
    if taken and (fewer := layers_that_fit(header, n_ctx, room, kv_type=kv_type, flash=flash)):
        advice.append(f"--gpu-layers {fewer} fits")
    if beside and needed - beside <= gpu.free:
        advice.append("--draft-gpu-layers 0 fits")
    if heads and needed - heads <= gpu.free:
        advice.append("--heads none fits")
    return Fit(needed, gpu.free, tuple(advice) or ("--gpu-layers 0 uses the CPU",), where)
