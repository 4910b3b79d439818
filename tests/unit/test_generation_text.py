"""The loop over tiny llama.cpp models: drafts change the speed, never the text or what is reported of it."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from tiny_generations import DRAFTERS, GREEDY, PROMPT, REPETITIVE, Open, Tiny, run

from edgespec.drafters import ModelDrafter
from edgespec.drafting import Drafter
from edgespec.generation import Generation, GenerationRequest, generate
from edgespec.llama import LlamaGrammar, schema_to_gbnf
from edgespec.sampling import SamplingParams
from edgespec.stats import RoundEvent, TokenEvent
from edgespec.tiny_gguf import TinyVocab


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
