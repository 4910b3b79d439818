"""How much memory a context takes, the largest sane default here, and what helps where it is too much."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..errors import BadRequestError
from ..machine import free_memory
from .header import ArraySpan, Header

_KV_BYTES = {
    "f32": 4.0, "f16": 2.0, "bf16": 2.0,
    "q8_0": 34 / 32, "q5_1": 24 / 32, "q5_0": 22 / 32, "q4_1": 20 / 32, "q4_0": 18 / 32,
}  # fmt: skip
_KV_SHARE = 0.25  # of free memory: a chat must leave room for the browser beside it
_STEP = 256
MICRO_BATCH = 256  # rows of one compute graph: the attention scores of a chunk are this x context x heads


Heads = Callable[[int, str, bool], int]
"""Bytes that draft heads take beside a model: (tokens of context, type of the KV cache, flash attention)."""


def no_heads(n_ctx: int, kv_type: str, flash: bool) -> int:
    """A model without heads."""
    return 0


# Measured, bytes: tables of a token of the vocabulary with its logits in some rows, those of a merge, what else a model
# holds once it is loaded, and the program with its libraries.
_PER_TOKEN, _PER_MERGE, _MODEL = 250, 114, 6_000_000
PROGRAM = 56_000_000


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes. weights: all tensors.  kv: the cache of n_ctx tokens.  compute: work buffers at full context.

    vocabulary: its tables, and rows of logits.  program: Python and the libraries, whatever the model.
    heads: draft heads that are loaded with it.
    """

    n_ctx: int
    weights: int
    kv: int
    compute: int
    vocabulary: int
    program: int = PROGRAM
    heads: int = 0

    @property
    def total(self) -> int:
        return self.beside + self.program

    @property
    def beside(self) -> int:
        """What it adds where a program runs already."""
        return self.weights + self.kv + self.compute + self.vocabulary + self.heads

    def __str__(self) -> str:
        parts = {
            "weights": self.weights,
            "draft heads": self.heads,
            "KV cache": self.kv,
            "work": self.compute + self.vocabulary,
            "program": self.program,
        }
        named = ", ".join(f"{name} {_size(size)}" for name, size in parts.items() if size or name != "draft heads")
        return f"{_size(self.total)} ({named}) at a context of {self.n_ctx}"


def estimate(
    header: Header, n_ctx: int, *, kv_type: str = "f16", flash: bool = False, heads: Heads = no_heads
) -> MemoryEstimate:
    """Memory of one model at a context of `n_ctx` tokens, from its header alone. heads: what is loaded with it."""
    weights = sum(t.nbytes for t in header.tensors)
    kv = int(_kv_bytes_per_token(header) * _KV_BYTES[kv_type] * n_ctx)
    query_heads = _largest(header, "attention.head_count", 1)
    feed_forward = _largest(header, "feed_forward_length", 4 * (header.embedding_length or 0))
    rows = min(MICRO_BATCH, n_ctx)
    # float32, and once more as float16 for the product with the values
    scores = 0 if flash else (4 + 2) * query_heads * n_ctx * rows
    masks = 2 if not flash and _largest(header, "attention.sliding_window", 0) else 1
    compute = scores + 4 * rows * (masks * n_ctx + 3 * feed_forward + 8 * (header.embedding_length or 0))
    merges = header.metadata.get("tokenizer.ggml.merges")
    n_merges = merges.count if isinstance(merges, ArraySpan) else 0
    vocabulary = _MODEL + _PER_TOKEN * header.tokenizer.vocab_size + _PER_MERGE * n_merges
    return MemoryEstimate(n_ctx, weights, kv, compute, vocabulary, heads=heads(n_ctx, kv_type, flash))


def default_context(
    header: Header, *, kv_type: str = "f16", flash: bool = False, heads: Heads = no_heads, free: int | None = None
) -> int:
    """min(the model's own context, what fits in a quarter of free memory beside weights and heads), in tokens."""
    free = free_memory() if free is None else free
    trained = header.context_length or 4096
    first, second = (
        estimate(header, tokens, kv_type=kv_type, flash=flash, heads=heads) for tokens in (_STEP, 2 * _STEP)
    )
    budget = max(0, free - first.weights - first.heads) * _KV_SHARE
    per_step = max(1, second.total - first.total)
    fits = max(2 * _STEP, int(budget / per_step) * _STEP)
    return min(trained, fits)


