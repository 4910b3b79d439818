"""How much memory a context takes, the largest sane default here, and what helps where it is too much."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil

from ..errors import BadRequestError
from .header import ArraySpan, Header, read_header
from .quoting import one_line

_KV_BYTES = {
    "f32": 4.0, "f16": 2.0, "bf16": 2.0,
    "q8_0": 34 / 32, "q5_1": 24 / 32, "q5_0": 22 / 32, "q4_1": 20 / 32, "q4_0": 18 / 32,
}  # fmt: skip
_KV_SHARE = 0.25  # of free memory: a chat must leave room for the browser beside it
_STEP = 256
MICRO_BATCH = 256  # rows of one compute graph: the attention scores of a chunk are this x context x heads


# Measured, bytes: tables of a token of the vocabulary with its logits in some rows, those of a merge, what else a model
# holds once it is loaded, and the program with its libraries.
_PER_TOKEN, _PER_MERGE, _MODEL = 250, 114, 6_000_000
PROGRAM = 56_000_000


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes. weights: all tensors.  kv: the cache of n_ctx tokens.  compute: work buffers at full context.

    vocabulary: its tables, and rows of logits.  program: Python and the libraries, whatever the model.
    """

    n_ctx: int
    weights: int
    kv: int
    compute: int
    vocabulary: int
    program: int = PROGRAM

    @property
    def total(self) -> int:
        return self.beside + self.program

    @property
    def beside(self) -> int:
        """What it adds where a program runs already."""
        return self.weights + self.kv + self.compute + self.vocabulary

    def __str__(self) -> str:
        parts = (self.total, self.weights, self.kv, self.compute + self.vocabulary, self.program)
        mb = [f"{n / 1e6:.0f} MB" for n in parts]
        return (
            f"{mb[0]} (weights {mb[1]}, KV cache {mb[2]}, work {mb[3]}, program {mb[4]}) at a context of {self.n_ctx}"
        )


def estimate(header: Header, n_ctx: int, *, kv_type: str = "f16", flash: bool = False) -> MemoryEstimate:
    """Memory of one model at a context of `n_ctx` tokens, from its header alone."""
    weights = sum(t.nbytes for t in header.tensors)
    kv = int(_kv_bytes_per_token(header) * _KV_BYTES[kv_type] * n_ctx)
    heads = _largest(header, "attention.head_count", 1)
    feed_forward = _largest(header, "feed_forward_length", 4 * (header.embedding_length or 0))
    rows = min(MICRO_BATCH, n_ctx)
    scores = 0 if flash else 4 * heads * n_ctx * rows
    compute = scores + 4 * rows * (n_ctx + 3 * feed_forward + 8 * (header.embedding_length or 0))
    merges = header.metadata.get("tokenizer.ggml.merges")
    n_merges = merges.count if isinstance(merges, ArraySpan) else 0
    vocabulary = _MODEL + _PER_TOKEN * header.tokenizer.vocab_size + _PER_MERGE * n_merges
    return MemoryEstimate(n_ctx, weights, kv, compute, vocabulary)


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


