"""`events`: a stream that also has the engine's own events. And comments while a stream has nothing to say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

import template_files
from edgespec.engine.local import LocalEngine
from edgespec.engine.protocol import GenerateSpec, LoadSpec
from edgespec.engine.scripted import load
from edgespec.messages import Message
from edgespec.stats import RoundEvent, TokenEvent
from running_server import MODEL, Running, running

TEXT = "one two three one two three"
GREEDY = {"temperature": 0, "draft_max": 3}
WITH_EVENTS = {"events": True, **GREEDY}


@pytest.fixture(scope="module")
def own() -> list[dict[str, Any]]:
    """What the lines of `run --jsonl` are, without times."""
    with closing(LocalEngine(load)) as engine:
        engine.load(LoadSpec(model="scripted:echo?n_ctx=2048", draft="scripted"))
        asked = engine.generate(GenerateSpec(messages=(Message("user", TEXT),), options=GREEDY))
        return [timeless(event.to_json()) for event in asked if isinstance(event, TokenEvent | RoundEvent)]


def timeless(event: dict[str, Any]) -> dict[str, Any]:
    found = {name: value for name, value in event.items() if not name.endswith("_ms") and name != "beside"}
    return json.loads(json.dumps(found), parse_float=lambda n: round(float(n), 5))  # type: ignore[no-any-return]


def parted(told: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """(tokens and rounds, kinds of the others)."""
    lines = [event for event in told if event["type"] in ("token", "round")]
    return [timeless(event) for event in lines], [event["type"] for event in told if event not in lines]


def test_a_chat_with_its_events(echo: Running, own: list[dict[str, Any]]) -> None:
    with echo.client() as client:
        stream: Any = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": TEXT}],
            stream=True,
            extra_body=WITH_EVENTS,
        )
        chunks = list(stream)
    told = [event for chunk in chunks for event in getattr(chunk, "edgespec", ())]
    lines, others = parted(told)
    assert lines == own
    assert set(others) == {"reading", "reply"}
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == TEXT == "".join(line["text"] for line in lines if line["type"] == "token")
    assert all(chunk.choices == [] for chunk in chunks if hasattr(chunk, "edgespec"))
    last = told[-1]
    assert last["finish_reason"] == "stop"
    assert last["usage"]["completion_tokens"] == sum(line["type"] == "token" for line in lines)
    assert all(event["beside"] == 0 for event in told if event["type"] == "round")


def test_a_completion_with_its_events(echo: Running) -> None:
    with echo.client() as client:
        stream: Any = client.completions.create(
            model=MODEL, prompt="abc", max_tokens=5, stream=True, extra_body=WITH_EVENTS
        )
        told = [event for chunk in stream for event in getattr(chunk, "edgespec", ())]
    assert "".join(event["text"] for event in told if event["type"] == "token") == "defgh"
    assert told[-1]["type"] == "reply"


def test_a_response_with_its_events(echo: Running, own: list[dict[str, Any]]) -> None:
    with echo.client() as client:
        stream: Any = client.responses.create(model=MODEL, input=TEXT, stream=True, extra_body=WITH_EVENTS)
        events = list(stream)
    told = [one for event in events if event.type == "edgespec.events" for one in event.edgespec]
    assert parted(told)[0] == own
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].response.output_text == TEXT


def test_nobody_gets_them_unasked(echo: Running) -> None:
    assert all("edgespec" not in chunk for chunk in echo.chat(TEXT, stream=True).events[:-1])
    refused = echo.chat(TEXT, events=True)
    assert (refused.status, refused.error["param"]) == (400, "events")
    assert echo.chat(TEXT, stream=True, events="yes").error["param"] == "events"
    assert echo.chat(TEXT, events=False).status == 200


# Signs of life -------------------------------------------------------------------------------------------------

ALIVE = b": keep-alive\n\n"


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Reads 400 tokens a second, and says that it lives after every 50 ms in which it says nothing else."""
    model = template_files.written(tmp_path_factory.mktemp("hermes"), template_files.HERMES)
    with running(f"{model}&reads_per_s=400&decodes_per_s=100", silence_s=0.05) as server:
        yield server


def test_while_the_prompt_is_read(impatient: Running) -> None:
    answer = impatient.chat("a" * 200, stream=True, max_tokens=2, temperature=0)
    before, _, _ = answer.body.partition(b'"content":"a"')
    assert before.count(ALIVE) >= 2
    assert answer.events[-1] == "[DONE]"
    with impatient.client() as client:  # which passes them by
        stream = client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "b" * 200}], stream=True, max_tokens=2
        )
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "bb"


def test_while_a_call_is_held_back(impatient: Running) -> None:
    tool = {"type": "function", "function": {"name": "weather"}}
    call = '<tool_call>\n{"name": "weather", "arguments": {"place": "' + "x" * 60 + '"}}\n</tool_call>'
    fields: dict[str, Any] = {"tools": [tool], "temperature": 0, "draft_max": 0}
    answer = impatient.chat(call, stream=True, **fields)
    _, _, rest = answer.body.partition(b'"role":"assistant"')
    assert rest.partition(b"tool_calls")[0].count(ALIVE) >= 3, answer.body


def test_a_stream_that_talks_says_nothing_else(echo: Running) -> None:
    assert ALIVE not in echo.chat("a b c " * 50, stream=True).body
