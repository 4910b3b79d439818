"""What a model thinks comes apart from what it says, whether it or its template begins the thought."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import template_files
from running_server import MODEL, Running, running

# The template writes the first mark itself: a scripted model counts that as said.
ANSWER = "<think>\nOne and one.\n</think>\n\nTwo."
USER: list[Any] = [{"role": "user", "content": ANSWER}]


@pytest.fixture(
    scope="module", params=[template_files.THINKS_ITSELF, template_files.SWITCHED], ids=["itself", "opened"]
)
def thinking(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(template_files.written(tmp_path_factory.mktemp("thinking"), request.param)) as server:
        yield server


@pytest.fixture(scope="module")
def switched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(template_files.written(tmp_path_factory.mktemp("switched"), template_files.SWITCHED)) as server:
        yield server


def test_a_whole_answer(thinking: Running) -> None:
    with thinking.client() as client:
        answer = client.chat.completions.create(model=MODEL, messages=USER)
    message = answer.choices[0].message
    assert message.content == "Two."
    assert message.reasoning_content == "One and one."  # type: ignore[attr-defined]  # not OpenAI's, but everyone's
    assert answer.usage is not None
    assert answer.usage.completion_tokens_details is not None
    thought = answer.usage.completion_tokens_details.reasoning_tokens
    assert thought is not None
    assert len("One") < thought < answer.usage.completion_tokens - len("Tw.")


def test_a_stream(thinking: Running) -> None:
    with thinking.client() as client:
        stream = client.chat.completions.create(
            model=MODEL, messages=USER, stream=True, stream_options={"include_usage": True}
        )
        chunks = list(stream)
    deltas: list[Any] = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    thought = [getattr(delta, "reasoning_content", None) or "" for delta in deltas]
    said = [delta.content or "" for delta in deltas]
    assert "".join(thought) == "One and one."
    assert "".join(said) == "Two."
    assert sum(map(bool, thought)) > 3
    last = max(i for i, text in enumerate(thought) if text)
    assert not any(said[: last + 1])
    usage: Any = chunks[-1].usage
    assert usage.completion_tokens_details.reasoning_tokens > 3


def test_thoughts_stay_in_the_text_where_they_are_wanted_there(thinking: Running) -> None:
    message = thinking.chat(ANSWER, reasoning_format="none").json["choices"][0]["message"]
    assert "reasoning_content" not in message
    assert ANSWER.endswith(message["content"])
    assert "</think>" in message["content"]
    assert thinking.chat("x", reasoning_format="all").error["param"] == "reasoning_format"


@pytest.mark.parametrize("fields", [{"reasoning_effort": "none"}, {"chat_template_kwargs": {"enable_thinking": False}}])
def test_thinking_can_be_turned_off(switched: Running, fields: dict[str, Any]) -> None:
    answer = switched.chat("Two.", **fields).json
    message = answer["choices"][0]["message"]
    assert (message["content"], message.get("reasoning_content")) == ("Two.", None)
    assert answer["usage"]["completion_tokens_details"] == {"reasoning_tokens": 0}


def test_thoughts_that_are_sent_back(switched: Running) -> None:
    back: list[Any] = [
        {"role": "user", "content": "<think>\nand"},
        {"role": "assistant", "content": "Two.", "reasoning_content": "Hm"},
        {"role": "tool", "content": "!"},
    ]
    message = switched.post({"messages": back}).json["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("Two.!", "and<think>Hm")


def test_what_a_template_does_not_know_is_refused(echo: Running, tmp_path: Path) -> None:
    for fields, param in (
        ({"chat_template_kwargs": {"enable_thinking": False}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs"),
        ({"reasoning_effort": "low"}, "reasoning_effort"),
    ):
        answer = echo.chat("x", **fields)
        assert (answer.status, answer.error["param"]) == (400, param)
    assert echo.chat("x", reasoning_effort="none").status == 200
    with running(template_files.written(tmp_path, template_files.THINKS_ITSELF)) as server:
        assert server.chat("x", reasoning_effort="none").error["param"] == "reasoning_effort"


def test_a_response_has_thoughts_as_an_item(thinking: Running) -> None:
    with thinking.client() as client:
        answer: Any = client.responses.create(model=MODEL, input=ANSWER)
    thought, said = answer.output
    assert (thought.type, thought.status, thought.summary) == ("reasoning", "completed", [])
    assert [(part.type, part.text) for part in thought.content] == [("reasoning_text", "One and one.")]
    assert (said.type, answer.output_text) == ("message", "Two.")
    assert len("One") < answer.usage.output_tokens_details.reasoning_tokens < answer.usage.output_tokens - len("Tw.")


def test_a_stream_tells_of_thoughts_before_the_text(thinking: Running) -> None:
    with thinking.client() as client:
        events: list[Any] = list(client.responses.create(model=MODEL, input=ANSWER, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type.removeprefix("response.") for event in events]
    thought = "".join(event.delta for event in events if event.type == "response.reasoning_text.delta")
    done = [event.text for event in events if event.type == "response.reasoning_text.done"]
    assert (thought, done) == ("One and one.", ["One and one."])
    assert kinds.index("reasoning_text.done") < kinds.index("output_text.delta")
    assert kinds.count("output_item.added") == kinds.count("output_item.done") == 2
    assert [item.type for item in events[-1].response.output] == ["reasoning", "message"]


def test_a_thought_that_is_cut_short_is_incomplete(thinking: Running) -> None:
    answer = thinking.post({"input": ANSWER, "max_output_tokens": 9}, "/v1/responses").json
    (thought,) = answer["output"]
    assert (answer["status"], thought["type"], thought["status"]) == ("incomplete", "reasoning", "incomplete")
    assert "One and one.".startswith(thought["content"][0]["text"])


def test_a_response_without_thoughts_apart(switched: Running) -> None:
    for fields in ({"reasoning_format": "none"}, {"include": ["message.output_text.logprobs"]}):
        answer = switched.post({"input": ANSWER, **fields}, "/v1/responses").json
        (said,) = answer["output"]
        assert said["content"][0]["text"] in ANSWER
        assert "</think>" in said["content"][0]["text"]
    for fields in ({"reasoning": {"effort": "none"}}, {"chat_template_kwargs": {"enable_thinking": False}}):
        answer = switched.post({"input": "Two.", **fields}, "/v1/responses").json
        assert [item["type"] for item in answer["output"]] == ["message"]
        assert answer["reasoning"]["effort"] == fields.get("reasoning", {}).get("effort")


def test_thoughts_of_a_response_that_are_sent_back(switched: Running) -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm"}]}
    back: list[Any] = [
        {"role": "user", "content": "<think>\nand"},
        thought,
        {"role": "assistant", "content": "Two."},
        {"type": "function_call_output", "call_id": "c", "output": "!"},
        thought,  # the answer to it was lost
    ]
    first, second = switched.post({"input": back}, "/v1/responses").json["output"]
    assert (second["content"][0]["text"], first["content"][0]["text"]) == ("Two.!", "and<think>Hm")
    for reasoning, param in (
        ({"effort": 1}, "reasoning.effort"),
        ({"level": "low"}, "reasoning.level"),
        ("", "reasoning"),
    ):
        assert switched.post({"input": "x", "reasoning": reasoning}, "/v1/responses").error["param"] == param
    refused = switched.post({"input": "x", "reasoning": {"effort": "low"}}, "/v1/responses")
    assert (refused.status, refused.error["param"]) == (400, "reasoning")
