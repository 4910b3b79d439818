"""Raw texts that go on, through the real client. The scripted model goes on in the alphabet."""

from __future__ import annotations

import pytest

from running_server import MODEL, Running


def test_a_whole_completion_and_its_default_length(echo: Running) -> None:
    with echo.client() as client:
        answer = client.completions.create(model=MODEL, prompt="abc")
    assert answer.object == "text_completion"
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("defghijklmnopqrs", "length")
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 16)


def test_a_streamed_completion(echo: Running) -> None:
    with echo.client() as client:
        stream = client.completions.create(
            model=MODEL, prompt="abc", max_tokens=4, stream=True, stream_options={"include_usage": True}
        )
        *chunks, finish, last = stream
    assert "".join(chunk.choices[0].text for chunk in chunks) == "defg"
    assert finish.choices[0].finish_reason == "length"
    assert last.usage is not None
    assert last.usage.total_tokens == 7


@pytest.mark.parametrize("prompt", ["abc", ["abc"], [97, 98, 99], [[97, 98, 99]]])
def test_prompts_as_text_or_ids(echo: Running, prompt: object) -> None:
    assert echo.post({"prompt": prompt, "max_tokens": 2}, "/v1/completions").json["choices"][0]["text"] == "de"


def test_logprobs_of_a_completion(echo: Running) -> None:
    body = {"prompt": "abc", "max_tokens": 3, "logprobs": 0}
    found = echo.post(body, "/v1/completions").json["choices"][0]["logprobs"]
    assert (found["tokens"], found["text_offset"]) == (["d", "e", "f"], [0, 1, 2])
    assert found["top_logprobs"] == [{}, {}, {}]
    chunks = echo.post({**body, "stream": True}, "/v1/completions").events[:-2]
    assert [token for chunk in chunks for token in chunk["choices"][0]["logprobs"]["tokens"]] == ["d", "e", "f"]


def test_the_likeliest_tokens_of_a_completion(echo: Running) -> None:
    body = {"prompt": "abc", "max_tokens": 2, "logprobs": 1}
    found = echo.post(body, "/v1/completions").json["choices"][0]["logprobs"]
    assert found["top_logprobs"] == [{"d": found["token_logprobs"][0]}, {"e": found["token_logprobs"][1]}]


def test_a_grammar(echo: Running) -> None:
    """The scripted vocabulary cannot be given to llama.cpp's grammars; the engine says so, and the field is named."""
    answer = echo.post({"prompt": "abc", "grammar": 5}, "/v1/completions")
    assert (answer.status, answer.error["param"]) == (400, "grammar")
