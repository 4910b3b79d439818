"""The loop over tiny llama.cpp models: the cache is right after every round, a cancel, an error and a turn."""

from __future__ import annotations

import threading

import pytest
from tiny_generations import DRAFTERS, GREEDY, PROMPT, REPETITIVE, Faulty, Open, Tiny, drafted, run

from edgespec.drafters import ModelDrafter
from edgespec.drafting import Draft
from edgespec.errors import DecodeError
from edgespec.generation import GenerationRequest, generate, step
from edgespec.sampling import SamplingParams
from edgespec.stats import TokenEvent


@pytest.mark.parametrize("name", ["none", *DRAFTERS])
def test_cache_holds_all_but_the_last_token_after_every_event(tiny: Tiny, open_context: Open, name: str) -> None:
    context, draft = open_context(tiny()), open_context(tiny(noise=0.05))
    drafter = DRAFTERS[name](draft) if name != "none" else None
    request = GenerationRequest(prompt=REPETITIVE, params=SamplingParams(seed=1), max_tokens=40, draft_max=5)
    generation = generate(context, request, drafter)
    rounds = 0
    while generation.finish_reason is None:
        step(context, [generation])
        assert list(generation.sequence.cached) == generation.tokens[:-1]
        rounds += 1
    assert rounds == generation.stats.rounds + 1
    generation.close()


def test_closing_the_iterator_leaves_the_cache_right(tiny: Tiny, open_context: Open) -> None:
    context = open_context(tiny(), sequences=1)
    plain = run(context, max_tokens=60)
    request = GenerationRequest(prompt=PROMPT, params=GREEDY, max_tokens=60, draft_max=5)
    generation = generate(context, request, ModelDrafter(open_context(tiny(noise=0.05))))
    events = iter(generation)
    for event in events:
        if isinstance(event, TokenEvent) and event.round == 4:
            break
    events.close()  # type: ignore[attr-defined]  # a generator
    assert generation.finish_reason == "cancelled"
    assert generation.tokens == plain.tokens[: len(generation.tokens)]
    again = context.sequence(generation.tokens)
    assert list(again.cached) == generation.tokens[:-1]
    again.close()
    assert run(context, max_tokens=60).tokens == plain.tokens


@pytest.mark.parametrize(
    ("draft", "error"),
    [
        (drafted(512), DecodeError),
        (drafted(-1), DecodeError),
        (drafted(5, 6, 7, 8), DecodeError),
        (Draft((5,), (), "faulty"), DecodeError),
        (ZeroDivisionError("a drafter's own bug"), ZeroDivisionError),
    ],
)
def test_a_faulty_drafter_is_an_error_that_leaves_the_cache_right(
    tiny: Tiny, open_context: Open, draft: Draft | Exception, error: type[Exception]
) -> None:
    context = open_context(tiny(), sequences=1)
    faulty = Faulty(draft)
    generation = generate(context, GenerationRequest(prompt=PROMPT, params=GREEDY, max_tokens=9), faulty)
    with pytest.raises(error):
        list(generation)
    assert faulty.closed
    assert len(generation.completion) == 1
    assert run(context, max_tokens=9).tokens[: len(generation.tokens)] == generation.tokens


def test_cancel_from_another_thread(tiny: Tiny, open_context: Open) -> None:
    context = open_context(tiny(n_ctx_train=2048), n_ctx=2048)
    generation = generate(context, GenerationRequest(prompt=PROMPT, params=GREEDY))
    threading.Timer(0.05, generation.cancel).start()
    list(generation)
    assert generation.finish_reason == "cancelled"
    assert len(generation.tokens) < 2048
    assert run(context, max_tokens=len(generation.completion) or 1).text.startswith(generation.text)


def test_two_turns_reuse_the_cache(tiny: Tiny, open_context: Open) -> None:
    context = open_context(tiny())
    first = run(context)
    sequence = context.sequence([*first.tokens, 5, 6])
    assert list(sequence.cached) == first.tokens[:-1]
    sequence.close()
    second = run(context, prompt=(*first.tokens, 5, 6))
    assert second.tokens == run(open_context(tiny()), prompt=(*first.tokens, 5, 6)).tokens


@pytest.mark.parametrize("arch", ["mamba", "jamba"])
def test_a_model_that_cannot_roll_back_runs_plain_and_says_so(tiny: Tiny, open_context: Open, arch: str) -> None:
    context, fresh = open_context(tiny(arch)), open_context(tiny(arch))
    faulty = Faulty(drafted(5))
    first = run(context, faulty)
    assert faulty.closed
    assert first.stats.mode == "plain"
    assert "recurrent" in first.stats.why
    assert first.tokens == run(fresh).tokens
    for prompt in ((*first.tokens, 5, 6), (*first.tokens[:20], 5, 6), tuple(first.tokens)):
        assert run(context, prompt=prompt).tokens == run(open_context(tiny(arch)), prompt=prompt).tokens
