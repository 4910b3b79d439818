"""Wrong requests: each is answered with a status and the field that is meant, in OpenAI's form, and harms nothing."""

from __future__ import annotations

import json
import math
import threading
from typing import Any

import openai
import pytest

from edgespec.engine.local import LocalEngine
from running_server import MODEL, Running, running

CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
GOOD: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "hi"}]},
    COMPLETIONS: {"prompt": "abc"},
    RESPONSES: {"input": "hi"},
}
TEXTS = ("x", "", [], {}, ["x"], {"x": 1}, True)  # nothing of this is a number
NUMBERS = (1, 0.5, -1, True)  # nor this a text
_OUT_OF_RANGE = {
    "temperature": (-0.1, -1), "top_p": (0, 1.1, -1), "min_p": (-0.1, 2), "typical_p": (0, 1.5),
    "frequency_penalty": (-101, 1e9), "presence_penalty": (101,), "repeat_penalty": (0, -1), "top_k": (-1, 1.5),
    "repeat_last_n": (-2, 0.5), "seed": (-2, 2**64, 1.5), "max_tokens": (0, -1, 1.5), "draft_max": (-1, 1000),
}  # fmt: skip
_REFUSED: dict[str, dict[str, tuple[Any, ...]]] = {
    CHAT: {
        "n": (0, 2, "1", 1.5, True), "tools": ([{"type": "function"}], "x", {}), "tool_choice": ("required", {}),
        "functions": ([{}],), "function_call": ({"name": "x"},), "top_logprobs": (1, 21, -1, "0", True), "audio": ({},),
        "modalities": (["text", "audio"], "text"), "reasoning_effort": ("high",), "verbosity": ("low",),
        "web_search_options": ({},), "max_completion_tokens": (0, "x"), "logprobs": (1, "true"), "stream": (1, "yes"),
        "response_format": ("json", {}, [], {"type": "xml"}, {"type": "json_schema"},
                            {"type": "json_schema", "json_schema": {}},
                            {"type": "json_schema", "json_schema": {"schema": []}}),
        "stop": (1, [1], [["a"]], {}, [""], ["a"] * 33, "a" * 1025), "model": (1, []), "stream_options": ({"x": 1}, 1),
        "logit_bias": ([], {"a": 1}, {"-1": 1}, {"1": "x"}, {"1": True}, {"99999": 1}, {"99999999999": 1}),
        "verify": ("fast", 1), "grammar": (1, []), "json_schema": ("{}", []),
        "messages": ([], "hi", {}, [1], [{}], [{"role": "user"}], [{"role": "robot", "content": "x"}],
                     [{"role": "user", "content": None}], [{"role": "user", "content": 5}],
                     [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
                     [{"role": "user", "content": [{"type": "text"}]}], [{"role": "user", "content": "x", "name": "n"}],
                     [{"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]}]),
    },
    COMPLETIONS: {
        "prompt": ("", [], {}, 5, ["a", "b"], [1, "a"], [-1], [1.5], [True], [[1], [2]], [99999], [2**40]),
        "n": (2,), "best_of": (2,), "echo": (True,), "suffix": ("x",), "logprobs": (-1, 21, True, "0"),
    },
    RESPONSES: {
        "input": ([], 5, [1], [{"role": "user"}], [{"role": "robot", "content": "x"}], [{"type": "item_reference"}],
                  [{"role": "user", "content": [{"type": "input_image"}]}],
                  [{"role": "user", "content": "x", "name": "n"}]),
        "include": (["file_search_call.results"], "x"), "text": ({"x": 1}, {"format": 5}, {"verbosity": "high"}),
        "background": (True,), "previous_response_id": ("resp_1",), "conversation": ("c",), "prompt": ({"id": "p"},),
        "truncation": ("auto",), "reasoning": ({"effort": "high"},), "instructions": (5,), "max_output_tokens": (0,),
    },
}  # fmt: skip
WRONG = [
    *((CHAT, name, value) for name, values in _OUT_OF_RANGE.items() for value in values),
    *((CHAT, name, value) for name in _OUT_OF_RANGE for value in TEXTS),
    *((path, name, value) for path, fields in _REFUSED.items() for name, values in fields.items() for value in values),
    *(
        (path, name, value)
        for path in GOOD
        for name in ("frobnicate", "temprature", "Temperature")
        for value in NUMBERS
    ),
]


def test_every_wrong_value_is_refused_and_named(echo: Running) -> None:
    assert len(WRONG) >= 200
    for path, name, value in WRONG:
        answer = echo.post({**GOOD[path], name: value}, path)
        where = f"{path} {name}={value!r}: {answer.status} {answer.body!r}"
        assert answer.status == (404 if name == "model" and isinstance(value, str) else 400), where
        assert answer.error["type"] == "invalid_request_error", where
        param = str(answer.error["param"])
        assert param == name or param.startswith((f"{name}[", f"{name}.")), where
        assert "\n" not in answer.error["message"], where
    assert echo.chat("still here").json["choices"][0]["message"]["content"] == "still here"


def test_bodies_that_are_no_request(echo: Running) -> None:
    deep = b"[" * 100_000
    for body in (
        b"",
        b"x",
        b"[]",
        b"5",
        b"null",
        b'{"messages":',
        b"\xff\xfe",
        b'{"a": "\xff"}',
        deep,
        b'{"a":' + deep,
    ):
        answer = echo.post(body)
        assert (answer.status, answer.error["code"]) == (400, "invalid_json"), body[:20]
    for number in ("NaN", "Infinity", "-Infinity", "1e999"):
        body = f'{{"messages": [{{"role": "user", "content": "x"}}], "temperature": {number}}}'.encode()
        assert echo.post(body).status == 400
    assert not math.isfinite(json.loads("NaN"))  # Python's own reader would have taken it


@pytest.mark.parametrize(("path", "name"), [(CHAT, "messages"), (COMPLETIONS, "prompt"), (RESPONSES, "input")])
def test_a_missing_field(echo: Running, path: str, name: str) -> None:
    answer = echo.post({"temperature": 0}, path)
    assert (answer.status, answer.error["param"]) == (400, name)
    assert answer.error["code"] == "missing_required_parameter"


def test_two_fields_that_contradict_each_other(echo: Running) -> None:
    assert echo.chat("hi", max_tokens=1, max_completion_tokens=2).status == 400
    assert echo.chat("hi", max_tokens=1, max_completion_tokens=1).status == 200
    assert echo.chat("hi", stream_options={"include_usage": True}).error["param"] == "stream_options"
    both = echo.chat("hi", grammar='root ::= "a"', json_schema={"type": "object"})
    assert (both.status, "not both" in both.error["message"]) == (400, True)


def test_an_unknown_field_gets_the_nearest_name(echo: Running) -> None:
    assert "did you mean temperature?" in echo.chat("hi", temprature=1).error["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_does_not_fit(echo: Running, stream: bool) -> None:
    with echo.client() as client, pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "x" * 3000}], stream=stream)
    assert caught.value.code == "context_length_exceeded"
    assert caught.value.param == "messages"
    body = caught.value.body
    assert isinstance(body, dict)
    assert body["n_ctx"] == 2048
    assert body["n_prompt_tokens"] > 3000


def test_another_model(echo: Running) -> None:
    with echo.client() as client, pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-4", messages=[{"role": "user", "content": "x"}])
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
    assert MODEL in str(caught.value)


def test_addresses_and_methods_that_there_are_not(echo: Running) -> None:
    assert echo.post({}, "/v1/images/generations").status == 404
    assert echo.ask("GET", CHAT).status == 405
    assert CHAT in echo.ask("GET", "/nothing").error["message"]


def test_embeddings_are_refused_and_not_tried_again(echo: Running) -> None:
    answer = echo.post({"model": MODEL, "input": "x"}, "/v1/embeddings")
    assert (answer.status, answer.error["code"]) == (501, "not_supported")
    assert answer.headers["x-should-retry"] == "false"


def test_a_model_that_cannot_chat() -> None:
    with running("scripted:echo?template=no") as server:
        answer = server.chat("hi")
        assert (answer.status, answer.error["param"]) == (400, "messages")
        assert "/v1/completions" in answer.error["message"]
        assert server.post({"prompt": "abc", "max_tokens": 1}, COMPLETIONS).status == 200


def test_while_the_model_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's load is held up until the test has asked."""
    go = threading.Event()
    load = LocalEngine.load

    def held(*arguments: Any) -> Any:
        assert go.wait(30)
        return load(*arguments)

    monkeypatch.setattr(LocalEngine, "load", held)
    with running("scripted:echo", wait=False) as server:
        for answer in (server.ask("GET", "/health"), server.chat("hi"), server.ask("GET", "/v1/models")):
            assert (answer.status, answer.error["code"]) == (503, "loading")
            assert answer.headers["retry-after"] == "1"
        go.set()
        while server.ask("GET", "/health").status != 200:
            assert server.thread.is_alive()
        assert server.ask("GET", "/health").json == {"status": "ok"}
        assert server.chat("hi").status == 200


def test_a_request_that_takes_too_long() -> None:
    with running("scripted:count?decodes_per_s=50", deadline_s=0.3) as server:
        answer = server.chat("go on")
        assert (answer.status, answer.error["code"]) == (504, "deadline_exceeded")
        assert answer.headers["x-should-retry"] == "false"
        last = server.chat("go on", stream=True).events[-1]
        assert last["error"]["code"] == "deadline_exceeded"
