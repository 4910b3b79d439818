"""The outcome as the object of `bench --json` (docs/cli.md names every field)."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from ..api import LLM
from ..sampling import SamplingParams
from . import statistics as stats
from .fixed import MIX, against_fixed
from .runner import VERIFY, Outcome, Settings
from .statistics import Cell

# The two regimes that are never mixed in a ratio: this CPU as it is, and the kernels of one without AMX.
REGIMES = {"auto": "native", "repack": "laptop", "none": "unpacked"}


def to_json(llm: LLM, outcome: Outcome, settings: Settings) -> dict[str, Any]:
    """All measured numbers, with the settings they hold for."""
    return {
        "model": llm.name,
        "draft": None if llm.draft is None else llm.draft.model.path.name,
        "regime": REGIMES[llm.target.model.buffers],
        "settings": settings_json(llm, settings),
        "cost_table": {str(w): ms for w, ms in zip(outcome.costs.widths, outcome.costs.ms, strict=True)},
        "draft_step_ms": outcome.draft_step_ms,
        "workloads": [_row(cell, outcome, settings.seed) for cell in outcome.cells],
        "auto_over_fixed": [
            {
                "workload": row.workload,
                "mode": row.mode,
                "prompts": len(row.ratios),
                "speedup_over_it": stats.median(row.ratios),
                "ci": stats.bootstrap_interval(row.ratios, seed=settings.seed),
            }
            for row in against_fixed(outcome.cells, outcome.costs, outcome.draft_step_ms)
        ],
        "peers": [_peer(cell, outcome, settings.seed) for cell in with_mix(outcome.peers)],
        "complete": outcome.stopped is None,
    }


def with_mix(cells: Sequence[Cell]) -> list[Cell]:
    """For each peer that met several workloads, a cell of all their prompts too."""
    by_peer: dict[str, list[Cell]] = {}
    for cell in cells:
        by_peer.setdefault(cell.mode, []).append(cell)
    mixes = []
    for peer, own in by_peer.items():
        if len(own) > 1:
            mixes.append(Cell(MIX, peer, own[0].temperature, tuple(pair for cell in own for pair in cell.pairs)))
    return [*cells, *mixes]


def settings_json(llm: LLM, settings: Settings) -> dict[str, Any]:
    loaded, params = llm.target.model.settings, SamplingParams()
    return {
        "threads": llm.target.n_threads,
        "ctx_size": llm.target.cells,
        "buffers": llm.target.model.buffers,
        "flash_attn": loaded.flash_attn,
        "kv_type": loaded.kv_type,
        "gpu_layers": loaded.offload,
        "max_tokens": settings.max_tokens,
        "seed": settings.seed,
        "raw": settings.raw,
        "verify": VERIFY,
        "top_k": params.top_k,
        "top_p": params.top_p,
        "min_p": params.min_p,
        "edgespec": version("edgespec"),
        "llama_cpp_python": version("llama-cpp-python"),
    }


def _row(cell: Cell, outcome: Outcome, seed: int) -> dict[str, Any]:
    runs, costs, step = cell.runs, outcome.costs, outcome.draft_step_ms
    return {
        "name": cell.workload,
        "prompts": len(cell.pairs),
        "mode": cell.mode,
        "temperature": cell.temperature,
        "speedup": stats.median(cell.ratios),
        "ci": stats.bootstrap_interval(cell.ratios, seed=seed),
        "tau": stats.tau(runs),
        "acceptance": stats.acceptance(runs),
        "per_position": stats.per_position(runs),
        "plain_tokens_per_s": stats.rate(cell.base),
        "tokens_per_s": stats.rate(runs),
        "calibrated_speedup": stats.calibrated_speedup(runs, costs, step),
        "predicted_ms": stats.predicted_ms(cell.pairs, costs, step),
        "measured_ms": stats.round_ms(runs),
        "prediction_error": stats.prediction_error(cell.pairs, costs, step),
        "plain_spread": stats.spread(cell.pairs),
        "per_prompt": [
            {
                "prompt": pair.prompt,
                "speedup": pair.ratio,
                "tau": stats.tau(pair.mode),
                "acceptance": stats.acceptance(pair.mode),
                "tokens": [run.tokens for run in pair.mode],
                "plain_tokens_per_s": stats.rate(pair.base),
                "tokens_per_s": stats.rate(pair.mode),
            }
            for pair in cell.pairs
        ],
    }


def _peer(cell: Cell, outcome: Outcome, seed: int) -> dict[str, Any]:
    return {
        "name": cell.mode,
        "workload": cell.workload,
        "mode": outcome.peer_mode.name,
        "prompts": len(cell.pairs),
        "speedup_over_peer": stats.median(cell.ratios),
        "ci": stats.bootstrap_interval(cell.ratios, seed=seed),
        "peer_tokens_per_s": stats.rate(cell.base),
    }
