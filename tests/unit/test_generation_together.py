"""The loop over tiny llama.cpp models: several generations on one context, in turns and in one decode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tiny_generations import GREEDY, PROMPT, REPETITIVE, Open, Tiny, run

from edgespec.drafters import LookupDrafter, ModelDrafter
from edgespec.drafting import Drafter
from edgespec.generation import Generation, GenerationRequest, generate, step


def interleaved(*generations: Generation) -> None:
    iterators: list[Iterator[Any]] = [iter(g) for g in generations]
    while iterators:
        iterators = [i for i in iterators if next(i, None) is not None]


@pytest.mark.parametrize("arch", ["llama", "gemma3", "lfm2"])
@pytest.mark.parametrize("sequences", [1, 4])
def test_two_generations_in_turns(tiny: Tiny, open_context: Open, arch: str, sequences: int) -> None:
    """With one slot, each turn takes the cache away from the other."""
    context, draft = open_context(tiny(arch), sequences=sequences), open_context(tiny(arch, noise=0.05), sequences=2)
    prompts = (PROMPT, (*PROMPT, 9, 9))
    wanted = [run(context, prompt=p).tokens for p in prompts]
    running = [
        generate(context, GenerationRequest(prompt=p, params=GREEDY, max_tokens=40), ModelDrafter(draft))
        for p in prompts
    ]
    interleaved(*running)
    assert [g.tokens for g in running] == wanted


@pytest.mark.parametrize("max_width", [3, 4, 12])
@pytest.mark.parametrize("arch", ["llama", "gemma3", "lfm2"])
def test_three_generations_in_one_decode(tiny: Tiny, open_context: Open, arch: str, max_width: int) -> None:
    context, draft = open_context(tiny(arch), max_width=max_width), open_context(tiny(arch, noise=0.05))
    prompts = (REPETITIVE, PROMPT, (44, 45))
    wanted = [run(context, prompt=p, max_tokens=n) for p, n in zip(prompts, (40, 12, 25), strict=True)]
    drafters: tuple[Drafter | None, ...] = (LookupDrafter(min_ngram=1), None, ModelDrafter(draft))
    running = [
        generate(context, GenerationRequest(prompt=p, params=GREEDY, max_tokens=n), d)
        for p, n, d in zip(prompts, (40, 12, 25), drafters, strict=True)
    ]
    while any(g.finish_reason is None for g in running):
        before = [len(g.tokens) for g in running]
        unfinished = [g.finish_reason is None for g in running]
        step(context, running)
        for g, length, was in zip(running, before, unfinished, strict=True):
            assert (len(g.tokens) > length) is was  # every round commits at least one token
            assert list(g.sequence.cached) == g.tokens[:-1]
    assert [g.text for g in running] == [w.text for w in wanted]
    assert [g.finish_reason for g in running] == ["length"] * 3
    for g in running:
        g.close()


def test_one_cancelled_among_three(tiny: Tiny, open_context: Open) -> None:
    context = open_context(tiny())
    wanted = [run(context, prompt=p).tokens for p in (PROMPT, REPETITIVE)]
    requests = [GenerationRequest(prompt=p, params=GREEDY, max_tokens=40) for p in (PROMPT, REPETITIVE, (7, 8))]
    running = [generate(context, r) for r in requests]
    for _ in range(5):
        step(context, running)
    running[2].cancel()
    while any(g.finish_reason is None for g in running):
        step(context, running)
    assert [g.finish_reason for g in running] == ["length", "length", "cancelled"]
    assert [g.tokens for g in running[:2]] == wanted
