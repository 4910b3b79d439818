"""What `edgespec tune` found, kept on disk per model file, and the copy that load() uses in the file's place.

One folder for each original under `home()/tuned`, named by the file's identity: record.json and the copies that were
chosen. A file that has changed has another identity, so what was found for it before is not used.
"""

from __future__ import annotations

import json
import logging
import math
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from edgespec.models.header import Header, read_header
from edgespec.models.identity import file_identity
from edgespec.models.quoting import quoted

from .costs import CostTable
from .paths import home, write_whole

log = logging.getLogger(__name__)

Role = Literal["target", "draft"]
ROLES: tuple[Role, ...] = ("target", "draft")

AS_IS = "as it is"  # in place of a type: the original, not a copy
_RECORD = "record.json"
_IDENTITY = 32  # characters of it that name the folder


@dataclass(frozen=True, slots=True)
class Perplexity:
    """On the fixed text. change: relative to the file as it is, 0.03 is 3% worse.  error: standard error of that."""

    value: float
    change: float
    error: float


@dataclass(frozen=True, slots=True)
class Agreement:
    """Of a draft with its target, means over positions. overlap: sum of min(p, q) at temperature 1, the share of
    sampled guesses that is accepted.  top1: both have the same likeliest token."""

    overlap: float
    top1: float
    positions: int


@dataclass(frozen=True, slots=True)
class Trial:
    """One form of a model, measured. type: name of a requantization, or AS_IS.  nbytes: of the file."""

    type: str
    nbytes: int
    costs: CostTable
    perplexity: Perplexity | None = None
    agreement: Agreement | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What is best for one role. type: AS_IS for the original, else of the copy called `file`, `nbytes` long.

    since: date, ISO 8601.  target: of a draft, the file name of the model that it was tuned for.
    """

    type: str
    file: str | None
    nbytes: int
    since: str
    target: str | None
    trials: tuple[Trial, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """All that is known of one file. original: its path when it was tuned."""

    original: str
    target: Finding | None = None
    draft: Finding | None = None

    def of(self, role: Role) -> Finding | None:
        return self.target if role == "target" else self.draft

    @property
    def files(self) -> set[str]:
        """Names of the copies in use."""
        return {f.file for f in (self.target, self.draft) if f is not None and f.file is not None}


def tuned_dir() -> Path:
    """Where records and copies lie."""
    return home() / "tuned"


def folder_of(header: Header) -> Path:
    """Where record and copies of a file lie, or would lie."""
    return tuned_dir() / file_identity(header)[:_IDENTITY]


def tuned_copy(path: Path, role: Role) -> tuple[Path, str | None]:
    """(the file to load in place of `path`, a line about it for the user); `path` and None where it was not tuned.

    A copy that is gone or has another size is not used, which is logged. Raises as read_header does.
    """
    if not tuned_dir().is_dir():  # the usual case costs nothing
        return path, None
    header = read_header(path)
    record = record_of(header)
    finding = None if record is None else record.of(role)
    if finding is None or finding.file is None:
        return path, None
    copy = folder_of(header) / finding.file
    if _size(copy) != finding.nbytes:
        log.warning(
            "the %s copy of %s is %s; using the file itself. Run `edgespec tune` again, or with --undo",
            finding.type,
            path.name,
            "gone" if _size(copy) is None else "damaged",
        )
        return path, None
    return copy, (
        f"using the {finding.type} copy of {path.name} that `edgespec tune` made on {finding.since} "
        "(--no-tuned: the file itself)"
    )


def record_of(header: Header) -> Record | None:
    """What is known of a file, if anything."""
    return read_record(folder_of(header)) if tuned_dir().is_dir() else None


def read_record(folder: Path) -> Record | None:
    """The record in a folder; None where there is none, or where it is damaged, which is logged."""
    path = folder / _RECORD
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        if folder.is_dir() and not isinstance(error, FileNotFoundError):
            log.warning("cannot read %s: %s; going on without it", quoted(path), error)
        return None
    try:
        return _record(json.loads(text))
    except (ValueError, KeyError, TypeError, RecursionError):
        log.warning("%s is damaged; going on without it. Run `edgespec tune` again, or with --undo", quoted(path))
        return None


def write_record(folder: Path, record: Record) -> None:
    """Write the record, then delete copies that it does not name. Raises OSError."""
    write_whole(folder / _RECORD, json.dumps(asdict(record)))
    for file in folder.glob("*.gguf"):
        if file.name not in record.files:
            file.unlink(missing_ok=True)


def undo(path: Path) -> int | None:
    """Delete what was tuned for a file, under this path or with this content; returns bytes freed, None: nothing there.

    Raises OSError. The file itself need not exist any more, and is never touched.
    """
    found = list(folders_of(path))
    freed = 0
    for folder in found:
        freed += sum(file.stat().st_size for file in folder.iterdir())
        shutil.rmtree(folder)
    return freed if found else None


def folders_of(path: Path) -> Iterator[Path]:
    """The folders with what was tuned for a file, under this path or with this content."""
    if not tuned_dir().is_dir():
        return
    own = folder_of(read_header(path)) if path.exists() else None
    for folder in sorted(tuned_dir().iterdir()):
        record = read_record(folder) if folder != own else None
        if folder == own or (record is not None and record.original == str(path.absolute())):
            yield folder


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


# Reading back what asdict() wrote: anything else raises ValueError, KeyError or TypeError.


def _record(data: Any) -> Record:
    findings = {role: None if data[role] is None else _finding(data[role]) for role in ("target", "draft")}
    return Record(_text(data["original"]), findings["target"], findings["draft"])


def _finding(data: Any) -> Finding:
    file = None if data["file"] is None else _text(data["file"])
    if file is not None and (file != Path(file).name or not file.endswith(".gguf")):
        raise ValueError("a copy lies beside its record")
    return Finding(
        _text(data["type"]),
        file,
        _count(data["nbytes"]),
        _text(data["since"]),
        None if data["target"] is None else _text(data["target"]),
        tuple(_trial(trial) for trial in data["trials"]),
    )


def _trial(data: Any) -> Trial:
    costs, perplexity, agreement = data["costs"], data["perplexity"], data["agreement"]
    return Trial(
        _text(data["type"]),
        _count(data["nbytes"]),
        CostTable(
            tuple(_count(width) for width in costs["widths"]),
            _numbers(costs["ms"]),
            _count(costs["depth"]),
            _numbers(costs["growth"]),
            _count(costs["reach"]),
        ),
        None if perplexity is None else Perplexity(*_numbers(perplexity[k] for k in ("value", "change", "error"))),
        None if agreement is None else _agreement(agreement),
    )


def _agreement(data: Any) -> Agreement:
    overlap, top1 = _numbers((data["overlap"], data["top1"]))
    return Agreement(overlap, top1, _count(data["positions"]))


def _numbers(values: Any) -> tuple[float, ...]:
    found = tuple(map(float, values))
    if not all(map(math.isfinite, found)):
        raise ValueError("not a number")
    return found


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("not a count")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value
