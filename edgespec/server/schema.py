"""The fields of every request: what is used, what has no effect, and what is refused.

null counts as left out, since clients send it for everything that they do not use. A field that is not here is refused:
whoever sends it expects something of it.
"""

from __future__ import annotations

import codecs
import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ..errors import BadRequestError
from ..message_fields import MAX_DEPTH, too_deep
from ..messages import Message
from ..options import check_options
from . import fields
from .errors import ApiError
from .fields import Field, kept, option, refused, without_effect
from .items import items, response_choice, response_tools
from .reading import ALL_TEXT, Reading
from .tools import NO_CALLS, Choice, Tool, read_choice, read_tools

OLD_TOOLS = "is the older form, which is not supported; give tools and tool_choice"
COMPLETION_TOKENS = 16  # of /v1/completions without max_tokens, as OpenAI has it

_SAMPLING = {
    "temperature": option("temperature"),
    "top_p": option("top_p"),
    "frequency_penalty": option("frequency_penalty"),
    "presence_penalty": option("presence_penalty"),
    "logit_bias": option("logit_bias", fields.bias),
    "seed": option("seed", fields.seed),
    "stop": option("stop", fields.stops),
    # As llama.cpp's server names them:
    "top_k": option("top_k"),
    "min_p": option("min_p"),
    "typical_p": option("typical"),
    "repeat_penalty": option("repeat_penalty"),
    "repeat_last_n": option("penalty_last_n"),
    "grammar": option("grammar"),
    "json_schema": option("json_schema", fields.schema),
    # Our own:
    "draft_max": option("draft_max"),
    "verify": option("verify"),
}
_ANY = {
    "model": kept(fields.text),
    "stream": kept(fields.boolean),
    "stream_options": kept(fields.stream_options),
    "events": kept(fields.boolean),
    "user": without_effect(),
    "metadata": without_effect(),
    "store": without_effect(),
    "service_tier": without_effect(),
    "safety_identifier": without_effect(),
    "prompt_cache_key": without_effect(),
    "prompt_cache_retention": without_effect(),
    "cache_prompt": without_effect(),
}
_ONE = refused("is not supported above 1; send one request for each answer", 1)

