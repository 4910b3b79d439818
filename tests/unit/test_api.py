"""The Python API on tiny models: replies, streams, cancellation, threads and asyncio."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgespec
from edgespec import LLM, BadRequestError, ContextFullError, ModelLoadError, Reply, TokenEvent
from edgespec.llama import Context, LoadSettings, Model, profiling
from edgespec.messages import Message
from edgespec.profile import Choice, RuntimeProfile, Trial
from edgespec.scoring import ScoreRequest
from edgespec.stats import RoundEvent
from edgespec.tiny_gguf import CHATML_TEMPLATE

GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 24}
MESSAGES = [{"role": "user", "content": "Tell me more"}]
ODD = "naïve 日本語 🙂👩‍👩‍👧 é\u0301 \x00 tail"


@pytest.fixture(scope="module")
def paths(tiny: Callable[..., Path]) -> dict[str, Path]:
    return {
        "chat": tiny(chat_template=CHATML_TEMPLATE, n_ctx_train=16384),
        "draft": tiny(noise=0.05, n_ctx_train=16384),
        "raw": tiny(n_ctx_train=16384),
    }


@pytest.fixture(scope="module")
def llm(paths: dict[str, Path]) -> Iterator[LLM]:
    """A target with a draft model and lookup."""
    with edgespec.load(paths["chat"], draft=paths["draft"], ctx_size=512, threads=1) as loaded:
        yield loaded


def owned(llm: LLM) -> int:
    """How many of the target's caches a request holds."""
    return sum(slot.owner is not None for slot in llm.target._slots)


def test_a_reply_says_what_was_made_and_how(llm):
    reply = llm.chat(MESSAGES, **GREEDY, draft_max=3)  # planned rounds depend on the clock
    assert isinstance(reply, Reply)
    assert len(reply.tokens) == len(reply.logprobs) == reply.stats.completion_tokens == 24
    assert llm.detokenize(reply.tokens) == reply.text
    assert reply.finish_reason == "length"
    assert reply.model == llm.name == llm.target.model.path.name
    assert reply.drafter == llm.drafter == "suffix,lookup,model"
    assert reply.stats.prompt_tokens == len(llm.encode(MESSAGES))
    assert reply.stats.mode == "speculative"
    assert llm.stats is reply.stats
    assert reply.to_json()["stats"] == reply.stats.to_json()


def test_text_ids_and_messages_are_the_same_prompt(llm):
    text = "and the other"
    ids = llm.tokenize(text)
    assert llm.complete(text, **GREEDY).tokens == llm.complete(list(ids), **GREEDY).tokens
    assert llm.chat(MESSAGES, **GREEDY).tokens == llm.complete(llm.encode(MESSAGES), **GREEDY).tokens
    assert llm.encode([Message("user", "Tell me more")]) == llm.encode(tuple(MESSAGES))


def test_tokens_and_text_round_trip(llm):
    assert llm.detokenize(llm.tokenize(ODD)) == ODD
    assert llm.detokenize(()) == ""
    lone = llm.detokenize(llm.tokenize("a\ud800b"))
    assert lone == "a\N{REPLACEMENT CHARACTER}b"


@pytest.mark.parametrize("options", [GREEDY, {"temperature": 1.0, "seed": 3, "max_tokens": 40}], ids=["greedy", "1.0"])
def test_logprobs_are_the_log_softmax_of_the_raw_logits(paths, options):
    with edgespec.load(paths["chat"], draft=paths["draft"], ctx_size=512, threads=1, kv_type="f32") as llm:
        reply = llm.chat(MESSAGES, **options)
        prompt = llm.encode(MESSAGES)
    with Model(paths["chat"], LoadSettings(n_ctx=512, threads=1, kv_type="f32")) as model, Context(model) as context:
        sequence = context.sequence()
        for i, (token, logprob) in enumerate(zip(reply.tokens, reply.logprobs, strict=True)):
            row = context.score([ScoreRequest(sequence, [*prompt, *reply.tokens[:i]])])[0][0].astype(np.float64)
            expected = row[token] - row.max() - np.log(np.exp(row - row.max()).sum())
            assert logprob == pytest.approx(expected, abs=1e-4)  # kernels of another width round otherwise
            assert logprob <= 0


@pytest.mark.parametrize("seed", range(6))
def test_a_stream_adds_up_to_its_reply(llm, seed):
    """Sampled tokens of a random model are mostly broken UTF-8: bytes, halves of characters, controls."""
    with llm.stream(ODD, temperature=1.5, top_k=0, min_p=0, top_p=1, seed=seed, max_tokens=80) as stream:
        events = list(stream)
        reply = stream.reply
    assert "".join(e.text for e in events) == reply.text
    assert [e.id for e in events] == list(reply.tokens)
    assert [e.logprob for e in events] == list(reply.logprobs)
    assert reply.text == llm.detokenize(reply.tokens)
    assert "\N{REPLACEMENT CHARACTER}" in reply.text


