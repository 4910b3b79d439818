"""The whole of it: check, measure, ask, keep what was chosen."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from edgespec.models.header import read_header

from ..llama.binding import has_repack
from ..tuned import Role, Trial, tuned_dir
from .candidates import Candidate, candidates, require_space
from .choice import best_target
from .judges import DraftJudge, TargetJudge, UnchangedTarget, fixed_text, target_reference
from .keeping import Kept, keep
from .loading import Models
from .sweep import Judge, Measure, Progress, Sweep, sweep
from .timing import decode_times

_WORK = ".tune-"
_ABANDONED_S = 3600.0  # without a write: a copy that is being made is written to all the time


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything is measured, nothing decided. recommended: a form of the target, perhaps the file as it is."""

    target: Sweep
    draft: Sweep | None
    recommended: Trial


# Take the recommended target? None: nobody could be asked, and the target stays what it was.
Decide = Callable[[Measured], bool | None]


def tune(
    models: Models,
    *,
    keep_target: bool,
    decide: Decide,
    progress: Progress,
    measure: Measure = decode_times,
) -> tuple[Measured, Kept]:
    """Measure both roles, ask, and keep what was chosen. keep_target: make no copies of the target.

    Whatever ends it early leaves in use what was in use. Raises as load() does, and EdgeSpecError where the disk is
    too full.
    """
    tried = () if keep_target else _wanted(models, "target", models.target)
    draft_tried = () if models.draft is None else _wanted(models, "draft", models.draft)
    require_space(tuned_dir(), tried, draft_tried)
    with _work_folder() as folder:
        run = _Run(models, folder, measure, progress)
        measured = run.all(tried, draft_tried, keep_target=keep_target)
        answer = decide(measured)
        return measured, keep(models.target, models.draft, measured.target, measured.draft, answer)


@dataclass(frozen=True, slots=True)
class _Run:
    """One tuning: what all its steps share."""

    models: Models
    folder: Path
    measure: Measure
    progress: Progress

    def all(self, tried: tuple[Candidate, ...], draft_tried: tuple[Candidate, ...], *, keep_target: bool) -> Measured:
        target_path, draft_path = self.models.target, self.models.draft
        self.progress.step(f"{target_path.name}: reading the texts")
        with self.models.together(self.progress.note) as llm:
            text = fixed_text(llm)
            known = None if draft_path is None else target_reference(llm)
        target = self.sweep("target", target_path, tried, UnchangedTarget() if keep_target else TargetJudge(text))
        recommended = best_target(target.trials)
        if draft_path is None or known is None:
            return Measured(target, None, recommended)
        judge = DraftJudge(known, (target.trials[0].costs, recommended.costs))
        return Measured(target, self.sweep("draft", draft_path, draft_tried, judge), recommended)

    def sweep(self, role: Role, path: Path, tried: tuple[Candidate, ...], judge: Judge) -> Sweep:
        place = self.folder / role  # of one name, copies of target and draft must not meet
        place.mkdir()
        return sweep(
            path,
            tried,
            folder=place,
            open_model=lambda file: self.models.alone(file, role, self.progress.note),
            measure=self.measure,
            judge=judge,
            progress=self.progress,
        )


def _wanted(models: Models, role: Role, path: Path) -> tuple[Candidate, ...]:
    return candidates(read_header(path), gpu=models.on_gpu(role), repacks=has_repack())


@contextmanager
def _work_folder() -> Iterator[Path]:
    """A folder for copies on trial, beside those in use; gone at the end, whatever ends it."""
    place = tuned_dir()
    place.mkdir(parents=True, exist_ok=True)
    for left in place.glob(f"{_WORK}*"):  # of a run that was killed
        with contextlib.suppress(OSError):  # its own run has just ended
            latest = max(file.stat().st_mtime for file in (left, *left.rglob("*")))
            if time.time() - latest > _ABANDONED_S:
                shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_WORK, dir=place) as folder:
        yield Path(folder)
