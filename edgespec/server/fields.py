"""How one field of a request is read: a row of a table in schema.py names one of these."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import BadRequestError
from ..message_fields import parse_messages
from ..messages import Message

Reader = Callable[[str, Any], Any]
"""(name of the field, value that is not null) -> the value as it is used. Raises BadRequestError."""

MAX_STOPS = 32
MAX_STOP = 1024  # characters

# What OpenAI's client sends back of an answer: no text of the conversation, and empty here.
_EMPTY_OF_ANSWERS = ("refusal", "audio", "annotations", "tool_calls", "function_call", "reasoning_content", "name")

_LOGPROBS, _ENCRYPTED = "message.output_text.logprobs", "reasoning.encrypted_content"

REASONING_FORMATS = ("auto", "deepseek", "none")


@dataclass(frozen=True, slots=True)
class Field:
    """read: how.  option: the keyword of LLM.stream() that it sets; None: the endpoint uses the value itself.
    effect: False where the value changes nothing that is said here."""

    read: Reader
    option: str | None = None
    effect: bool = True


def as_it_is(_: str, value: Any) -> Any:
    return value


def kept(read: Reader) -> Field:
    """The endpoint makes something of it."""
    return Field(read)


def option(name: str, read: Reader = as_it_is) -> Field:
    """An option of generation, which checks it."""
    return Field(read, option=name)


def without_effect() -> Field:
    """Accepted: it does not change what is said."""
    return Field(as_it_is, effect=False)


def refused(why: str, *harmless: Any) -> Field:
    """It would change the answer, and that is not supported. harmless: values that ask for nothing."""

    def read(name: str, value: Any) -> None:
        if not any(type(value) is type(one) and value == one for one in harmless):
            raise BadRequestError(f"{name} {why}")

    return Field(read, effect=False)


def boolean(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise BadRequestError(f"{name} is {shown(value)}; it must be true or false")
    return value


def text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise BadRequestError(f"{name} is {shown(value)}; it must be text")
    return value


def mapping(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRequestError(f"{name} is {shown(value)}; it must be an object")
    return value


def stops(name: str, value: Any) -> tuple[str, ...]:
    """One text or a list of texts."""
    found = (value,) if isinstance(value, str) else value
    if not isinstance(found, (list, tuple)) or not all(isinstance(one, str) for one in found):
        raise BadRequestError(f"{name} is {shown(value)}; it must be text or a list of texts")
    if len(found) > MAX_STOPS or any(len(one) > MAX_STOP for one in found):
        raise BadRequestError(f"{name} has too much in it; give at most {MAX_STOPS} texts of {MAX_STOP} characters")
    return tuple(found)


def seed(name: str, value: Any) -> int | None:
    """-1 is another seed each time, as in llama.cpp."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRequestError(f"{name} is {shown(value)}; it must be a whole number")
    return None if value == -1 else value


def bias(name: str, value: Any) -> dict[int, float]:
    """{"id": bias}: JSON has no other keys than text."""
    found = {}
    for token, amount in mapping(name, value).items():
        if not (token.isascii() and token.isdigit() and len(token) < 10):
            raise BadRequestError(f"{name} has the key {shown(token)}; keys must be token ids")
        if isinstance(amount, bool) or not isinstance(amount, int | float):
            raise BadRequestError(f"{name}.{token} is {shown(amount)}; it must be a number")
        found[int(token)] = float(amount)
    return found


def schema(name: str, value: Any) -> str:
    """A JSON schema as text."""
    return json.dumps(mapping(name, value))


def response_format(name: str, value: Any) -> str | None:
    """The schema that the answer must follow, as JSON text, from any of its spellings; None: any text."""
    kind = mapping(name, value).get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return schema(f"{name}.schema", value.get("schema") or {"type": "object"})
    if kind != "json_schema":
        raise BadRequestError(f"{name}.type is {shown(kind)}; choose one of text, json_object, json_schema")
    inner, where = value, name
    if "schema" not in value:  # chat has it one level deeper than responses
        inner, where = mapping(f"{name}.json_schema", value.get("json_schema")), f"{name}.json_schema"
    if inner.get("schema") is None:
        raise BadRequestError(f"{where}.schema is missing; give a JSON schema")
    return schema(f"{where}.schema", inner["schema"])


