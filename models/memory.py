"""How much memory a context takes, and the largest sane default context for this machine."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from .header import Header

_KV_BYTES = {
    "f32": 4.0, "f16": 2.0, "bf16": 2.0,
    "q8_0": 34 / 32, "q5_1": 24 / 32, "q5_0": 22 / 32, "q4_1": 20 / 32, "q4_0": 18 / 32,
}  # fmt: skip
_KV_SHARE = 0.25  # of free memory: a chat must leave room for the browser beside it
_STEP = 256
MICRO_BATCH = 256  # rows of one compute graph: the attention scores of a chunk are this x context x heads


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes. weights: all tensors.  kv: the cache of n_ctx tokens.  compute: work buffers at full context."""

    n_ctx: int
    weights: int
    kv: int
    compute: int

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.compute

    def __str__(self) -> str:
        mb = [f"{n / 1e6:.0f} MB" for n in (self.total, self.weights, self.kv, self.compute)]
        return f"{mb[0]} (weights {mb[1]}, KV cache {mb[2]}, work {mb[3]}) at a context of {self.n_ctx}"


def estimate(header: Header, n_ctx: int, *, kv_type: str = "f16", flash: bool = False) -> MemoryEstimate:
    """Memory of one model at a context of `n_ctx` tokens, from its header alone."""
    weights = sum(t.nbytes for t in header.tensors)
    kv = int(_kv_bytes_per_token(header) * _KV_BYTES[kv_type] * n_ctx)
    heads = _largest(header, "attention.head_count", 1)
    feed_forward = _largest(header, "feed_forward_length", 4 * (header.embedding_length or 0))
    rows = min(MICRO_BATCH, n_ctx)
    scores = 0 if flash else 4 * heads * n_ctx * rows
    compute = scores + 4 * rows * (n_ctx + 3 * feed_forward + 8 * (header.embedding_length or 0))
    return MemoryEstimate(n_ctx, weights, kv, compute)


def default_context(header: Header, *, kv_type: str = "f16", flash: bool = False, free: int | None = None) -> int:
    """min(the model's own context, what fits in a quarter of free memory beside the weights), in tokens."""
    free = psutil.virtual_memory().available if free is None else free
    trained = header.context_length or 4096
    weights = sum(t.nbytes for t in header.tensors)
    budget = max(0, free - weights) * _KV_SHARE
    first, second = (
        estimate(header, _STEP, kv_type=kv_type, flash=flash),
        estimate(header, 2 * _STEP, kv_type=kv_type, flash=flash),
    )
    per_step = max(1, (second.kv + second.compute) - (first.kv + first.compute))
    fits = max(2 * _STEP, int(budget / per_step) * _STEP)
    return min(trained, fits)


def _kv_bytes_per_token(header: Header) -> float:
    """Cached values per token over all layers: keys and values of each KV head."""
    layers = header.block_count or 0
    heads = header.head_count_kv
    query_heads = _largest(header, "attention.head_count", 1)
    head_size = (header.embedding_length or 0) // max(1, query_heads)
    key = _largest(header, "attention.key_length", head_size)
    value = _largest(header, "attention.value_length", head_size)
    if isinstance(heads, tuple):  # hybrids: 0 where a layer has no attention
        total = sum(heads)
    else:
        total = layers * (heads if heads is not None else query_heads)
    return total * (key + value)


def _largest(header: Header, key: str, default: int) -> int:
    value = header.metadata.get(f"{header.arch}.{key}", default)
    if isinstance(value, tuple):
        return max((int(v) for v in value if isinstance(v, int)), default=default)
    return int(value) if isinstance(value, int | float) else default
