"""Measures a file and its requantizations in turn: one in memory at a time, and only the best copy stays on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from ..api import LLM
from ..costs import CostTable
from ..errors import EdgeSpecError
from ..llama.requantizing import requantize_apart
from ..tuned import AS_IS, Agreement, Perplexity, Trial
from .candidates import Candidate
from .choice import gain, speed

Open = Callable[[Path], LLM]  # loads a file alone, as it is
Measure = Callable[[LLM], CostTable]  # its decode times by rows


class Progress(Protocol):
    """What is told while it lasts."""

    def step(self, text: str) -> None:
        """Something that takes a while begins."""
        ...

    def part(self, fraction: float) -> None:
        """How much of it is done, 0.0 to 1.0."""
        ...

    def note(self, line: str) -> None:
        """One line that should be seen."""
        ...


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of a form beside its speed."""

    perplexity: Perplexity | None = None
    agreement: Agreement | None = None


class Judge(Protocol):
    """Finds the evidence of one role, and what is best by it."""

    def evidence(self, llm: LLM) -> Evidence:
        """Of a loaded form; the original is asked first."""
        ...

    def keep(self, trials: Sequence[Trial]) -> set[str]:
        """Types that may turn out to be the best of these and of those to come."""
        ...


@dataclass(frozen=True, slots=True)
class Sweep:
    """trials: the original first.  files: of the copies that were kept, by type.  spread: the largest difference
    between two measurements of the original's plain step, as a share of the first: how quiet the machine was."""

    trials: tuple[Trial, ...]
    files: dict[str, Path]
    spread: float


def sweep(
    original: Path,
    tried: Iterable[Candidate],
    *,
    folder: Path,
    open_model: Open,
    measure: Measure,
    judge: Judge,
    progress: Progress,
) -> Sweep:
    """Measure the original, then copy and original in turn: a machine that slows down slows both.

    folder: for copies; those that lose are deleted at once. A copy that cannot be made or loaded is noted and passed.
    """
    files: dict[str, Path] = {}

    def visit(path: Path, name: str, *, look: bool) -> tuple[CostTable, Evidence]:
        progress.step(f"{original.name}: measuring {name}")
        with open_model(path) as llm:
            return measure(llm), judge.evidence(llm) if look else Evidence()

    first, evidence = visit(original, "the file as it is", look=True)
    times = [first]
    trials = [_trial(AS_IS, original, first, evidence)]
    for candidate in tried:
        if not _worth_it(candidate, trials):
            continue
        copy = folder / f"{original.stem}-{candidate.name}.gguf"
        try:
            progress.step(f"{original.name}: making the {candidate.name} copy")
            requantize_apart(
                original,
                copy,
                candidate.type,
                pure=candidate.pure,
                embeddings=candidate.embeddings,
                nbytes=candidate.nbytes,
                progress=progress.part,
            )
            costs, evidence = visit(copy, f"the {candidate.name} copy", look=True)
        except EdgeSpecError as error:
            progress.note(f"no {candidate.name} copy: {error}")
            copy.unlink(missing_ok=True)
            continue
        times.append(visit(original, "the file as it is, again", look=False)[0])
        trials.append(_trial(candidate.name, copy, _as_at_first(costs, times), evidence))
        files[candidate.name] = copy
        for lost in files.keys() - judge.keep(trials):
            files.pop(lost).unlink()
    plain = [table.at(1) for table in times]
    return Sweep(tuple(trials), files, (max(plain) - min(plain)) / plain[0])


def _trial(name: str, path: Path, costs: CostTable, evidence: Evidence) -> Trial:
    return Trial(name, path.stat().st_size, costs, evidence.perplexity, evidence.agreement)


def _as_at_first(costs: CostTable, times: Sequence[CostTable]) -> CostTable:
    """What a copy would have taken when the original was first measured, by how the original fared around it."""
    first, before, after = times[0], times[-2], times[-1]
    ms = (
        ms * first.at(width) / ((before.at(width) + after.at(width)) / 2)
        for width, ms in zip(costs.widths, costs.ms, strict=True)
    )
    return replace(costs, ms=tuple(ms))


def _worth_it(candidate: Candidate, trials: Sequence[Trial]) -> bool:
    """Was the copy that it comes after, made for the same kernels, any faster?"""
    if candidate.after is None:
        return True
    costs = trials[0].costs
    before = [trial.costs for trial in trials if trial.type == candidate.after]
    return any(gain(costs, other) > 1 or speed(costs, other, 1) > 1 for other in before)
