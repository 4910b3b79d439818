"""How much a draft speeds a target up, timed: some prompts, each plain, drafted, drafted, plain on loaded models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgespec.models.header import read_header

from .bench.modes import AUTO
from .bench.prompts import load_workloads
from .bench.runner import Settings, run_bench
from .bench.statistics import median
from .loading import load

WORKLOADS = ("code", "chat", "edit")
_CONTEXT = 4096  # tokens, where the models have so many


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is timed. prompts: of each workload.  max_tokens: of each run."""

    prompts: int = 1
    max_tokens: int = 64


def measured_speedup(
    target: Path,
    draft: Path,
    *,
    effort: Effort | None = None,
    announce: Callable[[str], None] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> float | None:
    """Median speed-up over plain decoding with this draft as the only source; None where no run gave two tokens.

    Raises as load() does, DecodeError, and KeyboardInterrupt after Ctrl+C.
    """
    effort = effort or Effort()
    n_ctx = min(read_header(target).context_length or _CONTEXT, _CONTEXT)
    with load(target, draft=draft, drafter="model", ctx_size=n_ctx, parallel=1, announce=announce) as llm:
        settings = Settings(max_tokens=effort.max_tokens, raw=llm.template is None)
        workloads = load_workloads(WORKLOADS, effort.prompts)
        outcome = run_bench(llm, workloads, [AUTO], settings, progress=progress)
    if outcome.stopped is not None:
        raise outcome.stopped
    return median([ratio for cell in outcome.cells for ratio in cell.ratios])
