"""Tools in the Responses API, through the real client: calls come as items, their results are sent back as items."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from running_server import MODEL, Running

WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "weather",
    "description": "How the sky is.",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
    "strict": True,
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"place": "Züri"}}\n</tool_call>'
SAID = f"Let me look.\n{CALL}"


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_and_its_result(hermes: Running, stream: bool) -> None:
    with hermes.client() as client:
        if stream:
            with client.responses.stream(model=MODEL, input=SAID, tools=[WEATHER]) as events:  # type: ignore[list-item]
                answer: Any = events.get_final_response()
        else:
            answer = client.responses.create(model=MODEL, input=SAID, tools=[WEATHER])  # type: ignore[list-item]
        said, call = answer.output
        assert (answer.status, answer.output_text) == ("completed", "Let me look.")
        assert (said.type, call.type, call.name, call.status) == ("message", "function_call", "weather", "completed")
        assert json.loads(call.arguments) == {"place": "Züri"}
        assert (answer.tools[0].name, answer.tool_choice, answer.parallel_tool_calls) == ("weather", "auto", False)
        back: list[Any] = [
            {"role": "user", "content": "And?"},
            said.model_dump(exclude_none=True),
            {name: getattr(call, name) for name in ("type", "id", "call_id", "name", "arguments", "status")},
            {
                "type": "function_call_output",
                "call_id": call.call_id,
                "output": [{"type": "input_text", "text": "sun"}],
            },
        ]
        again = client.responses.create(model=MODEL, input=back, tools=[WEATHER])  # type: ignore[list-item]
    assert again.output_text == 'And?Let me look.CALL weather {"place": "Züri"}sun'


def test_the_events_of_a_stream(hermes: Running) -> None:
    with hermes.client() as client:
        stream = client.responses.create(model=MODEL, input=SAID + CALL, tools=[WEATHER], stream=True)  # type: ignore[list-item]
        events: list[Any] = list(stream)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type.removeprefix("response.") for event in events]
    deltas = kinds.count("output_text.delta")
    call = [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    assert kinds == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        *["output_text.delta"] * deltas,
        "output_text.done",
        "content_part.done",
        "output_item.done",
        *call,
        *call,
        "completed",
    ]
    assert deltas > 1
    *_, last = events
    assert [item.type for item in last.response.output] == ["message", "function_call", "function_call"]
    done = [event for event in events if event.type == "response.output_item.done"]
    assert [event.item.id for event in done] == [item.id for item in last.response.output]
    assert [event.output_index for event in done] == [0, 1, 2]
    assert len({item.call_id for item in last.response.output[1:]}) == 2
    added = [event for event in events if event.type == "response.output_item.added"][1]
    assert (added.item.arguments, added.item.status, added.item.id) == ("", "in_progress", done[1].item.id)


def test_a_call_alone_is_the_only_item(hermes: Running) -> None:
    for stream in (False, True):
        answer = hermes.post({"input": CALL, "tools": [WEATHER], "stream": stream}, "/v1/responses")
        found = answer.events[-1]["response"] if stream else answer.json
        assert [item["type"] for item in found["output"]] == ["function_call"]


def test_only_what_is_asked_for_is_a_call(hermes: Running) -> None:
    for fields in ({}, {"tools": []}, {"tools": [WEATHER], "tool_choice": "none"}):
        (item,) = hermes.post({"input": CALL, **fields}, "/v1/responses").json["output"]
        assert item["content"][0]["text"] == CALL
    cut = hermes.post({"input": CALL, "tools": [WEATHER], "max_output_tokens": 40}, "/v1/responses").json
    assert (cut["status"], cut["output"][0]["type"], cut["output"][0]["status"]) == (
        "incomplete",
        "message",
        "incomplete",
    )


def test_a_stream_that_says_nothing_has_an_empty_item(hermes: Running) -> None:
    events = hermes.post({"input": "\n", "tools": [WEATHER], "stream": True, "stop": ["\n"]}, "/v1/responses").events
    (item,) = events[-1]["response"]["output"]
    assert item["content"][0]["text"] == ""


def test_a_required_call_is_held_to_the_schema() -> None:
    """The grammar is the chat's (test_forced_calls.py); here, that it is asked for."""
    from edgespec.dialect import Dialect
    from edgespec.server.adapting import adapted
    from edgespec.server.responses import read_response

    dialect = Dialect(variables=("tools",), form="hermes")
    for choice in ("required", {"type": "function", "name": "weather"}):
        body = {"input": "?", "tools": [WEATHER], "tool_choice": choice}
        assert "json_schema" in adapted(read_response(body), dialect).options


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{**WEATHER, "magic": 1}]}, "tools[0].magic"),
        ({"tools": [WEATHER, WEATHER]}, "tools[1].name"),
        ({"tools": [{**WEATHER, "parameters": 5}]}, "tools[0].parameters"),
        ({"tools": 5}, "tools"),
        ({"tools": [WEATHER], "tool_choice": "some"}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function", "name": "other"}}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [WEATHER], "include": ["message.output_text.logprobs"]}, "include"),
        ({"tools": [WEATHER], "top_logprobs": 2}, "top_logprobs"),
        ({"input": [{"type": "file_search_call"}]}, "input[0].type"),
        ({"input": [{"type": "reasoning", "content": [{"type": "x"}]}]}, "input[0].content[0]"),
        ({"input": [{"type": ["message"]}]}, "input[0].type"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
        ({"input": [{"type": "function_call_output", "call_id": "1"}]}, "input[0].output"),
        ({"input": [{"type": "function_call", "call_id": "1", "name": "weather"}]}, "input[0].arguments"),
        (
            {"input": [{"type": "function_call", "call_id": "1", "name": "weather", "arguments": "[]"}]},
            "input[0].arguments",
        ),
        (
            {
                "input": [
                    {"role": "user", "content": "a"},
                    {"type": "function_call", "call_id": "1", "name": "a", "arguments": "{}"},
                    {"type": "function_call", "call_id": "2", "name": "a", "arguments": "{}"},
                    {"role": "wizard", "content": "b"},
                ]
            },
            "input[3].role",
        ),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(hermes: Running, fields: dict[str, object], param: str) -> None:
    with hermes.client() as client, pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(**{"model": MODEL, "input": "hi", **fields})  # type: ignore[call-overload]
    assert caught.value.param == param


def test_a_model_that_takes_no_tools_says_so(echo: Running) -> None:
    refused = echo.post({"input": "hi", "tools": [WEATHER]}, "/v1/responses")
    assert (refused.status, refused.error["param"]) == (400, "tools")
    call = {"type": "function_call", "call_id": "1", "name": "weather", "arguments": "{}"}
    refused = echo.post({"input": [call]}, "/v1/responses")
    assert (refused.status, refused.error["param"]) == (400, "input")
