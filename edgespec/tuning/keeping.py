"""Puts the chosen copies in place and writes down what was found."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, replace
from pathlib import Path

from edgespec.models.header import read_header

from ..tuned import AS_IS, Finding, Record, Role, Trial, folder_of, record_of, write_record
from .choice import best_draft, best_target
from .sweep import Sweep


@dataclass(frozen=True, slots=True)
class Used:
    """What a role uses from now on. type: AS_IS, or of the copy at `path`."""

    type: str
    path: Path


@dataclass(frozen=True, slots=True)
class Kept:
    """For both roles; draft None: there is none."""

    target: Used
    draft: Used | None


def keep(target: Path, draft: Path | None, target_sweep: Sweep, draft_sweep: Sweep | None, answer: bool | None) -> Kept:
    """Act on the answer: True takes the recommended target, False the file as it is, None what was used before.

    The draft follows without a question: it changes speed alone. Raises OSError.
    """
    original, costs = target_sweep.trials[0], target_sweep.trials[0].costs
    record = record_of(read_header(target))
    before = None if record is None else record.target
    if len(target_sweep.trials) == 1 or (answer is None and before is not None and before.file is not None):
        used = _in_use(target, before)
    else:
        chosen = best_target(target_sweep.trials) if answer else original
        used, costs = _install(target, "target", chosen, target_sweep, None), chosen.costs
    if draft is None or draft_sweep is None:
        return Kept(used, None)
    best = best_draft(draft_sweep.trials, costs)
    return Kept(used, _install(draft, "draft", best, draft_sweep, target.name))


def _install(path: Path, role: Role, chosen: Trial, found: Sweep, target: str | None) -> Used:
    """Move the copy to its place, then name it in the record: interrupted in between, it is not used."""
    header, file = read_header(path), None
    folder = folder_of(header)
    if chosen.type != AS_IS:
        copy = found.files[chosen.type]
        file = copy.name
        folder.mkdir(parents=True, exist_ok=True)
        copy.replace(folder / file)
    finding = Finding(chosen.type, file, chosen.nbytes, datetime.date.today().isoformat(), target, found.trials)
    record = replace(record_of(header) or Record(""), original=str(path.absolute()))
    write_record(folder, replace(record, target=finding) if role == "target" else replace(record, draft=finding))
    return Used(chosen.type, path if file is None else folder / file)


def _in_use(path: Path, finding: Finding | None) -> Used:
    if finding is None or finding.file is None:
        return Used(AS_IS, path)
    return Used(finding.type, folder_of(read_header(path)) / finding.file)
