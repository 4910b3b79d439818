"""Why nothing is guessed, as a sentence for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

UNSURE = 0.02  # tokens a round: a gain of no more than this may be noise


@dataclass(frozen=True, slots=True)
class Considered:
    """The best draft of a source that a plan could have. tokens: expected of its round.  needed: from which on it pays.

    step: time of drafting one token over that of a plain round.
    """

    source: str
    k: int
    tokens: float
    needed: float
    step: float


def why_off(considered: Sequence[Considered]) -> str:
    """Why a plan took none of these; empty without any."""
    if not considered:
        return ""
    best = max(considered, key=lambda draft: draft.tokens / draft.needed)
    step = f"one step costs {best.step:.2f} of a target step; " if best.step else ""
    if best.tokens - best.needed > UNSURE:
        return (
            f"{best.source} off: {step}at K = {best.k} it is expected to give {best.tokens:.2f} tokens a round and "
            f"needs {best.needed:.2f}, but if all were wrong, more time would be lost than may be so far"
        )
    unsure = ", too little more to be sure of" if best.tokens > best.needed else ""
    return (
        f"{best.source} off: {step}it needs {best.needed:.2f} tokens a round at K = {best.k} and is expected to give "
        f"{best.tokens:.2f}{unsure}"
    )
