"""The Responses API through the real client."""

from __future__ import annotations

import openai
import pytest

from running_server import MODEL, Running


def test_a_whole_response(echo: Running) -> None:
    with echo.client() as client:
        answer = client.responses.create(model=MODEL, instructions="Repeat.", input="Hello there", metadata={"a": "b"})
    assert (answer.status, answer.output_text) == ("completed", "Hello there")
    assert answer.instructions == "Repeat."
    assert answer.metadata == {"a": "b"}
    assert answer.usage is not None
    assert answer.usage.output_tokens > 3
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens


def test_a_response_to_messages_that_is_cut(echo: Running) -> None:
    with echo.client() as client:
        first = client.responses.create(model=MODEL, input="one")
        answer = client.responses.create(
            model=MODEL,
            max_output_tokens=3,
            input=[
                {"role": "user", "content": "one"},
                *[item.model_dump(exclude_none=True) for item in first.output],  # type: ignore[list-item]
                {"role": "user", "content": [{"type": "input_text", "text": "abcdef"}]},
            ],
        )
    assert (answer.status, answer.output_text) == ("incomplete", "abc")
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"


def test_a_streamed_response(echo: Running) -> None:
    with echo.client() as client, client.responses.stream(model=MODEL, input="Hello there") as stream:
        events = list(stream)
        final = stream.get_final_response()
    kinds = [event.type for event in events]
    deltas = kinds.count("response.output_text.delta")
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * deltas,
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert deltas > 3
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert final.output_text == "Hello there"


def test_logprobs_of_a_response(echo: Running) -> None:
    body = {"input": "abc", "include": ["message.output_text.logprobs"]}
    part = echo.post(body, "/v1/responses").json["output"][0]["content"][0]
    assert [entry["token"] for entry in part["logprobs"]] == ["a", "b", "c"]
    streamed = echo.post({**body, "stream": True}, "/v1/responses").events
    assert streamed[-1]["response"]["output"][0]["content"][0]["logprobs"] == part["logprobs"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"truncation": "auto"}, "truncation"),
        ({"text": {"format": {"type": "poem"}}}, "text.format.type"),
        ({"input": [{"type": "image_generation_call", "id": "1"}]}, "input[0].type"),
    ],
)
def test_what_a_response_cannot_do_is_refused(echo: Running, fields: dict[str, object], param: str) -> None:
    with echo.client() as client, pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(**{"model": MODEL, "input": "hi", **fields})  # type: ignore[call-overload]
    assert caught.value.param == param
