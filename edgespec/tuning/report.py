"""The object of `tune --json` (docs/cli.md)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..costs import CostTable
from ..tuned import Trial
from .choice import WIDTHS, expected, gain, speed
from .keeping import Kept, Used
from .loading import Models
from .process import Measured
from .sweep import Sweep


def to_json(models: Models, measured: Measured, kept: Kept) -> dict[str, Any]:
    """All that was measured, and what came of it."""
    target, draft = measured.target, measured.draft
    # A target copy that an earlier run chose was not measured now: the file itself stands for it.
    costs = next((t.costs for t in target.trials if t.type == kept.target.type), target.trials[0].costs)
    return {
        "model": _text(models.target),
        "draft": None if models.draft is None else _text(models.draft),
        "target": {
            **_used(kept.target),
            "recommended": measured.recommended.type,
            "spread": target.spread,
            "trials": [_target(trial, target.trials) for trial in target.trials],
        },
        "drafting": None if draft is None or kept.draft is None else _drafting(draft, costs, kept.draft),
    }


def _used(used: Used) -> dict[str, Any]:
    return {"used": used.type, "path": _text(used.path)}


def _drafting(found: Sweep, target: CostTable, used: Used) -> dict[str, Any]:
    return {**_used(used), "spread": found.spread, "trials": [_draft(trial, target) for trial in found.trials]}


def _target(trial: Trial, trials: Sequence[Trial]) -> dict[str, Any]:
    original, own = trials[0].costs, trial.perplexity
    return {
        **_form(trial),
        "speed": {str(rows): speed(original, trial.costs, rows) for rows in WIDTHS},
        "gain": gain(original, trial.costs),
        "perplexity": None if own is None else own.value,
        "perplexity_change": None if own is None else own.change,
        "perplexity_error": None if own is None else own.error,
    }


def _draft(trial: Trial, target: CostTable) -> dict[str, Any]:
    agreed = trial.agreement
    promise = None if agreed is None else expected(target, trial.costs, agreed)
    return {
        **_form(trial),
        "overlap": None if agreed is None else agreed.overlap,
        "top1": None if agreed is None else agreed.top1,
        "positions": None if agreed is None else agreed.positions,
        "expected_speedup": None if promise is None else promise.speedup,
        "k": None if promise is None else promise.k,
    }


def _form(trial: Trial) -> dict[str, Any]:
    times = zip(trial.costs.widths, trial.costs.ms, strict=True)
    return {"type": trial.type, "bytes": trial.nbytes, "ms": {str(width): ms for width, ms in times}}


def _text(path: Path) -> str:
    return os.fsencode(path).decode("utf-8", "replace")
