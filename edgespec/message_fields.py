"""Messages as programs write them, read field by field: texts, parts of texts, calls of tools and their results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from .budget import MAX_TEXT
from .errors import BadRequestError
from .messages import ROLES, Message, ToolCall
from .text import replace_surrogates, sanitize

MAX_INPUT = MAX_TEXT // 2  # characters of all messages together

MAX_DEPTH = 200  # of JSON within JSON: whoever works on it does so by recursion

_OF_ROLE = {"assistant": ("tool_calls", "reasoning_content"), "tool": ("tool_call_id", "name")}


def parse_messages(messages: Iterable[Mapping[str, Any] | Message]) -> tuple[Message, ...]:
    """Check messages given as mappings or Messages; content may be text or a list of {"type": "text", "text": ...}.

    Parts are joined; lone surrogates become U+FFFD; NUL and other controls stay. Messages of an assistant may have
    tool_calls, in OpenAI's form, and reasoning_content; those of a tool tool_call_id and name. Raises BadRequestError
    with the field.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise BadRequestError("messages must be a list of messages; give [{'role': 'user', 'content': ...}]")
    parsed = tuple(_parse_message(message, f"messages[{i}]") for i, message in enumerate(messages))
    if not parsed:
        raise BadRequestError("messages is empty; give at least one message")
    size = sum(len(m.content) + len(m.reasoning) + sum(len(call.arguments) for call in m.calls) for m in parsed)
    if size > MAX_INPUT:
        raise BadRequestError(f"messages hold more than {MAX_INPUT} characters; shorten them")
    return parsed


def too_deep(value: Any) -> bool:
    """Whether data is nested more than MAX_DEPTH deep."""
    layer = [value]
    for _ in range(MAX_DEPTH + 1):
        layer = [inner for one in layer for inner in _inner(one) if isinstance(inner, (dict, list))]
        if not layer:
            return False
    return True


def _inner(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """The arguments as data, as templates want them. Raises BadRequestError where they are no JSON object."""
    try:
        found = msgspec.json.decode(call.arguments)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        found = None
    if not isinstance(found, dict):
        raise BadRequestError("arguments must be a JSON object, as text")
    if too_deep(found):
        raise BadRequestError(f"arguments must be nested at most {MAX_DEPTH} deep")
    return found


def _parse_message(message: Any, where: str) -> Message:
    if isinstance(message, Message):
        _role(message.role, where)
        return _checked(message, where)
    if not isinstance(message, Mapping):
        raise BadRequestError(f"{where} is a {type(message).__name__}; give a mapping with role and content")
    role = _role(message.get("role"), where)
    for key in message:
        if key not in ("role", "content", *_OF_ROLE.get(role, ())):
            raise BadRequestError(f"{where}.{sanitize(str(key))[:40]} is not supported; give only role and content")
    calls = _parse_calls(message["tool_calls"], f"{where}.tool_calls") if message.get("tool_calls") else ()
    content = message.get("content")
    if content is None and calls:
        content = ""
    if isinstance(content, (list, tuple)):
        content = "".join(_parse_part(part, f"{where}.content[{i}]") for i, part in enumerate(content))
    texts = {name: message.get(name) for name in ("reasoning_content", "tool_call_id", "name")}
    for name, text in texts.items():
        if text is not None and not isinstance(text, str):
            raise BadRequestError(f"{where}.{name} is a {type(text).__name__}; it must be text")
    reasoning, call_id, name = (text or "" for text in texts.values())
    return _checked(Message(role, cast(str, content), reasoning, calls, call_id, name), where)


def _role(role: object, where: str) -> str:
    if not isinstance(role, str) or role not in ROLES:
        raise BadRequestError(f"{where}.role must be one of {', '.join(ROLES)}")
    return role


def _checked(message: Message, where: str) -> Message:
    content = message.content
    if not isinstance(content, str):
        raise BadRequestError(f"{where}.content must be text or a list of text parts, not {type(content).__name__}")
    for i, call in enumerate(message.calls):
        try:
            arguments_of(call)
        except BadRequestError as error:
            raise BadRequestError(f"{where}.tool_calls[{i}].function.{error}") from None
    return message.mapped(replace_surrogates)


def _parse_calls(calls: Any, where: str) -> tuple[ToolCall, ...]:
    if not isinstance(calls, (list, tuple)):
        raise BadRequestError(f"{where} is a {type(calls).__name__}; it must be a list of calls")
    return tuple(_parse_call(call, f"{where}[{i}]") for i, call in enumerate(calls))


def _parse_call(call: Any, where: str) -> ToolCall:
    if not isinstance(call, Mapping) or call.get("type", "function") != "function":
        raise BadRequestError(f"{where} must be a call of type function")
    function = call.get("function")
    if not isinstance(function, Mapping):
        raise BadRequestError(f"{where}.function must be an object with name and arguments")
    texts = {"id": call.get("id", ""), "function.name": function.get("name")}
    texts["function.arguments"] = function.get("arguments")
    for name, text in texts.items():
        if not isinstance(text, str):
            raise BadRequestError(f"{where}.{name} must be text")
    return ToolCall(*texts.values())


def _parse_part(part: Any, where: str) -> str:
    if not isinstance(part, Mapping) or part.get("type") != "text":
        raise BadRequestError(f"{where} must be a part of type text; other parts are not supported")
    for key in part:
        if key not in ("type", "text"):
            raise BadRequestError(f"{where}.{sanitize(str(key))[:40]} is not supported; give only type and text")
    text = part.get("text")
    if not isinstance(text, str):
        raise BadRequestError(f"{where}.text must be text")
    return text
