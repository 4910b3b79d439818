"""Auto against the best fixed source and K: chosen by counts on half of the prompts, compared on the other half."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..costs import CostTable
from . import statistics as stats
from .modes import AUTO, PLAIN
from .statistics import Cell, Run

MIX = "all"  # the name of what is measured over all workloads together


@dataclass(frozen=True, slots=True)
class AgainstFixed:
    """workload: its name, or MIX.  mode: the best fixed one.  ratios: auto's tokens/s over its, one for each prompt
    of the half that the choice has not seen."""

    workload: str
    mode: str
    ratios: tuple[float, ...]


def against_fixed(cells: Sequence[Cell], costs: CostTable, draft_step_ms: float | None) -> list[AgainstFixed]:
    """A comparison for each workload, and one for one setting over all of them if there are several.

    Nothing where auto or a fixed mode was not run, or has fewer than two prompts.
    """
    groups = {name: [c for c in cells if c.workload == name] for name in dict.fromkeys(c.workload for c in cells)}
    if len(groups) > 1:
        groups[MIX] = list(cells)
    found = [_best(name, group, costs, draft_step_ms) for name, group in groups.items()]
    return [one for one in found if one is not None]


def _best(name: str, cells: Sequence[Cell], costs: CostTable, draft_step_ms: float | None) -> AgainstFixed | None:
    seen: dict[str, list[Run]] = {}
    unseen: dict[str, dict[tuple[str, str], float]] = {}
    for cell in cells:
        seen.setdefault(cell.mode, []).extend(run for pair in cell.pairs[0::2] for run in pair.mode)
        ratios = {(cell.workload, pair.prompt): pair.ratio for pair in cell.pairs[1::2]}
        unseen.setdefault(cell.mode, {}).update({key: ratio for key, ratio in ratios.items() if ratio})
    counted = {mode: stats.calibrated_speedup(runs, costs, draft_step_ms) for mode, runs in seen.items()}
    speeds = {mode: speed for mode, speed in counted.items() if speed and mode not in (AUTO.name, PLAIN.name)}
    if not speeds:
        return None
    best = max(speeds, key=speeds.__getitem__)
    fixed, auto = unseen[best], unseen.get(AUTO.name, {})
    both = tuple(auto[key] / fixed[key] for key in auto if key in fixed)
    return AgainstFixed(name, best, both) if both else None
