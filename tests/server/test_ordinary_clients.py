"""What clients send without anybody's bidding: odd addresses, bodies in pieces, fields that change nothing."""

from __future__ import annotations

import gzip
import http.client
import json
from contextlib import closing
from typing import Any

import openai
import pytest

from running_server import MODEL, Running

CHAT = "/v1/chat/completions"
HI: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
BODY = json.dumps({"messages": HI}).encode()


@pytest.mark.parametrize("path", [f"/{CHAT}", "/v1//chat/completions", f"{CHAT}/", f"//{CHAT}//"])
def test_slashes_too_many(echo: Running, path: str) -> None:
    """Not by sending on: clients lose the key and the body on the way."""
    assert echo.post({"messages": HI}, path).json["choices"][0]["message"]["content"] == "hi"


def test_slashes_of_the_models(echo: Running) -> None:
    for path in ("//v1/models", "/v1/models/", "/v1/models/?again=1"):
        assert echo.ask("GET", path).json["data"][0]["id"] == MODEL
    assert echo.ask("GET", f"/v1/models/{MODEL}/").json["id"] == MODEL
    assert echo.ask("GET", "/").status == 404


def test_methods(echo: Running) -> None:
    for path in ("/health", "/v1/models", "/metrics"):
        answer = echo.ask("HEAD", path)
        assert (answer.status, answer.body) == (200, b"")
    for method in ("OPTIONS", "PUT", "DELETE", "PATCH", "TRACE"):
        answer = echo.ask(method, CHAT)
        assert (answer.status, answer.headers["allow"]) == (405, "POST")
        assert "another method" in answer.error["message"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-8"])
def test_the_content_type_does_not_matter(echo: Running, kind: str) -> None:
    """curl names a form unless it is told otherwise."""
    assert echo.ask("POST", CHAT, BODY, Content_Type=kind).status == 200


def test_a_body_in_pieces(echo: Running) -> None:
    pieces = (BODY[i : i + 5] for i in range(0, len(BODY), 5))
    with closing(http.client.HTTPConnection("127.0.0.1", echo.port, timeout=30)) as connection:
        connection.request("POST", CHAT, pieces, encode_chunked=True)
        response = connection.getresponse()
        assert response.status == 200
        assert json.loads(response.read())["choices"][0]["message"]["content"] == "hi"


def test_a_packed_body_is_refused_and_a_mark_before_it_is_not(echo: Running) -> None:
    answer = echo.ask("POST", CHAT, gzip.compress(BODY), Content_Encoding="gzip")
    assert (answer.status, answer.error["code"]) == (415, "unsupported_encoding")
    assert "'gzip'" in answer.error["message"]
    assert echo.ask("POST", CHAT, BODY, Content_Encoding="identity").status == 200
    assert echo.ask("POST", CHAT, b"\xef\xbb\xbf" + BODY).status == 200


def test_what_frameworks_send_beside_the_messages(echo: Running) -> None:
    harmless = {
        "n": 1, "seed": 3, "user": "u", "store": True, "metadata": {"a": "b"}, "parallel_tool_calls": False,
        "service_tier": "auto", "logit_bias": {}, "stop": [], "tools": [], "tool_choice": "auto", "logprobs": False,
        "top_logprobs": 0, "response_format": {"type": "text"}, "modalities": ["text"], "verbosity": "medium",
        "reasoning_effort": "none", "prediction": {"type": "content", "content": "x"}, "max_completion_tokens": 9,
    }  # fmt: skip
    with echo.client() as client:
        for stream in (False, True):
            more: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
            made = client.chat.completions.create(model=MODEL, messages=HI, **harmless, **more)  # type: ignore[call-overload]
            text = (
                "".join(chunk.choices[0].delta.content or "" for chunk in made if chunk.choices)
                if stream
                else made.choices[0].message.content
            )
            assert text == "hi"


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "developer", "content": "Be brief."}, *HI],
        [{"role": "system", "content": [{"type": "text", "text": "Be brief."}]}, *HI],
        [{"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]}],
        [*HI, {"role": "assistant", "content": "yes?", "refusal": None, "audio": None, "annotations": []}, *HI],
    ],
    ids=["developer", "parts", "cache_control", "sent back"],
)
def test_messages_as_frameworks_write_them(echo: Running, messages: list[dict[str, Any]]) -> None:
    assert echo.post({"messages": messages}).json["choices"][0]["message"]["content"] == "hi"


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([{"role": "user", "content": [{"type": "text", "text": "hi", "colour": 1}]}], "messages[0].content[0].colour"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}], "messages[0].content[0]"),
        ([*HI, {"role": "function", "name": "f", "content": "x"}], "messages[1].role"),
        ([{"role": "user", "name": "anna", "content": "hi"}], "messages[0].name"),
        ([*HI, {"role": "assistant", "content": None}], "messages[1].content"),
    ],
)
def test_what_is_not_taken_is_named(echo: Running, messages: list[dict[str, Any]], param: str) -> None:
    with echo.client() as client, pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=MODEL, messages=messages)  # type: ignore[arg-type]
    assert caught.value.param == param


@pytest.mark.parametrize("name", ["keep_alive", "options", "thinking", "guided_json", "repetition_penalty"])
def test_fields_of_other_servers_are_named(echo: Running, name: str) -> None:
    with echo.client() as client, pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=MODEL, messages=HI, extra_body={name: 1})  # type: ignore[arg-type]
    assert (caught.value.param, caught.value.code) == (name, "unknown_parameter")


def test_a_response_whose_thoughts_might_be_encrypted(echo: Running) -> None:
    """Agents ask for it in every request."""
    asked = {
        "input": "hi",
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"summary": "auto"},
    }
    answer = echo.post(asked, "/v1/responses")
    assert answer.status == 200
    assert answer.json["output"][-1]["content"][0]["text"] == "hi"