@dataclass(frozen=True, slots=True)
class Fit:
    """Bytes that are needed and that are free. advice: what would help, the mildest first; empty where all fits."""

    needed: int
    free: int
    advice: tuple[str, ...]

    @property
    def fits(self) -> bool:
        return self.needed <= self.free

    def __str__(self) -> str:
        if self.fits:
            return f"needs {_size(self.needed)} of the {_size(self.free)} that are free"
        return f"needs {_size(self.needed)}, but {_size(self.free)} are free: {', or '.join(self.advice)}"


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a model takes at a context, and whether that is free here. default: the context was not chosen."""

    estimate: MemoryEstimate
    fit: Fit
    default: bool


def forecast(header: Header, n_ctx: int | None, *, kv_type: str = "f16", flash: bool = False) -> Forecast:
    """Of one model, here and now. n_ctx: None: the default context. Raises BadRequestError."""
    if kv_type not in _KV_BYTES:
        raise BadRequestError(f"kv type is {kv_type!r}; choose one of {', '.join(_KV_BYTES)}")
    if n_ctx is not None and not 1 <= n_ctx <= 1 << 24:
        raise BadRequestError(f"context size is {n_ctx}; it must be a whole number from 1 to {1 << 24}")
    tokens = default_context(header, kv_type=kv_type, flash=flash) if n_ctx is None else n_ctx
    taken = estimate(header, tokens, kv_type=kv_type, flash=flash)
    return Forecast(taken, fit(header, tokens, kv_type=kv_type, flash=flash), n_ctx is None)


def fit(
    header: Header,
    n_ctx: int,
    *,
    kv_type: str = "f16",
    flash: bool = False,
    beside: int = 0,
    free: int | None = None,
    layers_on: str = "",
) -> Fit:
    """Does a model fit into memory at a context of `n_ctx` tokens, and if not, what would help?

    beside: bytes that a draft model takes.  free: bytes; None: what this machine has free now.  layers_on: name of a
    GPU whose free memory `free` is: then fewer layers are an answer too.
    """
    free = psutil.virtual_memory().available if free is None else free
    needed = estimate(header, n_ctx, kv_type=kv_type, flash=flash).total + beside
    if needed <= free:
        return Fit(needed, free, ())
    room = free - beside
    advice = []
    if context := largest_context(header, n_ctx, room, kv_type=kv_type, flash=flash):
        advice.append(f"--ctx-size {context} fits")
    if kv_type in ("f32", "f16", "bf16"):
        packed = estimate(header, n_ctx, kv_type="q8_0", flash=True)
        if packed.total <= room:
            advice.append("--kv-type q8_0 fits")
        elif (longer := largest_context(header, n_ctx, room, kv_type="q8_0", flash=True)) > context:
            advice.append(f"--kv-type q8_0 with --ctx-size {longer} fits")
    if layers_on and (layers := layers_that_fit(header, n_ctx, room, kv_type=kv_type, flash=flash)):
        advice.append(f"--gpu-layers {layers} fits on {layers_on}")
    if beside and needed - beside <= free:
        advice.append("--draft none fits")
    return Fit(needed, free, tuple(advice) or ("take a smaller model or a smaller quantization",))


def shortage(path: Path, draft: Path | None, n_ctx: int | None, *, kv_type: str, flash: bool) -> str | None:
    """A line on what helps where a model and its draft take more memory than is free; None where they fit.

    n_ctx: None: the default one. Raises as `read_header` does.
    """
    header = read_header(path)
    tokens = n_ctx or default_context(header, kv_type=kv_type, flash=flash)
    beside = 0
    if draft is not None:
        small = read_header(draft)
        beside = estimate(small, min(tokens, small.context_length or tokens), kv_type=kv_type, flash=flash).beside
    found = fit(header, tokens, kv_type=kv_type, flash=flash, beside=beside)
    return None if found.fits else f"{one_line(path.name)} with a context of {tokens} tokens {found}"


def largest_context(header: Header, at_most: int, room: int, *, kv_type: str = "f16", flash: bool = False) -> int:
    """The largest context, in steps of 256 tokens, that fits into `room` bytes; 0 where not even 512 tokens do."""
    low, high = 0, at_most // _STEP
    while low < high:
        middle = (low + high + 1) // 2
        if estimate(header, middle * _STEP, kv_type=kv_type, flash=flash).total <= room:
            low = middle
        else:
            high = middle - 1
    return low * _STEP if low >= 2 else 0


def layers_that_fit(header: Header, n_ctx: int, room: int, *, kv_type: str = "f16", flash: bool = False) -> int:
    """How many layers fit into `room` bytes of a GPU with their part of the cache and all work buffers; 0: none."""
    layers = header.block_count or 0
    if not layers:
        return 0
    taken = estimate(header, n_ctx, kv_type=kv_type, flash=flash)
    in_layers = sum(t.nbytes for t in header.tensors if t.name.startswith("blk."))
    each = (in_layers + taken.kv) / layers
    return max(0, min(layers, int((room - taken.compute) / each))) if each else layers


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
    value = header.metadata.get(f"{header.arch}.{key}")
    numbers = value if isinstance(value, tuple) else (value,)
    return max((n for n in numbers if isinstance(n, int) and not isinstance(n, bool) and n >= 0), default=default)


def _size(nbytes: int) -> str:
    return f"{nbytes / 1e9:.1f} GB" if nbytes >= 1e9 else f"{max(nbytes, 0) / 1e6:.0f} MB"
