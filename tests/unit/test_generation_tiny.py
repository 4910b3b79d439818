"""The loop over tiny llama.cpp models: drafts change the speed, never the text, and the cache is always right."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgespec.distribution import Distribution
from edgespec.drafters import ChainDrafter, LookupDrafter, ModelDrafter
from edgespec.drafting import Draft, Drafter
from edgespec.errors import BadRequestError, ContextFullError, DecodeError
from edgespec.generation import Generation, GenerationRequest, generate, step
from edgespec.llama import Context, LlamaGrammar, schema_to_gbnf
from edgespec.sampling import SamplingParams
from edgespec.stats import RoundEvent, TokenEvent
from edgespec.tiny_gguf import TinyVocab

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


@pytest.mark.parametrize("k", [1, 3, 7])
@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("arch", ["llama", "gemma3", "lfm2"])
def test_greedy_text_is_plain_text(tiny: Tiny, open_context: Open, arch: str, name: str, k: int) -> None:
    context, draft = open_context(tiny(arch)), open_context(tiny(arch, noise=0.05))
    plain = run(context, prompt=REPETITIVE, max_tokens=80)
    assert (plain.stats.mode, plain.stats.tau) == ("plain", 1)
    drafted = run(context, DRAFTERS[name](draft), prompt=REPETITIVE, max_tokens=80, draft_max=k)
    assert drafted.tokens == plain.tokens
    assert (drafted.text, drafted.finish_reason) == (plain.text, "length")
    assert drafted.stats.mode == "speculative"
    assert set(drafted.stats.sources) <= {"lookup", "model"}
    if name != "lookup":
        assert drafted.stats.accepted > 0
        assert drafted.stats.rounds < plain.stats.rounds


@pytest.mark.parametrize("params", [GREEDY, SamplingParams(temperature=1, seed=4)])
@pytest.mark.parametrize("shared", [True, False])
def test_a_target_that_drafts_for_itself_accepts_all(
    tiny: Tiny, open_context: Open, params: SamplingParams, shared: bool
) -> None:
    """With a context of its own, and on the target's, where the two take turns in one cache."""
    context = open_context(tiny())
    draft = context if shared else open_context(tiny())
    done = run(context, ModelDrafter(draft), params=params, max_tokens=81, draft_max=4)
    assert done.stats.acceptance is not None
    assert done.stats.acceptance > 0.98
    assert done.stats.per_position == pytest.approx([1, 1, 1, 1], abs=0.1)
    if params is GREEDY:
        assert (done.stats.rounds, done.stats.tau) == (16, 5)


@pytest.mark.parametrize("verify", ["block", "token", "seed"])
@pytest.mark.parametrize("name", ["none", *DRAFTERS])
def test_a_seed_repeats(tiny: Tiny, open_context: Open, name: str, verify: str) -> None:
    context, draft = open_context(tiny()), open_context(tiny(noise=0.05))

    def text(seed: int) -> tuple[str, list[int]]:
        drafter = DRAFTERS[name](draft) if name != "none" else None
        done = run(context, drafter, params=SamplingParams(seed=seed), prompt=REPETITIVE, verify=verify)
        return done.text, done.tokens

    assert text(1) == text(1)
    assert text(1) != text(2)


@pytest.mark.parametrize("arch", ["llama", "gemma3"])
@pytest.mark.parametrize(("name", "k"), [(name, k) for name in DRAFTERS for k in (1, 3, 6)])
def test_a_seed_exact_text_is_that_of_plain_decoding(
    tiny: Tiny, open_context: Open, arch: str, name: str, k: int
) -> None:
    context, draft = open_context(tiny(arch)), open_context(tiny(arch, noise=0.05))
    accepted = 0
    for seed, temperature in ((0, 0.7), (1, 1.0), (2, 1.0)):
        params = SamplingParams(temperature=temperature, seed=seed, top_k=2)
        options: dict[str, Any] = {"prompt": REPETITIVE, "params": params, "max_tokens": 50, "verify": "seed"}
        drafted = run(context, DRAFTERS[name](draft), draft_max=k, **options)
        assert drafted.tokens == run(context, **options).tokens
        accepted += drafted.stats.accepted
    assert accepted > 0


