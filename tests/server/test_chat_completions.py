"""Chat through the real client: what it sends is understood, what it gets is what it expects."""

from __future__ import annotations

import itertools
from typing import Any

import openai
import pytest

from running_server import MODEL, Running

HELLO: list[Any] = [{"role": "user", "content": "Good evening, dear parrot: 1, 2, 3. Naïve? 🦜 Yes."}]
TEXT = HELLO[0]["content"]


def test_a_whole_answer(echo: Running) -> None:
    with echo.client() as client:
        answer = client.chat.completions.create(model=MODEL, messages=HELLO)
    assert answer.object == "chat.completion"
    assert answer.id.startswith("chatcmpl-")
    assert answer.model == MODEL
    (choice,) = answer.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", TEXT, "stop")
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    timings = answer.timings  # type: ignore[attr-defined]  # llama.cpp's, beside OpenAI's fields
    assert timings["predicted_n"] == answer.usage.completion_tokens
    assert timings["prompt_n"] + timings["cache_n"] == answer.usage.prompt_tokens
    assert 0 < timings["draft_n_accepted"] <= timings["draft_n"]
    assert timings["predicted_per_second"] > 0


def test_a_stream_with_usage(echo: Running) -> None:
    with echo.client() as client:
        stream = client.chat.completions.create(
            model=MODEL,
            messages=HELLO,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1
    first, *middle, finish, last = chunks
    assert (first.choices[0].delta.role, first.choices[0].delta.content) == ("assistant", "")
    assert len(middle) > 3
    assert "".join(chunk.choices[0].delta.content or "" for chunk in middle) == TEXT
    assert all(chunk.choices[0].finish_reason is None and chunk.usage is None for chunk in (first, *middle))
    assert (finish.choices[0].finish_reason, finish.choices[0].delta.content) == ("stop", None)
    assert finish.timings["draft_n"] > 0  # type: ignore[attr-defined]
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.completion_tokens > 3


def test_a_stream_on_the_wire(echo: Running) -> None:
    answer = echo.chat("a\nb\u2028c", stream=True)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.body.endswith(b"data: [DONE]\n\n")
    *chunks, done = answer.events
    assert done == "[DONE]"
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "a\nb\u2028c"
    assert "usage" not in chunks[-1]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]


@pytest.mark.parametrize("stop", [", 2", [", 2", "never"]], ids=["text", "list"])
def test_stop_strings_end_an_answer_and_are_not_shown(echo: Running, stop: object) -> None:
    assert echo.chat(TEXT, stop=stop).json["choices"][0] == {
        "index": 0,
        "message": {"role": "assistant", "content": "Good evening, dear parrot: 1", "refusal": None},
        "logprobs": None,
        "finish_reason": "stop",
    }
    streamed = echo.chat(TEXT, stop=stop, stream=True, logprobs=True).events[:-1]
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in streamed) == "Good evening, dear parrot: 1"


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_a_limit_of_tokens(echo: Running, field: str) -> None:
    answer = echo.chat(TEXT, **{field: 7}).json
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 7


def test_contents_in_parts_and_answers_that_are_sent_back(echo: Running) -> None:
    with echo.client() as client:
        parts: list[Any] = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
        answer = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": parts}])
        first = answer.choices[0].message
        assert first.content == "one two"
        second = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "developer", "content": "Repeat."}, first.model_dump(), *HELLO],  # type: ignore[list-item]
            tools=openai.omit,
            user="somebody",
            store=False,
            metadata={"a": "b"},
        )
    assert second.choices[0].message.content == TEXT


def test_null_is_as_good_as_nothing(echo: Running) -> None:
    nothing = dict.fromkeys(("temperature", "stop", "tools", "n", "seed", "response_format", "logit_bias", "stream"))
    assert echo.chat("hi", **nothing).json["choices"][0]["message"]["content"] == "hi"


def test_logprobs_whole_and_streamed(echo: Running) -> None:
    whole = echo.chat(TEXT, logprobs=True).json
    content = whole["choices"][0]["logprobs"]["content"]
    assert len(content) == whole["usage"]["completion_tokens"]
    assert "".join(entry["token"] for entry in content) == TEXT
    assert all(bytes(entry["bytes"]).decode() == entry["token"] for entry in content)
    assert all(-1e-3 < entry["logprob"] <= 0 for entry in content)  # it is sure of what it says
    streamed = [c["choices"][0]["logprobs"] for c in echo.chat(TEXT, logprobs=True, stream=True).events[:-1]]
    told = list(itertools.chain.from_iterable(entry["content"] for entry in streamed if entry is not None))
    assert told == content


def test_the_likeliest_tokens(echo: Running) -> None:
    for entry in echo.chat("ab", logprobs=True, top_logprobs=3).json["choices"][0]["logprobs"]["content"]:
        top = entry["top_logprobs"]
        assert len(top) == 3
        assert {name: entry[name] for name in ("token", "logprob", "bytes")} == top[0]  # it is sure of what it says
        assert top[0]["logprob"] > top[1]["logprob"] >= top[2]["logprob"]


def test_a_seed_repeats_a_text(echo: Running) -> None:
    def text(seed: int) -> str:
        # Hot enough that every token is about as likely as any other.
        fields = {"seed": seed, "temperature": 1e6, "top_k": 0, "top_p": 1, "min_p": 0, "max_tokens": 20}
        return str(echo.chat("x" * 40, **fields).json["choices"][0]["message"]["content"])

    assert text(1) == text(1) != text(2)


def test_the_models(echo: Running) -> None:
    with echo.client() as client:
        (model,) = client.models.list()
        assert client.models.retrieve(MODEL) == model
        assert (model.id, model.object, model.owned_by) == (MODEL, "model", "edgespec")
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("another")
