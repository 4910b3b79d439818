"""What `edgespec tune` measured, as tables for people, and the question that it asks."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..costs import CostTable
from ..text import sanitize
from ..tuned import AS_IS, Trial
from ..tuning.choice import WIDTHS, best_draft, expected, speed
from ..tuning.process import Measured
from ..tuning.sweep import Sweep

_NOISY = 0.1  # of times that should be equal
_WIDTH = 160  # columns where stdout is no terminal


def print_tables(found: Measured, name: str) -> None:
    """Both roles on standard output, the best form of each marked."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDTH
    costs = found.target.trials[0].costs
    with console.capture() as capture:
        console.print(Text(sanitize(f"{name} as the target; speeds are relative to the file as it is")))
        console.print(_target(found.target, found.recommended))
        if found.draft is not None:
            console.print(Text("\nas the draft; speed-ups are over plain decoding of the target as it is"))
            console.print(_draft(found.draft, costs))
        spread = max(sweep.spread for sweep in (found.target, found.draft) if sweep is not None)
        line = f"The same file, measured several times, differed by up to {spread:.0%}"
        line += "; that is much, so run it again when the machine has nothing else to do." if spread > _NOISY else "."
        console.print(f"\n{line}", soft_wrap=True)
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def question(found: Measured, name: str) -> str:
    """Whether to take the recommended copy of the target, with what speaks for and against it."""
    original, best = found.target.trials[0], found.recommended
    speeds = ", ".join(f"{_rows(n)} {speed(original.costs, best.costs, n):.2f}x" for n in WIDTHS)
    return sanitize(
        f"Use the {best.type} copy in place of {name}? It is another model: perplexity {_change(best)}. "
        f"Speed: {speeds}. It takes {_megabytes(best)} of disk"
    )


def _target(sweep: Sweep, recommended: Trial) -> Table:
    original = sweep.trials[0]
    table = _table(("size", "ms a token", *map(_rows, WIDTHS), "perplexity", "change"))
    for trial in sweep.trials:
        table.add_row(
            trial.type,
            *_size_and_step(trial),
            *(f"{speed(original.costs, trial.costs, n):.2f}x" for n in WIDTHS),
            "" if trial.perplexity is None else f"{trial.perplexity.value:.2f}",
            "" if trial is original else _change(trial),
            "recommended" if trial is recommended and trial.type != AS_IS else "",
        )
    return table


def _draft(sweep: Sweep, target: CostTable) -> Table:
    best = best_draft(sweep.trials, target)
    table = _table(("size", "ms a token", "accepted at T = 1", "same likeliest token", "expected speed-up", "with K"))
    for trial in sweep.trials:
        row = [trial.type, *_size_and_step(trial)]
        if trial.agreement is not None:
            promise = expected(target, trial.costs, trial.agreement)
            row += [f"{trial.agreement.overlap:.1%}", f"{trial.agreement.top1:.1%}"]
            row += [f"{promise.speedup:.2f}x", str(promise.k)]
        table.add_row(*row, "best" if trial is best else "")
    return table


def _table(numbers: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("form", no_wrap=True)
    for column in numbers:
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    return table


def _size_and_step(trial: Trial) -> tuple[str, str]:
    return _megabytes(trial), f"{trial.costs.at(1):.1f}"


def _rows(count: int) -> str:
    return "plain" if count == 1 else f"{count} rows"


def _change(trial: Trial) -> str:
    own = trial.perplexity
    return "" if own is None else f"{own.change:+.1%} ± {own.error:.1%}"


def _megabytes(trial: Trial) -> str:
    return f"{trial.nbytes / 1e6:.1f} MB" if trial.nbytes < 1e8 else f"{trial.nbytes / 1e6:,.0f} MB"
