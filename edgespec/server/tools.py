"""Tools of a request: what a client may give, and the grammar of an answer that must call one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..dialect import ARGUMENTS, CALL_FRAMES, CallForm
from ..errors import BadRequestError
from ..message_fields import MAX_INPUT
from .references import References

MAX_TOOLS = 128
_NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)
_NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class Tool:
    """A function. described: as the template gets it.  parameters: JSON schema of its arguments."""

    name: str
    described: Mapping[str, Any]
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Choice:
    """kind: "none", "auto", "required" or "named".  name: of the function, where it is named."""

    kind: str
    name: str = ""

    @property
    def forced(self) -> bool:
        """The answer must be a call."""
        return self.kind in ("required", "named")


NO_CALLS = Choice("none")


def read_tools(name: str, value: Any) -> tuple[Tool, ...]:
    """`tools` in OpenAI's form. Raises BadRequestError."""
    if not isinstance(value, list) or len(value) > MAX_TOOLS:
        raise BadRequestError(f"{name} must be a list of at most {MAX_TOOLS} functions")
    found = tuple(_tool(f"{name}[{i}]", one) for i, one in enumerate(value))
    names = [tool.name for tool in found]
    for i, one in enumerate(names):
        if one in names[:i]:
            raise BadRequestError(f"{name}[{i}].function.name is {one} a second time; give each function its own")
    if sum(len(json.dumps(tool.described)) for tool in found) > MAX_INPUT:
        raise BadRequestError(f"{name} holds more than {MAX_INPUT} characters; shorten it")
    return found


def _tool(where: str, value: Any) -> Tool:
    if not isinstance(value, dict) or value.get("type") != "function":
        raise BadRequestError(f"{where}.type must be function: other tools are not supported")
    function = value.get("function")
    if not isinstance(function, dict):
        raise BadRequestError(f"{where}.function must be an object with a name")
    given = {key: inner for key, inner in function.items() if inner is not None}
    unknown = [key for key in value if key not in ("type", "function")]
    unknown += [f"function.{key}" for key in given if key not in ("name", "description", "parameters", "strict")]
    if unknown:
        raise BadRequestError(f"{where}.{unknown[0][:40]} is not supported; leave it out")
    name = given.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadRequestError(f"{where}.function.name must have 1 to 64 letters, digits, dots, dashes or underscores")
    if not isinstance(given.get("description", ""), str):
        raise BadRequestError(f"{where}.function.description must be text")
    parameters = given.get("parameters", _NOTHING)
    if not isinstance(parameters, dict):
        raise BadRequestError(f"{where}.function.parameters must be a JSON schema, an object")
    described = {"name": name, "description": given.get("description", ""), "parameters": parameters}
    return Tool(name, {"type": "function", "function": described}, parameters)


def read_choice(name: str, value: Any) -> Choice:
    """`tool_choice`. Raises BadRequestError."""
    if value in ("none", "auto", "required"):
        return Choice(value)
    function = value.get("function") if isinstance(value, dict) and value.get("type") == "function" else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise BadRequestError(f"{name} must be none, auto, required, or a function of tools by its name")
    return Choice("named", function["name"])


def checked_choice(name: str, choice: Choice | None, tools: Sequence[Tool]) -> Choice:
    """The choice that holds for these tools. Raises BadRequestError where it asks for one that is not there."""
    if choice is None:
        return Choice("auto" if tools else "none")
    if choice.forced and not tools:
        raise BadRequestError(f"{name} asks for a call, but there are no tools; give some")
    if choice.kind == "named" and all(tool.name != choice.name for tool in tools):
        raise BadRequestError(f"{name} names the function {choice.name[:64]}, which tools does not have")
    return choice if tools else NO_CALLS


def forced_call(tools: Sequence[Tool], form: CallForm, *, several: bool) -> dict[str, Any]:
    """Options of generation that let an answer be calls of these tools, and nothing else. several: more than one."""
    inner = References()
    calls = [
        {
            "type": "object",
            "properties": {
                "name": {"const": tool.name},
                ARGUMENTS[form]: inner.moved(tool.parameters, tool.parameters),
            },
            "required": ["name", ARGUMENTS[form]],
            "additionalProperties": False,
        }
        for tool in tools
    ]
    before, between, after = CALL_FRAMES[form]
    schema = {"$defs": inner.found, **(calls[0] if len(calls) == 1 else {"anyOf": calls})}
    return {"json_schema": json.dumps(schema), "json_frame": (before, between if several else None, after)}