@pytest.mark.parametrize("how", [{"reproducible": True}, {"verify": "seed"}, {"seed": 7}], ids=str)
def test_a_reproducible_reply_names_its_seed_and_repeats_without_speculation(llm, how):
    options = {"temperature": 1.0, "max_tokens": 40}
    reply = llm.chat(MESSAGES, **options, **how, draft_max=4)
    assert reply.seed == reply.to_json()["seed"]
    assert reply.seed == 7 if "seed" in how else reply.seed is not None
    assert reply.stats.accepted > 0
    for draft_max in (0, 1, None):
        assert llm.chat(MESSAGES, **options, seed=reply.seed, draft_max=draft_max).tokens == reply.tokens


def test_a_reply_without_a_seed_names_none(llm):
    assert llm.chat(MESSAGES, max_tokens=4).seed is None
    assert llm.chat(MESSAGES, max_tokens=4, verify="block", seed=5).seed == 5


def test_a_seed_means_seed_exact_unless_another_rule_is_named(llm):
    def text(**options: Any) -> tuple[int, ...]:
        return llm.chat(MESSAGES, temperature=1.0, max_tokens=40, seed=3, draft_max=3, **options).tokens

    assert text() == text(verify="seed") == text(reproducible=True) == text(reproducible=True, verify="seed")
    assert text(verify="block") == text(verify="block") != text()


@pytest.mark.parametrize("word", ["日本語", "🙂👩‍👩‍👧", "naïve", "a\u0301b"])
def test_characters_of_several_tokens_arrive_whole(llm, word):
    grammar = "root ::= " + " ".join(f'"{c}"' for c in word)
    with llm.stream("Say it:", grammar=grammar, seed=1) as stream:
        texts = [e.text for e in stream]
    assert "".join(texts) == stream.reply.text == word
    assert stream.reply.finish_reason == "stop"
    assert all("\N{REPLACEMENT CHARACTER}" not in text for text in texts)
    assert len(texts) > len(word)  # most tokens are bytes and show nothing yet


def test_events_carry_the_rounds_too(llm):
    with llm.stream(MESSAGES, **GREEDY) as stream:
        events = list(stream.events())
    rounds = [e for e in events if isinstance(e, RoundEvent)]
    assert [r.round for r in rounds] == list(range(1, stream.reply.stats.rounds + 1))
    assert sum(len(r.emitted) for r in rounds) == 23  # the first token comes from the prompt pass
    assert tuple(e.id for e in events if isinstance(e, TokenEvent)) == stream.reply.tokens


def test_a_stop_string_may_be_text_or_a_list(llm):
    whole = llm.chat(MESSAGES, **GREEDY).text
    stop = whole[9:12]
    for given in (stop, [stop], ("never there", stop)):
        reply = llm.chat(MESSAGES, **GREEDY, stop=given)
        assert reply.text == whole[: whole.index(stop)]
        assert reply.finish_reason == "stop"


def test_a_stop_cuts_the_text_but_not_the_counts_of_its_round(llm):
    whole = llm.chat(MESSAGES, **GREEDY, draft_max=3)
    cut = 0
    for end in range(2, len(whole.text)):
        with llm.stream(MESSAGES, **GREEDY, draft_max=3, stop=whole.text[end - 2 : end]) as stream:
            text = "".join(event.text for event in stream)
        reply = stream.reply
        assert text == reply.text == whole.text[: whole.text.index(whole.text[end - 2 : end])]
        stats = reply.stats
        assert stats.produced == stats.accepted + stats.rounds
        assert stats.completion_tokens == len(reply.tokens) <= 1 + stats.produced
        cut += stats.completion_tokens < 1 + stats.produced
    assert cut > 0


def test_an_end_token_is_no_part_of_the_reply(llm):
    end = llm.target.vocab.eos
    reply = llm.chat(MESSAGES, logit_bias={end: 1000.0})
    assert (reply.text, reply.tokens, reply.logprobs, reply.finish_reason) == ("", (), (), "stop")
    assert reply.stats.completion_tokens == 0


def test_an_end_in_the_middle_of_a_character_shows_it_as_broken(llm):
    byte = llm.tokenize("日")[0]
    with llm.stream(MESSAGES, logit_bias={byte: 900.0}, max_tokens=1) as stream:
        texts = [e.text for e in stream]
    assert "".join(texts) == stream.reply.text == "\N{REPLACEMENT CHARACTER}"


def test_a_model_without_a_template_completes_but_does_not_chat(paths):
    with edgespec.load(paths["raw"], ctx_size=64, threads=1) as bare:
        with pytest.raises(BadRequestError, match=r"has no chat template.*use complete"):
            bare.chat(MESSAGES)
        assert bare.complete("and the", **GREEDY).text


def test_a_broken_template_spoils_only_chatting(tiny):
    with edgespec.load(tiny(chat_template="{% for m in messages %}"), ctx_size=64, threads=1) as loaded:
        with pytest.raises(ModelLoadError, match=r"chat template cannot be compiled: .*; complete plain text"):
            loaded.chat(MESSAGES)
        assert loaded.complete("and the", **GREEDY).text