@dataclass(frozen=True, slots=True)
class Fit:
    """Bytes that are needed and that are free. advice: what would help, the mildest first; empty where all fits.

    where: names other memory than the machine's, such as " on CUDA0".
    """

    needed: int
    free: int
    advice: tuple[str, ...]
    where: str = ""

    @property
    def fits(self) -> bool:
        return self.needed <= self.free

    def __str__(self) -> str:
        if self.fits:
            return f"needs {_size(self.needed)} of the {_size(self.free)} that are free{self.where}"
        return f"{self.short}: {', or '.join(self.advice)}"

    @property
    def short(self) -> str:
        """What is lacking, where it does not fit."""
        return f"needs {_size(self.needed)}, but {_size(self.free)} are free{self.where}"


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a model takes at a context, and whether that is free here. default: the context was not chosen."""

    estimate: MemoryEstimate
    fit: Fit
    default: bool


def forecast(
    header: Header, n_ctx: int | None, *, kv_type: str = "f16", flash: bool = False, heads: Heads = no_heads
) -> Forecast:
    """Of one model, here and now. n_ctx: None: the default context. Raises BadRequestError."""
    if kv_type not in _KV_BYTES:
        raise BadRequestError(f"kv type is {kv_type!r}; choose one of {', '.join(_KV_BYTES)}")
    if n_ctx is not None and not 1 <= n_ctx <= 1 << 24:
        raise BadRequestError(f"context size is {n_ctx}; it must be a whole number from 1 to {1 << 24}")
    tokens = default_context(header, kv_type=kv_type, flash=flash, heads=heads) if n_ctx is None else n_ctx
    taken = estimate(header, tokens, kv_type=kv_type, flash=flash, heads=heads)
    return Forecast(taken, fit(header, tokens, kv_type=kv_type, flash=flash, heads=heads), n_ctx is None)


def fit(
    header: Header,
    n_ctx: int,
    *,
    kv_type: str = "f16",
    flash: bool = False,
    heads: Heads = no_heads,
    beside: int = 0,
    free: int | None = None,
) -> Fit:
    """Does a model fit into memory at a context of `n_ctx` tokens, and if not, what would help?

    heads: draft heads that are loaded with it.  beside: bytes that a draft model takes.  free: bytes; None: what is
    free here now.
    """
    free = free_memory() if free is None else free

    def at(context: int, kv: str, fast: bool) -> int:
        return estimate(header, context, kv_type=kv, flash=fast, heads=heads).total

    needed = at(n_ctx, kv_type, flash) + beside
    if needed <= free:
        return Fit(needed, free, ())
    advice = list(less(n_ctx, free - beside, at, kv_type, flash))
    if beside and needed - beside <= free:
        advice.append("--draft none fits")
    if (theirs := heads(n_ctx, kv_type, flash)) and needed - theirs <= free:
        advice.append("--heads none fits")
    return Fit(needed, free, tuple(advice) or ("take a smaller model or a smaller quantization",))


def less(n_ctx: int, room: int, taken: Callable[[int, str, bool], int], kv_type: str, flash: bool) -> Iterator[str]:
    """Options that make a model take at most `room` bytes. taken: bytes by context, KV type and flash attention."""
    if context := largest_context(n_ctx, room, lambda tokens: taken(tokens, kv_type, flash)):
        yield f"--ctx-size {context} fits"
    if kv_type in ("f32", "f16", "bf16"):
        if taken(n_ctx, "q8_0", True) <= room:
            yield "--kv-type q8_0 fits"
        elif (longer := largest_context(n_ctx, room, lambda tokens: taken(tokens, "q8_0", True))) > context:
            yield f"--kv-type q8_0 with --ctx-size {longer} fits"


def largest_context(at_most: int, room: int, taken: Callable[[int], int]) -> int:
    """The largest context, in steps of 256 tokens, that fits into `room` bytes; 0 where not even 512 tokens do.

    taken: bytes by context.
    """
    low, high = 0, at_most // _STEP
    while low < high:
        middle = (low + high + 1) // 2
        if taken(middle * _STEP) <= room:
            low = middle
        else:
            high = middle - 1
    return low * _STEP if low >= 2 else 0


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
