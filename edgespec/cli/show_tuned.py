"""What `edgespec show` says of a file that `edgespec tune` has measured."""

from __future__ import annotations

from typing import Any

from ..models.header import Header
from ..tuned import AS_IS, ROLES, Finding, Record, Role, folder_of
from ..tuning.choice import speed


def tuned_json(header: Header, record: Record | None) -> dict[str, Any] | None:
    """The `tuned` object of --json: by role, null where the file was not tuned for it."""
    return None if record is None else {role: _finding(header, record.of(role)) for role in ROLES}


def tuned_line(record: Record) -> str:
    """The same for people."""
    return "; ".join(_words(role, found) for role in ROLES if (found := record.of(role)) is not None)


def _finding(header: Header, found: Finding | None) -> dict[str, Any] | None:
    if found is None:
        return None
    path = None if found.file is None else str(folder_of(header) / found.file)
    return {"type": found.type, "path": path, "bytes": found.nbytes, "since": found.since, "target": found.target}


def _words(role: Role, found: Finding) -> str:
    beside = "" if found.target is None else f" for {found.target}"
    text = f"as the {role}{beside}, on {found.since}: "
    trial = next((trial for trial in found.trials if trial.type == found.type), None)
    if found.type == AS_IS or trial is None:
        return text + "used as it is"
    text += f"its {found.type} copy, {found.nbytes / 1e6:,.1f} MB"
    text += f", plain steps {speed(found.trials[0].costs, trial.costs, 1):.2f}x as fast"
    own = trial.perplexity
    return text if own is None else f"{text}, perplexity {own.change:+.1%} ± {own.error:.1%}"