def test_sources_follow_what_was_asked_for(paths):
    chat, draft = paths["chat"], paths["draft"]
    small: dict[str, Any] = {"ctx_size": 64, "threads": 1}
    for how, sources in (
        ({"drafter": "none", "draft": draft}, "none"),
        ({"drafter": "lookup", "draft": draft}, "lookup"),
        ({"drafter": "model,lookup", "draft": draft}, "lookup,model"),
        ({"draft": "none"}, "suffix,lookup"),
        ({}, "suffix,lookup"),
    ):
        with edgespec.load(chat, **how, **small) as loaded:
            assert loaded.drafter == sources
            assert (loaded.draft is None) == ("model" not in sources)
            if sources == "none":
                stats = loaded.chat(MESSAGES, **GREEDY).stats
                assert (stats.mode, stats.tau) == ("plain", 1)
                assert stats.why.startswith("speculation is off")


def test_a_recurrent_model_says_why_it_does_not_speculate(tiny):
    with edgespec.load(tiny("mamba"), ctx_size=64, threads=1) as loaded:
        reply = loaded.complete("and the", **GREEDY)
        assert loaded.drafter == reply.drafter in ("none", "suffix,lookup")
        if reply.drafter == "none":
            assert reply.stats.why == "speculation is off for this model: its recurrent state cannot be rolled back"
            assert reply.stats.mode == "plain"


def test_a_draft_with_a_short_context_goes_on_helping(tiny, paths):
    short = tiny(noise=0.02, n_ctx_train=48)
    with edgespec.load(paths["chat"], draft=short, drafter="model", ctx_size=256, threads=1) as loaded:
        loaded_plain = loaded.chat(MESSAGES, temperature=0, draft_max=0, max_tokens=150)
        reply = loaded.chat(MESSAGES, temperature=0, draft_max=3, max_tokens=150)
        assert reply.text == loaded_plain.text
        assert reply.stats.accepted > 0


def test_a_full_context_is_an_error_with_counts_and_no_harm(llm):
    before = llm.chat(MESSAGES, **GREEDY)
    with pytest.raises(ContextFullError, match="600 tokens and the context of 512 has room for 511") as caught:
        llm.complete([80] * 600)
    assert (caught.value.needed, caught.value.available, caught.value.exit_code) == (600, 511, 5)
    assert owned(llm) == 0
    assert llm.chat(MESSAGES, **GREEDY).text == before.text
    for n in (511, 505):
        reply = llm.complete([80] * n)
        assert (len(reply.tokens), reply.finish_reason) == (512 - n, "length")


def test_progress_names_each_file_and_ends_at_one(paths):
    seen: dict[str, list[float]] = {}
    with edgespec.load(
        paths["chat"], draft=paths["draft"], ctx_size=64, threads=1,
        progress=lambda name, part: seen.setdefault(name, []).append(part),
    ):  # fmt: skip
        assert set(seen) == {paths["chat"].name, paths["draft"].name}
    for parts in seen.values():
        assert parts == sorted(parts)
        assert parts[-1] == 1


def test_a_context_may_be_divided(tiny: Callable[..., Path]) -> None:
    with edgespec.load(tiny(), ctx_size=1024, threads=1, parallel=4, split_cache=True) as llm:
        assert (llm.target.n_ctx, llm.target.cells) == (256, 1024)
        assert len(llm.complete([5, 6, 7], max_tokens=8).tokens) == 8
    with pytest.raises(BadRequestError, match="split_cache"):
        edgespec.load(tiny(), ctx_size=1024, split_cache="yes")  # type: ignore[arg-type]
    for wrong in (0, True, "x"):
        with pytest.raises(BadRequestError, match="at_once is"):
            edgespec.load(tiny(), ctx_size=1024, at_once=wrong)


def test_a_draft_model_holds_two_texts_for_each_request(paths: dict[str, Path]) -> None:
    """All of a conversation, and its latest part, for each of them: else they would take each other's cache."""
    with edgespec.load(paths["chat"], draft=paths["draft"], ctx_size=512, threads=1, parallel=3) as llm:
        assert llm.draft is not None
        assert (llm.target.max_sequences, llm.draft.max_sequences) == (3, 6)


def test_flash_attention_for_several_at_once_is_what_was_measured(
    tiny: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    off = Choice(buffers="none", flash_attn="off", threads=1, gpu_layers=0)
    trials = (Trial(off, 10.0, 12.0), Trial(replace(off, flash_attn="on"), 10.0, 12.0))
    monkeypatch.setattr(profiling, "runtime_profile", lambda *_, **__: RuntimeProfile(off, None, trials))

    def flash(**options: Any) -> str:
        with edgespec.load(tiny(), ctx_size=512, **options) as llm:
            return llm.target.settings.flash_attn

    assert [flash(at_once=n) for n in (1, 2, 4)] == ["off", "off", "on"]
    assert flash(at_once=4, flash_attn="off") == "off"
    assert flash(at_once=4, split_cache=True) == "off"
