"""The embedded default model answers: from Python, from the command line, in a pipe, and within its context."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import edgespec
from edgespec import LLM, ContextFullError
from edgespec.forks import explain_fork
from edgespec.history import History
from edgespec.models.catalog import catalog
from edgespec.models.names import find_file

STARTER = catalog().starter
FOUND = find_file(STARTER)  # before any test changes where EdgeSpec looks
pytestmark = [pytest.mark.real, pytest.mark.skipif(FOUND is None, reason="no starter model; `edgespec pull starter`")]

CAPITAL = [{"role": "user", "content": "What is the capital of France? Answer in one short sentence."}]
COPY = [
    {
        "role": "user",
        "content": "Repeat this list word for word:\n1. wash the green apples\n2. peel the green apples\n"
        "3. cut the green apples\n4. cook the green apples",
    }
]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "large": {"type": "boolean"}},
    "required": ["city", "large"],
    "additionalProperties": False,
}
GREEDY: dict[str, Any] = {"temperature": 0}


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    # One thread: two of them wait for each other whenever the machine has other work.
    with edgespec.load(FOUND, ctx_size=1024, threads=1) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def capital(llm: LLM) -> edgespec.Reply:
    return llm.chat(CAPITAL, **GREEDY, max_tokens=24)


def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """`edgespec run` with no model named, hence the starter model."""
    command = [sys.executable, "-m", "edgespec", "run", "--no-save", "--threads", "1", "--ctx-size", "1024", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=120, check=False)


def test_it_knows_a_capital_and_stops(capital):
    assert "Paris" in capital.text
    assert capital.finish_reason == "stop"
    assert "<|im_end|>" not in capital.text
    assert all(logprob <= 0 for logprob in capital.logprobs)


def test_the_command_without_a_model_uses_it_and_says_so(capital):
    done = run(CAPITAL[0]["content"], "--temperature", "0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode() == capital.text + "\n"
    notice, statistics = done.stderr.decode().splitlines()
    assert notice.startswith(f"no model given: using the starter model, {STARTER.file}")
    assert re.match(rf"\[{re.escape(STARTER.file)}\] \d+ tokens, [\d.]+ tokens/s", statistics)


def test_it_answers_in_a_pipe():
    done = run("What is the capital of this country?", "--temperature", "0", "-n", "24", "--json", stdin=b"Italy\n")
    reply = json.loads(done.stdout)
    assert "Rome" in reply["text"]
    assert done.returncode == 0


def test_speculation_and_streaming_change_no_greedy_word(llm):
    plain = llm.chat(COPY, **GREEDY, max_tokens=48, draft_max=0)
    with llm.stream(COPY, **GREEDY, max_tokens=48, draft_max=3) as stream:
        text = "".join(event.text for event in stream)
    assert text == stream.reply.text
    fork = explain_fork(llm.target.model, llm.encode(COPY), plain.tokens, stream.reply.tokens, 4)
    assert plain.text == text if fork is None else fork.explained
    assert "green apples" in text
    stats = stream.reply.stats
    assert stats.mode == "speculative"
    assert stats.tau is not None
    assert stats.tau > 1.3  # it copies from the prompt, which is what lookup finds
    assert stats.rounds < plain.stats.rounds


def test_a_second_turn_knows_the_first(llm, capital):
    turn = [*CAPITAL, {"role": "assistant", "content": capital.text}, {"role": "user", "content": "And of Spain?"}]
    assert "Madrid" in llm.chat(turn, **GREEDY, max_tokens=16).text


def test_emoji_and_other_scripts_survive(llm):
    text = "Grüße, 日本語, 👩‍👩‍👧 e\u0301"
    assert llm.detokenize(llm.tokenize(text)) == text
    reply = llm.chat([{"role": "user", "content": f"Repeat: {text}"}], seed=4, temperature=1.2, max_tokens=24)
    assert llm.detokenize(reply.tokens) == reply.text


def test_json_schema(llm):
    question = [{"role": "user", "content": "Describe Paris as JSON with city and large."}]
    value = json.loads(llm.chat(question, json_schema=json.dumps(SCHEMA), seed=1, max_tokens=80).text)
    assert set(value) == {"city", "large"}
    assert isinstance(value["large"], bool)


def test_a_seed_repeats(llm):
    story = [{"role": "user", "content": "Begin a story."}]
    texts = [llm.chat(story, seed=seed, max_tokens=20).text for seed in (5, 5, 6)]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize("character", ["a", " ", "\n", "é", "🙂", "7", "("])
def test_twenty_thousand_repetitions_do_no_harm(llm, character):
    text = character * 20_000
    ids = llm.tokenize(text)
    assert llm.detokenize(ids) == text
    if len(ids) >= llm.target.n_ctx:
        with pytest.raises(ContextFullError, match="shorten the prompt") as caught:
            llm.chat([{"role": "user", "content": f"x{text}x"}])
        assert caught.value.needed > caught.value.available == 1023


def test_twenty_thousand_repetitions_through_a_pipe():
    done = run("-q", stdin=b"a" * 20_000)
    assert (done.returncode, done.stdout) == (5, b"")
    assert re.fullmatch(
        rb"edgespec: the prompt has \d+ tokens and the context of 1024 has room for 1023; [^\n]*\n", done.stderr
    )


def test_plain_chat_answers_and_remembers(tmp_path):
    assert FOUND is not None
    env = {**os.environ, "EDGESPEC_HOME": str(tmp_path)}
    # All settings are named, and nothing is guessed: a new home would measure first.
    forced = ["--threads", "1", "--gpu-layers", "0", "--buffers", "repack", "--flash-attn", "off", "--drafter", "none"]
    options = ["--ctx-size", "1024", "--temperature", "0", "-n", "24", *forced]
    command = [sys.executable, "-m", "edgespec", "chat", "--plain", "-m", str(FOUND), *options]

    def say(text: str, *options: str) -> str:
        done = subprocess.run([*command, *options], input=text.encode(), env=env, capture_output=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    assert "Paris" in say("What is the capital of France? Answer in one short sentence.")
    assert say("Say that again.", "--continue").strip()
    with History(tmp_path / "history" / "history.db") as history:
        (conversation,) = history.conversations()
        assert [m.role for m in history.path(conversation.id)] == ["user", "assistant"] * 2
        assert history.details(history.path(conversation.id)[-1].id).tokens
