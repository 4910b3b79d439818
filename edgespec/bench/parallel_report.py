"""The outcome as the object of `bench --parallel --json` (docs/cli.md names every field)."""

from __future__ import annotations

from typing import Any

from ..api import LLM
from . import statistics as stats
from .parallel import Outcome
from .report import REGIMES, settings_json, with_mix
from .runner import Settings
from .statistics import Cell


def head(llm: LLM, settings: Settings, count: int) -> dict[str, Any]:
    """What it is measured on; while the model is loaded."""
    return {
        "model": llm.name,
        "draft": None if llm.draft is None else llm.draft.model.path.name,
        "regime": REGIMES[llm.target.model.buffers],
        "settings": settings_json(llm, settings),
        "parallel": count,
        "split_cache": llm.target.splits,
    }


def to_json(head: dict[str, Any], outcome: Outcome, seed: int) -> dict[str, Any]:
    """All measured numbers. seed: of the intervals."""
    rows = [_row(cell, outcome.mode.name, seed) for cell in with_mix(outcome.cells)]
    return {**head, "throughput": rows, "complete": outcome.stopped is None}


def _row(cell: Cell, mode: str, seed: int) -> dict[str, Any]:
    return {
        "workload": cell.workload,
        "mode": mode,
        "against": cell.mode,
        "groups": len(cell.pairs),
        "ratio": stats.median(cell.ratios),
        "ci": stats.bootstrap_interval(cell.ratios, seed=seed),
        "tokens_per_s": stats.rate(cell.runs),
        "their_tokens_per_s": stats.rate(cell.base),
        "tau": stats.tau(cell.runs),
        "acceptance": stats.acceptance(cell.runs),
        "per_group": [
            {
                "prompts": pair.prompt,
                "ratio": pair.ratio,
                "tokens": [run.tokens for run in pair.mode],
                "seconds": [run.seconds for run in pair.mode],
                "their_tokens": [run.tokens for run in pair.base],
                "their_seconds": [run.seconds for run in pair.base],
            }
            for pair in cell.pairs
        ],
    }
