"""`edgespec pair`: which models may draft for one, why the others may not, and which pays best."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import BadRequestError, EdgeSpecError
from ..models import pairs
from ..models.header import Header, read_header
from ..models.memory import default_context
from ..models.names import resolve
from .options import SETTINGS
from .progress import Steps
from .tables import clean, human_bytes, print_table

if TYPE_CHECKING:
    from ..pairing import Candidate

_LEAST_GAIN = 1.03  # measured; less is noise
_LEAST_PROMISE = 1.05  # predicted; a draft takes memory, and a prediction may be wrong


@dataclass(frozen=True, slots=True)
class _Draft:
    """A candidate, with what was measured of it. note: why it was not."""

    candidate: Candidate
    measured: float | None = None
    note: str = ""

    @property
    def promised(self) -> float | None:
        promise = self.candidate.promise
        return None if promise is None else promise.speedup


@click.command("pair", context_settings=SETTINGS)
@click.argument("model")
@click.option("--measure", is_flag=True, help="Time each draft with MODEL: some minutes.")
@click.option("--forget", is_flag=True, help="Forget which draft was found best, and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list.")
@click.option("-q", "--quiet", is_flag=True, help="No progress and no notes on standard error.")
def pair(model: str, measure: bool, forget: bool, as_json: bool, quiet: bool) -> None:
    """List the drafts for MODEL: local models and those of the catalogue.

    Each with what it costs and promises, or with the exact reason why it may not draft. The best local one is
    remembered, and is the draft model from then on unless --draft says otherwise.
    """
    target = read_header(resolve(model))
    if forget:
        if measure or as_json:
            raise BadRequestError(f"--forget does not go with {'--measure' if measure else '--json'}; leave that out")
        click.echo("forgotten" if pairs.forget(target) else "no draft was remembered")
        return
    from ..pairing import candidates

    drafts = [_Draft(candidate) for candidate in candidates(target, default_context(target))]
    if measure:
        with Steps(show=not quiet) as steps:
            drafts = _measured(target, drafts, steps)
    best = _remember(target, drafts, measured=measure)
    if as_json:
        click.echo(json.dumps([_fact(draft, best) for draft in drafts]))
    else:
        _print(target, drafts, best)


def _measured(target: Header, drafts: list[_Draft], steps: Steps) -> list[_Draft]:
    """The same drafts with what was timed, the fastest first. One that cannot be loaded says why."""
    from ..pair_timing import WORKLOADS, measured_speedup

    done = []
    for draft in drafts:
        candidate = draft.candidate
        if candidate.path is None or candidate.promise is None or candidate.promise.cost_ratio >= 1:
            done.append(draft)
            continue
        steps.step(f"timing {candidate.name}")
        runs = [0]

        def progress(_: str, runs: list[int] = runs) -> None:
            runs[0] += 1
            steps.part(min(1.0, runs[0] / (4 * len(WORKLOADS))))

        try:
            speedup = measured_speedup(target.path, candidate.path, announce=steps.note, progress=progress)
            done.append(replace(draft, measured=speedup))
        except EdgeSpecError as error:
            done.append(replace(draft, note=clean(str(error))))
    return sorted(done, key=lambda d: (d.measured is None, -(d.measured or 0.0)))


def _remember(target: Header, drafts: list[_Draft], *, measured: bool) -> Path | None:
    """The file of the best draft, which is remembered. What was measured is not undone by what is only predicted."""
    known = pairs.pairing(target)
    usable = [d for d in drafts if d.candidate.compatible and d.candidate.path is not None and not d.note]
    if known is not None and known.measured and not measured:
        return known.draft
    if measured:
        usable = [d for d in usable if d.measured is not None]
    gain = _LEAST_GAIN if measured else _LEAST_PROMISE
    best = max(usable, key=lambda d: _speedup(d, measured), default=None)
    path = best.candidate.path if best is not None and _speedup(best, measured) >= gain else None
    if path is not None or (measured and usable):
        try:
            pairs.remember(target, None if path is None else read_header(path), measured=measured)
        except OSError as error:
            click.echo(clean(f"it cannot be remembered: {error}"), err=True)
    return path


def _speedup(draft: _Draft, measured: bool) -> float:
    return (draft.measured if measured else draft.promised) or 0.0


def _fact(draft: _Draft, best: Path | None) -> dict[str, Any]:
    """One item of --json."""
    candidate = draft.candidate
    promise, path = candidate.promise, candidate.path
    return {
        "draft": candidate.name,
        "path": None if path is None else os.fsencode(path).decode("utf-8", "replace"),
        "compatible": candidate.compatible,
        "reason": draft.note or candidate.reason or None,
        "memory_mb": None if candidate.memory is None else round(candidate.memory / 1e6, 1),
        "cost_ratio": None if promise is None else round(promise.cost_ratio, 4),
        "predicted_speedup": None if promise is None else round(promise.speedup, 3),
        "predicted_from": None if promise is None else promise.basis,
        "measured_speedup": None if draft.measured is None else round(draft.measured, 3),
        "best": path is not None and path == best,
    }


def _print(target: Header, drafts: list[_Draft], best: Path | None) -> None:
    if not drafts:
        click.echo("no other model is here; `edgespec pull` fetches one", err=True)
        return
    columns = ("draft", "fits", "memory", "cost", "predicted", "measured", "")
    right = ("memory", "cost", "predicted", "measured")
    print_table(columns, [_cells(draft, best) for draft in drafts], right=right)
    click.echo()
    if best is not None:
        name = next((d.candidate.name for d in drafts if d.candidate.path == best), best.name)
        click.echo(clean(f"from now on {name} drafts for {target.path.name} (--draft none: no model does)"))
    elif any(draft.measured is not None for draft in drafts):
        click.echo("no draft makes it faster here, so from now on none is used")
    elif (usual := pairs.partner(target)) is not None:
        click.echo(clean(f"{usual.line}; --measure tells whether it pays here"))
    else:
        click.echo("no draft that is here promises enough to be used unasked; --measure times those that fit")


def _cells(draft: _Draft, best: Path | None) -> tuple[str, ...]:
    candidate, promise = draft.candidate, draft.candidate.promise
    fits = {True: "yes", False: "no", None: "?"}[candidate.compatible]
    marks = "best" if candidate.path is not None and candidate.path == best else ""
    return (
        candidate.name,
        fits,
        "" if candidate.memory is None else human_bytes(candidate.memory),
        "" if promise is None else f"{promise.cost_ratio:.2f}",
        "" if promise is None else f"{promise.speedup:.2f}x",
        "" if draft.measured is None else f"{draft.measured:.2f}x",
        draft.note or candidate.reason or marks,
    )