def test_events_and_totals_agree(tiny: Tiny, open_context: Open) -> None:
    context = open_context(tiny())
    request = GenerationRequest(prompt=PROMPT, params=SamplingParams(seed=3), max_tokens=50)
    generation = generate(context, request, ModelDrafter(open_context(tiny(noise=0.05))))
    events = list(generation)
    tokens = [e for e in events if isinstance(e, TokenEvent)]
    rounds = [e for e in events if isinstance(e, RoundEvent)]
    stats = generation.stats
    assert [t.id for t in tokens] == generation.completion
    assert "".join(t.text for t in tokens) == generation.text
    assert stats.completion_tokens == len(tokens) == 50
    assert stats.rounds == len(rounds)
    assert [r.round for r in rounds] == list(range(1, len(rounds) + 1))
    assert [t for r in rounds for t in r.emitted] == [t.id for t in tokens if t.round > 0]
    assert stats.drafted == sum(r.k for r in rounds)
    assert stats.accepted == sum(r.accepted for r in rounds) == sum(d.accepted for r in rounds for d in r.drafted)
    assert all(r.produced == r.accepted + 1 for r in rounds)
    assert sum(t.source == "model" for t in tokens) == pytest.approx(stats.accepted, abs=3)
    assert all(np.isfinite(t.logprob) and t.logprob < 0 for t in tokens)
    assert json.loads(json.dumps(stats.to_json()))["mode"] == "speculative"


def test_log_probabilities_are_the_targets(tiny: Tiny, open_context: Open) -> None:
    """Equal with and without drafts, whatever the sampling parameters."""
    context = open_context(tiny())
    params = SamplingParams(temperature=0, repeat_penalty=1.2, logit_bias={9: -5.0})
    found = []
    for drafter in (None, ModelDrafter(open_context(tiny(noise=0.05)))):
        request = GenerationRequest(prompt=PROMPT, params=params, max_tokens=30)
        events = list(generate(context, request, drafter))
        found.append([(e.id, e.logprob) for e in events if isinstance(e, TokenEvent)])
    assert [i for i, _ in found[0]] == [i for i, _ in found[1]]
    assert [p for _, p in found[0]] == pytest.approx([p for _, p in found[1]], abs=1e-3)


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


@pytest.mark.parametrize("k", [0, 3])
@pytest.mark.parametrize("n_prompt", [1, 40, 63])
def test_a_full_context_ends_the_text(tiny: Tiny, open_context: Open, n_prompt: int, k: int) -> None:
    context, draft = open_context(tiny(), n_ctx=64), open_context(tiny(), n_ctx=64)
    done = run(context, ModelDrafter(draft), prompt=REPETITIVE[:1] * n_prompt, max_tokens=None, draft_max=k)
    assert done.finish_reason == "length"
    assert len(done.tokens) == 64


@pytest.mark.parametrize("n_prompt", [64, 65, 500])
def test_a_prompt_that_does_not_fit(tiny: Tiny, open_context: Open, n_prompt: int) -> None:
    context = open_context(tiny(), n_ctx=64)
    with pytest.raises(ContextFullError, match=rf"{n_prompt}.*64") as caught:
        run(context, prompt=(5,) * n_prompt)
    assert caught.value.needed >= n_prompt
    assert caught.value.available <= 64


@pytest.mark.parametrize("n", [1, 2, 5, 30])
@pytest.mark.parametrize("name", ["none", *DRAFTERS])
def test_max_tokens(tiny: Tiny, open_context: Open, name: str, n: int) -> None:
    context, draft = open_context(tiny()), open_context(tiny())
    drafter = DRAFTERS[name](draft) if name != "none" else None
    done = run(context, drafter, prompt=REPETITIVE, max_tokens=n, draft_max=7)
    assert (len(done.completion), done.finish_reason, done.stats.completion_tokens) == (n, "length", n)


def test_stop_strings(tiny: Tiny, open_context: Open) -> None:
    """Taken from the middle of the text, across tokens; nothing of them is shown, with drafts or without."""
    context, draft = open_context(tiny()), open_context(tiny())
    whole = run(context, max_tokens=60).text
    for start in (3, 10, 21):
        stop = whole[start : start + 4]
        for drafter in (None, ModelDrafter(draft)):
            done = run(context, drafter, max_tokens=60, stop=("never this", stop), draft_max=5)
            assert (done.text, done.finish_reason) == (whole[: whole.index(stop)], "stop")


