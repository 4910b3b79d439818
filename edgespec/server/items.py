"""`input` of a response: a text, or a list of messages, thoughts, calls and their results. And `tools` in that form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..errors import BadRequestError
from ..message_fields import arguments_of, parse_messages
from ..messages import Message, ToolCall
from .fields import mapping, message, shown, text
from .tools import Choice, Tool, read_choice, read_tools

_OF_KIND: Mapping[str, tuple[str, ...]] = {
    "message": ("role", "content"),
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("call_id", "output"),
    "reasoning": ("content", "summary", "encrypted_content"),
}
_ALWAYS = ("type", "id", "status")
_THOUGHT = {"role", "reasoning_content"}  # of an assistant, before what it says
_PARTS = ("input_text", "output_text", "text", "reasoning_text")
_NESTED = ("name", "description", "parameters", "strict")  # what chat has within `function`


def items(name: str, value: Any) -> tuple[Message, ...]:
    """Calls become part of the assistant's message before them, thoughts of the one after them. Raises BadRequestError
    with the place."""
    if isinstance(value, str):
        return parse_messages([{"role": "user", "content": value}])
    if not isinstance(value, list) or not value:
        raise BadRequestError(f"{name} must be text or a list of messages, not empty")
    found: list[dict[str, Any]] = []
    places: list[int] = []  # of each message, its item
    for i, item in enumerate(value):
        one = _item(f"{name}[{i}]", item)
        if found and set(found[-1]) == _THOUGHT:
            thought = found.pop()
            places.pop()
            one = {**thought, **one} if one["role"] == "assistant" else one
        elif "tool_calls" in one and found and found[-1]["role"] == "assistant":
            found[-1].setdefault("tool_calls", []).extend(one["tool_calls"])
            continue
        found.append(one)
        places.append(i)
    if set(found[-1]) == _THOUGHT and len(found) > 1:
        found.pop()  # nothing was said after it
    try:
        return parse_messages([message(one) for one in found])
    except BadRequestError as error:
        told = re.sub(r"^messages\[(\d+)\]", lambda place: f"{name}[{places[int(place[1])]}]", str(error))
        raise BadRequestError(re.sub("^messages", name, told)) from None


def _item(where: str, item: Any) -> dict[str, Any]:
    """As a message of chat."""
    kind = mapping(where, item).get("type", "message")
    if not isinstance(kind, str) or kind not in _OF_KIND:
        raise BadRequestError(f"{where}.type is {shown(kind)}; choose one of {', '.join(_OF_KIND)}")
    fields = _OF_KIND[kind]
    for key in item:
        if key not in fields and key not in _ALWAYS:
            raise BadRequestError(f"{where}.{str(key)[:40]} is not supported; give {' and '.join(fields)}")
    if kind == "message":
        return {"role": item.get("role"), "content": _joined(f"{where}.content", item.get("content"))}
    if kind == "reasoning":
        return {"role": "assistant", "reasoning_content": _joined(f"{where}.content", item.get("content") or [])}
    call_id = text(f"{where}.call_id", item.get("call_id"))
    if kind == "function_call_output":
        output = _joined(f"{where}.output", item.get("output"))
        return {"role": "tool", "tool_call_id": call_id, "content": text(f"{where}.output", output)}
    called, arguments = (text(f"{where}.{field}", item.get(field)) for field in ("name", "arguments"))
    try:
        arguments_of(ToolCall(call_id, called, arguments))
    except BadRequestError as error:
        raise BadRequestError(f"{where}.{error}") from None
    function = {"name": called, "arguments": arguments}
    return {"role": "assistant", "tool_calls": [{"id": call_id, "type": "function", "function": function}]}


def _joined(where: str, parts: Any) -> Any:
    """Parts of text as one text; anything else as it is."""
    if not isinstance(parts, list):
        return parts
    return "".join(_part(f"{where}[{n}]", part) for n, part in enumerate(parts))


def _part(where: str, part: Any) -> str:
    if not isinstance(part, Mapping) or part.get("type") not in _PARTS or not isinstance(part.get("text"), str):
        raise BadRequestError(f"{where} must be a part of type input_text or output_text, with text")
    return str(part["text"])


def response_tools(name: str, value: Any) -> tuple[Tool, ...]:
    """Functions; chat has all but the type one level deeper. Raises BadRequestError."""
    if not isinstance(value, list):
        return read_tools(name, value)
    nested = []
    for one in value:
        if isinstance(one, dict) and one.get("type") == "function" and "function" not in one:
            rest = {key: inner for key, inner in one.items() if key not in _NESTED}
            one = {**rest, "function": {key: one[key] for key in _NESTED if key in one}}
        nested.append(one)
    try:
        return read_tools(name, nested)
    except BadRequestError as error:
        raise BadRequestError(str(error).replace("].function", "]", 1)) from None


def response_choice(name: str, value: Any) -> Choice:
    """Raises BadRequestError."""
    if isinstance(value, dict) and value.get("type") == "function" and "function" not in value:
        return read_choice(name, {"type": "function", "function": {"name": value.get("name")}})
    return read_choice(name, value)
