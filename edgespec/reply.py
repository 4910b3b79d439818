"""What a finished request gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .stats import GenerationStats


@dataclass(frozen=True, slots=True)
class Reply:
    """A finished generation.

    text: visible text, cut before a stop string.  tokens: emitted ids, no end token.  logprobs: of each
    token under the target's raw logits.  finish_reason: "stop", "length" or "cancelled".
    model, drafter: what made it.  seed: what was drawn with: the request's, or the one drawn for verify "seed";
    None where the request had none.
    """

    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str
    model: str
    drafter: str
    stats: GenerationStats
    seed: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The object that `edgespec run --json` prints."""
        return {
            "text": self.text,
            "model": self.model,
            "drafter": self.drafter,
            "seed": self.seed,
            "finish_reason": self.finish_reason,
            "usage": {
                "prompt_tokens": self.stats.prompt_tokens,
                "completion_tokens": self.stats.completion_tokens,
            },
            "stats": self.stats.to_json(),
        }
