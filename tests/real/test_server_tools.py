"""Tools with a model that was trained on them, through the real client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clients_page import examples, run_example
from edgespec.engine.client import WorkerEngine
from edgespec.engine.protocol import LoadSpec
from measured import Record
from running_server import MODEL, Running, running

pytestmark = pytest.mark.real
FORECAST: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "forecast",
        "description": "How the weather of a town will be.",
        "parameters": {
            "type": "object",
            "properties": {
                "town": {"type": "string", "maxLength": 40, "description": "Its name, without the country."},
                "days": {"type": "integer", "description": "How many days ahead."},
                "unit": {"enum": ["celsius", "fahrenheit"]},
            },
            "required": ["town", "days", "unit"],
            "additionalProperties": False,
        },
    },
}
ASKED: list[Any] = [{"role": "user", "content": "Will it rain in Bern within the next 2 days? I think in celsius."}]


@pytest.fixture(scope="module", params=["qwen_draft", pytest.param("qwen_target", marks=pytest.mark.soak)])
def served(request: pytest.FixtureRequest) -> Iterator[Running]:
    path: Path = request.getfixturevalue(request.param)
    spec = LoadSpec(model=str(path), draft="none", ctx_size=2048)
    with running(spec, engine=WorkerEngine(shared=False)) as server:
        yield server


def arguments(call: Any) -> dict[str, Any]:
    """Of a call that fits the schema."""
    assert call.function.name == "forecast"
    given = json.loads(call.function.arguments)
    assert set(given) == {"town", "days", "unit"}
    assert isinstance(given["town"], str)
    assert type(given["days"]) is int
    assert given["unit"] in ("celsius", "fahrenheit")
    return dict(given)


def test_a_forced_call_and_its_result(served: Running, record: Record) -> None:
    with served.client(timeout=120) as client:
        choice = client.chat.completions.create(
            model=MODEL, messages=ASKED, tools=[FORECAST], tool_choice="required", temperature=0, max_tokens=100
        ).choices[0]
        assert choice.finish_reason == "tool_calls"
        (call,) = choice.message.tool_calls or ()
        assert "Bern" in arguments(call)["town"]
        result = {"role": "tool", "tool_call_id": call.id, "content": '{"rain": true, "from": "tomorrow"}'}
        answer = client.chat.completions.create(
            model=MODEL,
            messages=[*ASKED, choice.message.model_dump(), result],  # type: ignore[list-item]
            tools=[FORECAST],
            tool_choice="none",
            temperature=0,
            max_tokens=60,
        )
    record(call=call.function.arguments, answer=answer.choices[0].message.content)
    assert answer.choices[0].message.content


def test_the_example_of_the_clients_page(served: Running, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = examples("tools=")
    run_example(example, served)
    call, *answer = capsys.readouterr().out.strip().splitlines()
    assert call.startswith("forecast {'town': ")
    assert answer


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_the_model_may_make(served: Running, stream: bool, record: Record) -> None:
    """It calls, or it says something: nothing of either is lost."""
    body = {"messages": ASKED, "tools": [FORECAST], "temperature": 0, "max_tokens": 100}
    if stream:
        deltas = [chunk["choices"][0]["delta"] for chunk in served.post({**body, "stream": True}).events[:-1]]
        text = "".join(delta.get("content") or "" for delta in deltas)
        calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    else:
        message = served.post(body).json["choices"][0]["message"]
        text, calls = message["content"], message.get("tool_calls", ())
    record(text=text, calls=calls)
    assert text or calls
    for call in calls:
        assert call["function"]["name"] == "forecast"
        assert isinstance(json.loads(call["function"]["arguments"]), dict)
