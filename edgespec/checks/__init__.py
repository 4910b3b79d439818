"""Checks that a user can run on their own models: `edgespec verify`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..api import LLM
from ..bench.modes import MAX_K
from ..errors import BadRequestError, EdgeSpecError
from ..generation import NO_ROLLBACK
from .identity import check_greedy, check_seed
from .law import CONTROL_SAMPLES, LEAST_SAMPLES, PROBE, check_control, check_source, choose_setting
from .prompts import TokenPrompt, built_in, encoded
from .report import IdentityResult, LawResult, PromptFork, Report

__all__ = [
    "CheckOptions",
    "IdentityResult",
    "LawResult",
    "Progress",
    "PromptFork",
    "Report",
    "TokenPrompt",
    "built_in",
    "encoded",
    "verify",
]

Progress = Callable[[str, int, int], None]
"""Called with what is being checked, how much of it is done, and how much there is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckOptions:
    """How much to check.

    max_tokens: of each text.  draft_max: tokens drafted per round.  samples: outcomes per drafter, 100 or more.
    seed: of all samples; equal seeds draw equal samples.  Raises BadRequestError.
    """

    max_tokens: int = 48
    draft_max: int = 3
    samples: int = 500
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least, most in (
            ("max_tokens", 2, 2**31),
            ("draft_max", 1, MAX_K),
            ("samples", LEAST_SAMPLES, 2**31),
            ("seed", 0, 2**32),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                words = f"it must be a whole number from {least} to {most}"
                raise BadRequestError(f"{name.replace('_', ' ')} is {value!r}; {words}")


def verify(llm: LLM, prompts: Sequence[TokenPrompt], options: CheckOptions, progress: Progress) -> Report:
    """Run all checks on a loaded model. Raises EdgeSpecError where there is no drafter to check."""
    if not llm.target.can_roll_back:
        raise EdgeSpecError(f"nothing to verify: {NO_ROLLBACK}")
    if not llm.sources:
        raise BadRequestError("nothing to verify: no drafter was asked for; leave out --drafter none")
    llm.measured()  # so that decodes are padded here as they are in use

    def stage(name: str, total: int) -> Callable[[int], None]:
        progress(name, 0, total)
        return lambda done: progress(name, done, total)

    n, k, samples, seed = options.max_tokens, options.draft_max, options.samples, options.seed
    greedy = check_greedy(llm, prompts, n, k, stage("greedy text", len(prompts)))
    exact = check_seed(llm, prompts, n, k, seed, stage("text of a seed", len(prompts)))
    setting = choose_setting(llm, k)
    laws = tuple(
        check_source(llm, setting, source, samples, k, seed + i * samples, stage(f"distribution, {source}", samples))
        for i, source in enumerate((*llm.sources, PROBE))
    )
    control = check_control(llm, setting, samples, k, seed, stage("negative control", min(samples, CONTROL_SAMPLES)))
    return Report(greedy, laws, control, exact)
