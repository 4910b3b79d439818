"""What `edgespec verify` found: plain data, and the object of its --json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..forks import Fork


@dataclass(frozen=True, slots=True)
class PromptFork:
    """Where one drafter's text left the plain one. prompt: its name.  at: index of the first differing token."""

    prompt: str
    drafter: str
    fork: Fork


@dataclass(frozen=True, slots=True)
class IdentityResult:
    """Texts of all drafters against plain decoding, over some prompts.

    forks: every first difference; a prompt without one is identical.  drafted: tokens drafted, by drafter.
    """

    prompts: int
    forks: tuple[PromptFork, ...]
    drafted: dict[str, int]

    @property
    def identical(self) -> int:
        """Prompts on which every drafter gave the plain text."""
        return self.prompts - len({f.prompt for f in self.forks})

    @property
    def unexplained(self) -> int:
        """Prompts with a difference that the model's own arithmetic does not account for."""
        return len({f.prompt for f in self.forks if not f.fork.explained})

    @property
    def explained(self) -> int:
        """Prompts that differ, every difference explained."""
        return self.prompts - self.identical - self.unexplained

    @property
    def max_delta(self) -> float:
        """Over all forks: how far the decodes used moved the gap of the two tokens' logits; 0 without a fork."""
        return max((abs(f.fork.gap_at_one - f.fork.gap_at_width) for f in self.forks), default=0.0)

    @property
    def ok(self) -> bool:
        return not self.unexplained

    def counts(self) -> dict[str, Any]:
        return {
            "prompts": self.prompts,
            "identical": self.identical,
            "explained": self.explained,
            "unexplained": self.unexplained,
        }


@dataclass(frozen=True, slots=True)
class LawResult:
    """Sampled outcomes of one drafter against the target's exact law.

    samples: outcomes drawn.  tv: their total variation from the law, and bound: what exact sampling exceeds
    with probability 1e-6; both None where the drafter never drafted, which checks nothing.
    drafted, accepted: tokens.
    """

    drafter: str
    samples: int
    tv: float | None
    bound: float | None
    drafted: int
    accepted: int

    @property
    def ok(self) -> bool:
        """False where nothing was drafted: not checked is not passed."""
        return self.tv is not None and self.bound is not None and self.tv <= self.bound

    def to_json(self) -> dict[str, Any]:
        return {
            "drafter": self.drafter,
            "samples": self.samples,
            "tv": self.tv,
            "bound": self.bound,
            "ok": self.ok,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """All checks of one model. control: outcomes of a rule that accepts every guess, which must be caught."""

    greedy: IdentityResult
    distribution: tuple[LawResult, ...]
    control: LawResult
    seed: IdentityResult

    @property
    def negative_control_caught(self) -> bool:
        """True if the distribution check saw that the biased rule is biased."""
        return self.control.tv is not None and not self.control.ok

    @property
    def ok(self) -> bool:
        return self.greedy.ok and all(d.ok for d in self.distribution) and self.negative_control_caught and self.seed.ok

    def to_json(self) -> dict[str, Any]:
        """The object of `verify --json`."""
        return {
            "greedy": {**self.greedy.counts(), "max_delta": self.greedy.max_delta},
            "distribution": [d.to_json() for d in self.distribution],
            "seed": self.seed.counts(),
            "negative_control_caught": self.negative_control_caught,
            "ok": self.ok,
        }
