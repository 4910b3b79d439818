"""JSON that is nested too deeply, wherever it stands in a body, is refused, and the server lives."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edgespec.message_fields import MAX_DEPTH
from running_server import Running

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
DEPTHS = (MAX_DEPTH + 50, 400, 950, 10_000)
_HI = [{"role": "user", "content": "hi"}]
_TOOL = '{"type": "function", "function": {"name": "f", "parameters": HERE}}'
# Where it stands: HERE is the deep value.
PLACES = [
    (CHAT, "messages", "HERE"),
    (CHAT, "messages", '[{"role": "user", "content": HERE}]'),
    (CHAT, "messages", '[{"role": "user", "content": [{"type": "text", "text": HERE}]}]'),
    (CHAT, "messages", '[{"role": "assistant", "tool_calls": HERE}]'),
    (CHAT, "response_format", '{"type": "json_object", "schema": HERE}'),
    (CHAT, "response_format", '{"type": "json_schema", "json_schema": {"name": "x", "schema": HERE}}'),
    (CHAT, "json_schema", "HERE"),
    (CHAT, "tools", f"[{_TOOL}]"),
    (CHAT, "tool_choice", "HERE"),
    (CHAT, "metadata", "HERE"),
    (CHAT, "logit_bias", "HERE"),
    (CHAT, "chat_template_kwargs", "HERE"),
    (CHAT, "frobnicate", "HERE"),
    ("/v1/completions", "prompt", "HERE"),
    (RESPONSES, "input", "HERE"),
    (RESPONSES, "tools", '[{"type": "function", "name": "f", "parameters": HERE}]'),
    (RESPONSES, "text", '{"format": {"type": "json_schema", "name": "x", "schema": HERE}}'),
    ("/v1/embeddings", "input", "HERE"),
]


def deep(depth: int, kind: str) -> str:
    return '{"a":' * depth + "1" + "}" * depth if kind == "object" else "[" * depth + "]" * depth


@pytest.mark.parametrize(("path", "field", "form"), PLACES)
def test_too_deep_a_body(echo: Running, path: str, field: str, form: str) -> None:
    for depth in DEPTHS:
        for kind in ("object", "list"):
            good: dict[str, Any] = {CHAT: {"messages": _HI}, RESPONSES: {"input": "hi"}}.get(path, {})
            fields = {name: json.dumps(value) for name, value in good.items()}
            fields[field] = form.replace("HERE", deep(depth, kind))
            body = "{" + ", ".join(f'"{name}": {value}' for name, value in fields.items()) + "}"
            answer = echo.post(body.encode(), path)
            assert answer.status == 400, (depth, kind, answer.body[:200])
            assert answer.error["param"] in (field, None)
            assert "nested" in answer.error["message"]
    assert echo.chat("still here").json["choices"][0]["message"]["content"] == "still here"


def test_arguments_of_a_call_that_are_too_deep(echo: Running) -> None:
    for depth in DEPTHS:
        call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": deep(depth, "object")}}
        answer = echo.post({"messages": [*_HI, {"role": "assistant", "tool_calls": [call]}]})
        assert (answer.status, answer.error["param"]) == (400, "messages[1].tool_calls[0].function.arguments")
        item = {"type": "function_call", "call_id": "1", "name": "f", "arguments": deep(depth, "object")}
        answer = echo.post({"input": [item]}, RESPONSES)
        assert (answer.status, answer.error["param"]) == (400, "input[0].arguments")


def test_what_is_deep_but_not_too_deep_is_read(echo: Running) -> None:
    body = {"messages": _HI, "metadata": json.loads(deep(MAX_DEPTH, "object"))}
    assert echo.post(body).status == 200
