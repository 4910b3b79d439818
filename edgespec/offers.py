"""What a planner is told before a round, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Offer:
    """What a source could draft this round.

    features: one per token it can draft, for its acceptance estimate.  step_ms: time of drafting one
    token.  setup_ms: time before the first token of this round (a draft model reading what it missed).
    """

    source: str
    features: tuple[int, ...]
    step_ms: float = 0.0
    setup_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """source None: decode plainly.  probe: chosen to learn, not to win.  ms: expected time of the round.

    setup_ms: beside it, an investment in rounds to come (a draft model reads the conversation).  gain: tokens expected
    beyond those of a plain round.
    """

    source: str | None = None
    k: int = 0
    probe: bool = False
    ms: float = 0.0
    setup_ms: float = 0.0
    gain: float = 0.0
