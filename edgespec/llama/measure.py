"""Measured decode times by number of rows, kept on disk per file, build, machine and settings."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import statistics
import time
from collections.abc import Callable

from edgespec.models.header import Header

from ..paths import cache_dir
from ..planning import CostTable
from ..scoring import ScoreRequest
from .context import Context
from .probe import identity

log = logging.getLogger(__name__)

WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16)  # kernels work in groups of rows: these are where the curve bends
_REPEATS = 5
_WARM_UP = 4
_STEPS_IN_ALL, _SLOW_MS = 90, 1000.0  # a measurement takes about as long as so many plain decodes
_DEPTH = 64  # tokens in the cache while measuring; deeper contexts are followed while generating
_SAMPLED_BYTES = 1 << 16


def cost_table(context: Context, *, announce: Callable[[str], None] | None = None) -> CostTable:
    """The remembered table of this model under these settings, measured now where there is none.

    announce: told one line before a measurement that takes more than a second.
    """
    path = cache_dir() / "costs" / f"{_key(context)}.json"
    widths = tuple(w for w in WIDTHS if w <= context.max_width)
    try:
        record = json.loads(path.read_text("utf-8"))
        table = CostTable(tuple(map(int, record["widths"])), tuple(map(float, record["ms"])))
        if table.widths == widths and len(table.ms) == len(widths) and all(0 < ms < 1e6 for ms in table.ms):
            return table
    except (OSError, ValueError, KeyError, TypeError):
        pass
    table = measure(context, widths, announce=announce)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(json.dumps({"widths": table.widths, "ms": table.ms}), "utf-8")
        temporary.replace(path)
    except OSError as error:
        log.info("decode times are not remembered: %s", error)
    return table


def forget(context: Context) -> None:
    """Measure again at the next load: the table no longer fits."""
    (cache_dir() / "costs" / f"{_key(context)}.json").unlink(missing_ok=True)


def measure(context: Context, widths: tuple[int, ...], *, announce: Callable[[str], None] | None = None) -> CostTable:
    """Median milliseconds of a decode at each width, after a short text."""
    depth = min(_DEPTH, context.n_ctx - max(widths) - 1)
    if depth < 1:
        return CostTable((1,), (1.0,))
    # Any tokens do: the time of a decode does not depend on which they are.
    tokens = [(7 * i + 1) % context.vocab.size for i in range(depth)]
    sequence = context.sequence(tokens)
    found = []
    with context.turn:
        for _ in range(_WARM_UP):  # first touches of weights and buffers are no decode times
            context.score([ScoreRequest(sequence, tokens)])
        for width in widths:
            request = ScoreRequest(sequence, tokens, tuple(tokens[i % depth] for i in range(width - 1)))
            context.score([request])  # graphs are built at a width's first use
            times = []
            for _ in range(_REPEATS):
                begin = time.perf_counter()
                context.score([request])
                times.append(1000 * (time.perf_counter() - begin))
            found.append(statistics.median(times))
            if announce and width == 1 and found[0] * _STEPS_IN_ALL > _SLOW_MS:
                announce(f"measuring how fast {context.model.path.name} decodes here (once)")
    sequence.truncate(0)
    sequence.close()
    return CostTable(widths, tuple(found))


def _key(context: Context) -> str:
    settings = context.model.settings
    parts = (
        _file_identity(context.model.header),
        identity(),
        context.model.buffers,
        context.n_threads,
        settings.offload,
        settings.flash_attention,
        settings.kv_type,
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def _file_identity(header: Header) -> str:
    """A hash of size and samples of the file: reading a gigabyte at each load would cost more than it saves."""
    digest = hashlib.sha256(str(header.file_size).encode())
    with header.path.open("rb") as file:
        for place in (0, header.data_start, header.file_size // 2, header.file_size - _SAMPLED_BYTES):
            file.seek(max(0, place))
            digest.update(file.read(_SAMPLED_BYTES))
    return digest.hexdigest()
