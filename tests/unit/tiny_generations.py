"""Requests to tiny llama.cpp models, run to their end, with drafters of every kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from edgespec.distribution import Distribution
from edgespec.drafters import ChainDrafter, LookupDrafter, ModelDrafter
from edgespec.drafting import Draft, Drafter
from edgespec.generation import Generation, GenerationRequest, generate
from edgespec.llama import Context
from edgespec.sampling import SamplingParams
from edgespec.stats import RoundEvent

Tiny = Callable[..., Path]
Open = Callable[..., Context]
GREEDY = SamplingParams(temperature=0)
PROMPT = (81, 300, 301, 17, 81, 300, 301, 44, 81, 300)
REPETITIVE = PROMPT * 3


def run(context: Context, drafter: Drafter | None = None, grammar: Any = None, **options: Any) -> Generation:
    """Run a request to its end."""
    options = {"prompt": PROMPT, "params": GREEDY, "max_tokens": 40, **options}
    generation = generate(context, GenerationRequest(**options), drafter, grammar)
    list(generation)
    return generation


def lookup(_: Context) -> Drafter:
    return LookupDrafter(min_ngram=1)


def model(draft: Context) -> Drafter:
    return ModelDrafter(draft)


def chain(draft: Context) -> Drafter:
    return ChainDrafter([LookupDrafter(min_ngram=2), ModelDrafter(draft)])


DRAFTERS = {"lookup": lookup, "model": model, "chain": chain}


class Faulty:
    """Drafts what it is told to."""

    name = "faulty"

    def __init__(self, draft: Draft | Exception) -> None:
        self._draft = draft
        self.closed = False

    def draft(self, tokens: Sequence[int], k: int, sampler: Any, rng: Any) -> Draft:
        if isinstance(self._draft, Exception):
            raise self._draft
        return self._draft

    def observe(self, event: RoundEvent) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def drafted(*tokens: int) -> Draft:
    return Draft(tokens, tuple(Distribution.one_hot(t) for t in tokens), "faulty")
