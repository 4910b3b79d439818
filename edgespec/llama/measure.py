"""Measured decode times by number of rows, kept on disk per file, build, machine and settings."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence

from edgespec.models.header import Header
from edgespec.models.identity import file_identity

from .. import profile_store
from ..costs import CostTable
from ..machine import identity
from ..paths import cache_dir, write_whole
from ..profile import Forced
from ..scoring import ScoreRequest
from .context import Context
from .profiling import applied
from .settings import LoadSettings

log = logging.getLogger(__name__)

WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)  # kernels work in groups of rows: these are where the curve bends
_DEEP_WIDTHS = (1, 4, 16)  # of the growth with context, which is smooth
_PASSES, _REPEATS = 2, 3  # the widths take turns: while one after another is measured, a machine changes its speed
_SLOW_STEP_MS = 50.0  # of a model for which one pass must do
_WARM_UP, _WARM_UP_MS = 4, 500.0  # at least: first touches of weights and buffers, and a processor that has rested
_STEPS, _STEPS_MS = 4, 100.0  # at least, of decodes of each model whose least time anchors a table
_STEPS_IN_ALL, _LONG_MS = 150, 1000.0  # a measurement takes about as long as so many plain decodes
_DEPTH = 64  # tokens in the cache while measuring
_DEEP, _LEAST_DEEP, _READING_MS = 1024, 256, 2500.0  # of the second, deeper measurement; time to read so far


def cost_table(context: Context, *, announce: Callable[[str], None] | None = None) -> CostTable:
    """The remembered table of this model under these settings, measured now where there is none.

    From here on the context's decodes are padded where the table says that this is faster, and so is the table.
    announce: told one line before a measurement that takes more than a second.
    """
    widths = tuple(w for w in WIDTHS if w <= context.max_width)
    table = _remembered(_key(context), widths)
    if table is None:
        context.model.padding = {}
        table = measure(context, widths, announce=announce)
        _remember(context, table)
    if context.model.recurrent:  # a snapshot of the state would be spent on padding
        return table
    context.model.padding = table.padding
    return table.padded()


def steps(contexts: Sequence[Context]) -> list[float]:
    """Milliseconds of a decode of one row now, of each: the least of some, with those of the others between them.

    A table may have been measured when the machine was in another state; a draft model beside its target finds less of
    its weights in the processor's caches than alone.
    """
    sequences = [context.sequence(()) for context in contexts]
    least = [math.inf] * len(contexts)
    for repeat, _ in enumerate(_for(_STEPS_MS * len(contexts), _STEPS + 1)):
        for i, (context, sequence) in enumerate(zip(contexts, sequences, strict=True)):
            with context.turn:
                tokens = _text(context, min(_DEPTH, context.n_ctx - 1))
                begin = time.perf_counter()
                context.score([ScoreRequest(sequence, tokens)])
                if repeat:  # the first one reads the text
                    least[i] = min(least[i], 1000 * (time.perf_counter() - begin))
    for sequence in sequences:
        sequence.truncate(0)
        sequence.close()
    return least


def known_costs(header: Header) -> CostTable | None:
    """The table of a file at the settings that it is loaded with if none is forced; None: it was not measured so."""
    profile = profile_store.remembered(header, Forced())
    settings = LoadSettings() if profile is None else applied(LoadSettings(), profile)
    table = _remembered(_name(header, settings, settings.buffers, settings.n_threads), WIDTHS)
    return None if table is None else table.padded()


def forget(context: Context) -> None:
    """Measure again at the next load: the table no longer fits."""
    (cache_dir() / "costs" / f"{_key(context)}.json").unlink(missing_ok=True)


def measure(context: Context, widths: tuple[int, ...], *, announce: Callable[[str], None] | None = None) -> CostTable:
    """Median milliseconds of a decode at each width behind a short text, and their growth towards a long one."""
    depth = min(_DEPTH, context.n_ctx - max(widths) - 1)
    if depth < 1:
        return CostTable((1,), (1.0,))
    sequence = context.sequence(())
    with context.turn:
        tokens = _text(context, depth)
        for _ in _for(_WARM_UP_MS, _WARM_UP):
            context.score([ScoreRequest(sequence, tokens)])
        times: dict[int, list[float]] = {width: [] for width in widths}
        for number in range(_PASSES):
            if number and statistics.median(times[widths[0]]) > _SLOW_STEP_MS:
                break
            for width in widths:
                times[width] += _decode_times(context, sequence, tokens, width)
                if announce and not number and width == 1 and min(times[1]) * _STEPS_IN_ALL > _LONG_MS:
                    announce(f"measuring how fast {context.model.path.name} decodes here (once)")
        found = [statistics.median(times[width]) for width in widths]
        deep = _deep(context, found[-1] / widths[-1])
        growth: tuple[float, ...] = ()
        if deep > 2 * depth:
            tokens = _text(context, deep)
            some = [w for w in _DEEP_WIDTHS if w in widths]
            grown = [
                (statistics.median(_decode_times(context, sequence, tokens, w)) - found[widths.index(w)])
                / (deep - depth)
                for w in some
            ]
            smooth = CostTable(tuple(some), tuple(max(g, 1e-6) for g in grown))
            growth = tuple(smooth.at(w) for w in widths)
    sequence.truncate(0)
    sequence.close()
    return CostTable(widths, tuple(found), depth, growth, deep if growth else 0)


def _for(ms: float, times: int) -> Iterator[None]:
    """So many times, and on until so many milliseconds have passed."""
    end = time.perf_counter() + ms / 1000
    while times > 0 or time.perf_counter() < end:
        yield
        times -= 1


def _decode_times(context: Context, sequence: object, tokens: list[int], width: int) -> list[float]:
    """Milliseconds of some decodes of `width` rows behind `tokens`."""
    request = ScoreRequest(sequence, tokens, tuple(tokens[i % len(tokens)] for i in range(width - 1)))
    context.score([request])  # graphs are built at a width's first use
    times = []
    for _ in range(_REPEATS):
        begin = time.perf_counter()
        context.score([request])
        times.append(1000 * (time.perf_counter() - begin))
    return times


def _text(context: Context, length: int) -> list[int]:
    """Any tokens do: the time of a decode does not depend on which they are."""
    return [(7 * i + 1) % context.vocab.size for i in range(length)]


def _deep(context: Context, token_ms: float) -> int:
    """Tokens of the deeper context: as far as can be read in short time. token_ms: of reading one, at most."""
    affordable = max(_LEAST_DEEP, int(_READING_MS / max(token_ms, 1e-6)))
    return min(_DEEP, affordable, context.n_ctx - max(_DEEP_WIDTHS) - 1)


def _remembered(key: str, widths: tuple[int, ...]) -> CostTable | None:
    try:
        record = json.loads((cache_dir() / "costs" / f"{key}.json").read_text("utf-8"))
        table = CostTable(
            tuple(map(int, record["widths"])),
            tuple(map(float, record["ms"])),
            int(record["depth"]),
            tuple(map(float, record["growth"])),
            int(record["reach"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    sound = table.widths == widths and len(table.ms) == len(widths) and len(table.growth) in (0, len(widths))
    sound = sound and all(0 < ms < 1e6 for ms in table.ms) and all(0 <= g < 1e3 for g in table.growth)
    return table if sound else None


def _remember(context: Context, table: CostTable) -> None:
    path = cache_dir() / "costs" / f"{_key(context)}.json"
    fields = {name: getattr(table, name) for name in CostTable.__dataclass_fields__}
    try:
        write_whole(path, json.dumps(fields))
    except OSError as error:
        log.info("decode times are not remembered: %s", error)


def _key(context: Context) -> str:
    return _name(context.model.header, context.settings, context.model.buffers, context.n_threads)


def _name(header: Header, settings: LoadSettings, buffers: str, threads: int) -> str:
    parts = (
        file_identity(header),
        identity(),
        buffers,
        threads,
        settings.offload,
        settings.flash_attention,
        settings.kv_type,
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