CHAT: Mapping[str, Field] = {
    "messages": kept(fields.messages),
    "max_tokens": option("max_tokens"),
    "max_completion_tokens": option("max_tokens"),
    "response_format": option("json_schema", fields.response_format),
    "logprobs": kept(fields.boolean),
    "top_logprobs": option("top_logprobs"),
    "n": _ONE,
    "tools": kept(read_tools),
    "tool_choice": kept(read_choice),
    "parallel_tool_calls": kept(fields.boolean),
    "functions": refused(OLD_TOOLS, []),
    "function_call": refused(OLD_TOOLS, "none", "auto"),
    "web_search_options": refused("is not supported: this server does not search"),
    "modalities": refused("may only be text", ["text"]),
    "audio": refused("is not supported: text in, text out"),
    "reasoning_effort": kept(fields.text),
    "reasoning_format": kept(fields.reasoning_format),
    "chat_template_kwargs": kept(fields.mapping),
    "verbosity": refused("is not supported; say it in a message", "medium"),
    "prediction": without_effect(),
    **_SAMPLING,
    **_ANY,
}
COMPLETIONS: Mapping[str, Field] = {
    "prompt": kept(fields.prompt),
    "max_tokens": option("max_tokens"),
    "logprobs": option("top_logprobs"),
    "n": _ONE,
    "best_of": _ONE,
    "echo": refused("is not supported; the prompt is yours already", False),
    "suffix": refused("is not supported; write the text's end into the prompt", ""),
    **_SAMPLING,
    **_ANY,
}
RESPONSES: Mapping[str, Field] = {
    "input": kept(items),
    "instructions": kept(fields.text),
    "max_output_tokens": option("max_tokens"),
    "text": option("json_schema", fields.text_format),
    "include": kept(fields.included),
    "top_logprobs": option("top_logprobs"),
    "max_tool_calls": without_effect(),
    "previous_response_id": refused("is not supported: nothing is stored here; send all messages in input"),
    "conversation": refused("is not supported: nothing is stored here; send all messages in input"),
    "prompt": refused("is not supported: no prompts are stored here; send input"),
    "background": refused("is not supported; wait for the answer", False),
    "truncation": refused("is not supported: nothing of a conversation is dropped silently", "disabled"),
    "reasoning": kept(fields.reasoning),
    "reasoning_format": kept(fields.reasoning_format),
    "chat_template_kwargs": kept(fields.mapping),
    "tools": kept(response_tools),
    "tool_choice": kept(response_choice),
    "parallel_tool_calls": kept(fields.boolean),
    **_SAMPLING,
    **_ANY,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A request that has been read, whichever endpoint it came to.

    messages, prompt: one of the two.  options: keywords of LLM.stream().  logprobs: of the chosen tokens.  usage: a
    stream's last chunk should have it.  events: a stream has those of the engine, too.  given: names of the fields
    that were sent.  told_back: what the answer repeats of them.  tools, choice: functions, and whether one is to be
    called.  several: also more than one.  apart: thoughts are told apart from the text.  effort: how much to think.
    variables: of the chat template.  reading: how the answer is read; the model's template says so (adapting.py).
    """

    messages: tuple[Message, ...] = ()
    prompt: str | tuple[int, ...] | None = None
    options: dict[str, Any]
    model: str | None
    stream: bool
    logprobs: bool
    usage: bool
    events: bool
    given: frozenset[str]
    told_back: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[Tool, ...] = ()
    choice: Choice = NO_CALLS
    several: bool = False
    apart: bool = False
    effort: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    reading: Reading = ALL_TEXT


def parse_body(body: bytes) -> dict[str, Any]:
    """The JSON object of a request. Raises ApiError."""
    try:
        found = msgspec.json.decode(body.removeprefix(codecs.BOM_UTF8))  # as some editors begin a file
    except RecursionError:
        raise ApiError(400, "the body is nested too deeply; make it flatter", code="invalid_json") from None
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise ApiError(400, f"the body is not valid JSON: {error}", code="invalid_json") from None
    if not isinstance(found, dict):
        raise ApiError(400, "the body must be a JSON object", code="invalid_json")
    for name, value in found.items():
        if too_deep(value):
            why = f"{name[:60]!r} is nested more than {MAX_DEPTH} deep; make it flatter"
            raise ApiError(400, why, param=name[:60], code="invalid_value")
    return found


def read_fields(table: Mapping[str, Field], body: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(options of generation, values that the endpoint uses itself) of a body. Raises ApiError with the field."""
    options: dict[str, Any] = {}
    values: dict[str, Any] = {}
    for name, value in body.items():
        if value is None:
            continue
        row = table.get(name)
        if row is None:
            raise _unknown(name, table)
        try:
            read = row.read(name, value)
            if row.option is not None and read is not None:
                if options.setdefault(row.option, read) != read:
                    raise BadRequestError(f"{name} says something else than another field of the same meaning")
                check_options(**{row.option: read})
        except BadRequestError as error:
            raise ApiError(400, str(error), param=_place(name, str(error)), code="invalid_value") from None
        if row.option is None and row.effect:
            values[name] = read
    for name in ("stream_options", "events"):
        if values.get(name) and not values.get("stream"):
            raise ApiError(400, f"{name} is only for stream: true; leave it out", param=name)
    try:
        check_options(**options)
    except BadRequestError as error:
        raise ApiError(400, str(error)) from None
    return options, values


def required(values: Mapping[str, Any], name: str) -> Any:
    """A field that must be there. Raises ApiError."""
    if name not in values:
        raise ApiError(400, f"{name} is missing", param=name, code="missing_required_parameter")
    return values[name]


def _place(name: str, message: str) -> str:
    """The field within a field that a message begins with, such as messages[2].role."""
    found = re.match(r"[\w.\[\]]+", message)
    return found[0] if found and found[0].startswith((f"{name}[", f"{name}.")) else name


def _unknown(name: str, table: Mapping[str, Field]) -> ApiError:
    shown = name[:60]
    near = difflib.get_close_matches(shown, table, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return ApiError(400, f"unknown field {shown!r}{hint}", param=shown, code="unknown_parameter")