def test_the_text_ends_at_an_end_token(tiny: Tiny, open_context: Open) -> None:
    """The vocabulary's end tokens are made likely by a bias; none is part of the text or of the tokens."""
    context, draft = open_context(tiny()), open_context(tiny())
    ends = [t for t in range(context.vocab.size) if context.vocab.is_eog(t)]
    params = SamplingParams(temperature=1, seed=5, logit_bias=dict.fromkeys(ends, 7.0))
    lengths = set()
    for seed in range(12):
        done = run(context, ModelDrafter(draft), params=params.replace(seed=seed), max_tokens=60, draft_max=5)
        assert done.finish_reason == "stop"
        assert not set(done.completion) & set(ends)
        assert done.stats.completion_tokens == len(done.completion)
        lengths.add(len(done.completion))
    assert len(lengths) > 3


@pytest.mark.parametrize("n_ctx", [8, 16, 40])
def test_a_draft_context_smaller_than_the_targets(tiny: Tiny, open_context: Open, n_ctx: int) -> None:
    context, draft = open_context(tiny()), open_context(tiny(noise=0.02), n_ctx=n_ctx)
    plain = run(context, prompt=REPETITIVE, max_tokens=100)
    done = run(context, ModelDrafter(draft), prompt=REPETITIVE, max_tokens=100, draft_max=4)
    assert done.tokens == plain.tokens
    assert done.stats.drafted > 0


@pytest.mark.parametrize(("target_pad", "draft_pad"), [(None, 640), (640, None), (520, 600)])
@pytest.mark.parametrize("temperature", [0, 1])
def test_padded_vocabularies(
    tiny: Tiny, open_context: Open, target_pad: int | None, draft_pad: int | None, temperature: float
) -> None:
    """The target may even emit its padding ids, which the draft model does not have."""
    context = open_context(tiny(vocab=TinyVocab(pad_to=target_pad)))
    draft = open_context(tiny(vocab=TinyVocab(pad_to=draft_pad), noise=0.05))
    params = SamplingParams(temperature=temperature, seed=2, top_k=0, top_p=1, min_p=0)
    done = run(context, ModelDrafter(draft), params=params, max_tokens=100, draft_max=4)
    assert done.stats.accepted > 0
    assert max(done.tokens) < context.vocab.size
    if temperature == 0:
        assert done.tokens == run(context, max_tokens=100).tokens


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


LIST = 'root ::= item ("," item){2,5} "."\nitem ::= "the " [a-z]{1,6} | [0-9]{1,4}'
SCHEMA = '{"type":"object","properties":{"a":{"enum":["x","yy"]},"n":{"type":"integer"}},"required":["a","n"]}'


@pytest.mark.parametrize("source", ["gbnf", "schema"])
@pytest.mark.parametrize("name", ["none", *DRAFTERS])
@pytest.mark.parametrize("temperature", [0, 1])
def test_grammar_with_drafts(tiny: Tiny, open_context: Open, name: str, source: str, temperature: float) -> None:
    context, draft = open_context(tiny()), open_context(tiny(noise=0.05))
    text = LIST if source == "gbnf" else schema_to_gbnf(SCHEMA)

    def once(drafter: Drafter | None, seed: int) -> Generation:
        params = SamplingParams(temperature=temperature, seed=seed)
        return run(context, drafter, LlamaGrammar(context.vocab, text), params=params, max_tokens=120, draft_max=4)

    for seed in range(4):
        done = once(DRAFTERS[name](draft) if name != "none" else None, seed)
        assert done.finish_reason == "stop"
        if source == "gbnf":
            item = "(the [a-z]{1,6}|[0-9]{1,4})"
            assert re.fullmatch(rf"{item}(,{item}){{2,5}}\.", done.text)
        else:
            value = json.loads(done.text)
            assert value["a"] in ("x", "yy")
            assert isinstance(value["n"], int)
        if temperature == 0:
            assert done.tokens == once(None, seed).tokens


@pytest.mark.parametrize(
    "options",
    [
        {"prompt": ()},
        {"max_tokens": 0},
        {"max_tokens": True},
        {"max_tokens": 2.5},
        {"draft_max": -1},
        {"draft_max": None},
        {"verify": "typical"},
        {"stop": "abc"},
        {"stop": ("",)},
        {"prompt": (5, 512)},
        {"prompt": (-1,)},
        {"params": SamplingParams(logit_bias={512: 1.0})},
    ],
)
def test_bad_requests(tiny: Tiny, open_context: Open, options: dict[str, Any]) -> None:
    context = open_context(tiny())
    with pytest.raises(BadRequestError) as caught:
        run(context, **options)
    assert "\n" not in str(caught.value)
    assert run(context, max_tokens=2).finish_reason == "length"