def text_format(name: str, value: Any) -> str | None:
    """`text` of a response: {"format": a response_format}."""
    for key in mapping(name, value):
        if key not in ("format", "verbosity"):
            raise BadRequestError(f"{name}.{key} is not supported; give only format")
    if value.get("verbosity") not in (None, "medium"):
        raise BadRequestError(f"{name}.verbosity is not supported; say it in the instructions")
    wanted = value.get("format")
    return None if wanted is None else response_format(f"{name}.format", wanted)


def stream_options(name: str, value: Any) -> bool:
    """Whether usage is wanted at the end."""
    for key in mapping(name, value):
        if key not in ("include_usage", "include_obfuscation"):
            raise BadRequestError(f"{name}.{key} is not supported; give include_usage")
    return boolean(f"{name}.include_usage", value.get("include_usage") or False)


def included(name: str, value: Any) -> bool:
    """Whether logprobs are wanted, of what a response may include. Thoughts come as they are: nothing is encrypted."""
    if not isinstance(value, list) or not set(map(str, value)) <= {_LOGPROBS, _ENCRYPTED}:
        raise BadRequestError(f"{name} may have {_LOGPROBS} in it, and nothing else")
    return _LOGPROBS in value


def reasoning_format(name: str, value: Any) -> bool:
    """Whether thoughts come apart from the text; the names are those of llama.cpp's server."""
    if value not in REASONING_FORMATS:
        raise BadRequestError(f"{name} is {shown(value)}; choose one of {', '.join(REASONING_FORMATS)}")
    return bool(value != "none")


def reasoning(name: str, value: Any) -> str | None:
    """The effort of an object for /v1/responses. A summary of thoughts is never made: they come whole."""
    for key in mapping(name, value):
        if key not in ("effort", "summary", "generate_summary"):
            raise BadRequestError(f"{name}.{str(key)[:40]} is not supported; give effort")
    effort = value.get("effort")
    return None if effort is None else text(f"{name}.effort", effort)


def prompt(name: str, value: Any) -> str | tuple[int, ...]:
    """One text, or one list of token ids; also alone in a list."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | list):
        value = value[0]
    if isinstance(value, str):
        return value
    if isinstance(value, list) and any(isinstance(one, str | list) for one in value):
        raise BadRequestError(f"{name} has several texts; send one request for each")
    if not isinstance(value, list) or not value:
        raise BadRequestError(f"{name} must be text or a list of token ids, not empty")
    return token_ids(name, value)


def token_ids(name: str, value: list[Any]) -> tuple[int, ...]:
    for i, token in enumerate(value):
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < 2**31:
            raise BadRequestError(f"{name}[{i}] is {shown(token)}; it must be a token id")
    return tuple(value)


def messages(name: str, value: Any) -> tuple[Message, ...]:
    """Messages of a chat, as OpenAI's clients write them."""
    if not isinstance(value, list):
        raise BadRequestError(f"{name} is {shown(value)}; it must be a list of messages")
    return parse_messages([message(one) for one in value])


def message(value: Any) -> Any:
    """Without what is empty or changes nothing, and `developer` by the name that templates know."""
    if not isinstance(value, Mapping):
        return value
    found = {k: v for k, v in value.items() if not (k in _EMPTY_OF_ANSWERS and v in (None, []))}
    if isinstance(parts := found.get("content"), list):
        found["content"] = [
            {k: v for k, v in part.items() if k != "cache_control"} if isinstance(part, Mapping) else part
            for part in parts
        ]
    if found.get("role") == "developer":
        found["role"] = "system"
    return found


def shown(value: Any) -> str:
    """A value in a message: short, and on one line."""
    if isinstance(value, Sequence | Mapping) and not isinstance(value, str):
        return "a list" if isinstance(value, Sequence) else "an object"
    shown = json.dumps(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
