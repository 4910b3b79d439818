"""How well heads draft: real rounds on prompts that nothing was learned from or chosen by, each guess verified."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..api import LLM
from ..drafting import Drafter
from ..generation import Generation, GenerationRequest, step
from ..sampling import SamplingParams
from ..stats import RoundEvent


@dataclass(frozen=True, slots=True)
class Measured:
    """At one temperature. tau: tokens of a round.  acceptance: (K,), by head: share of its guesses that were accepted
    where all before them were.  rounds: that were looked at, each with a guess of every head.
    """

    temperature: float
    tau: float
    acceptance: tuple[float, ...]
    rounds: int


def measure(
    llm: LLM,
    make: Callable[[], Drafter],
    k: int,
    prompts: Sequence[tuple[int, ...]],
    *,
    temperature: float,
    reply: int,
    seed: int,
) -> Measured:
    """Texts of up to `reply` tokens with the model's verification, several at once.

    make: a drafter for each text.  k: how many tokens it guesses.

    Rounds near an end of a text, which had no room for every guess, are left out: they would say something of the text
    and nothing of the heads.
    """
    target = llm.target
    at_once = max(1, min(target.max_sequences, target.max_width // (k + 1)))
    accepted: list[int] = []
    for start in range(0, len(prompts), at_once):
        running = [
            Generation(
                target,
                GenerationRequest(
                    prompt=prompt,
                    params=SamplingParams(temperature=temperature, seed=seed + start + i),
                    max_tokens=reply,
                    draft_max=k,
                ),
                make(),
            )
            for i, prompt in enumerate(prompts[start : start + at_once])
        ]
        try:
            while any(g.finish_reason is None for g in running):
                for events in step(target, running):
                    accepted += [e.accepted for e in events if isinstance(e, RoundEvent) and e.k == k]
        finally:
            for generation in running:
                generation.close()
        for generation in running:
            if generation.error is not None:
                raise generation.error
    reached = [sum(a >= i for a in accepted) for i in range(k + 1)]
    acceptance = tuple(now / before if before else 0.0 for before, now in pairwise(reached))
    tau = 1 + sum(accepted) / len(accepted) if accepted else 1.0
    return Measured(temperature, tau, acceptance, len(accepted))
