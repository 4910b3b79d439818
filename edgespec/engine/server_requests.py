"""What is asked of a server, and what its refusals mean."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ..errors import (
    BadRequestError,
    ContextFullError,
    DeadlineError,
    EdgeSpecError,
    ModelNotFoundError,
    QueueFullError,
    ServerError,
)
from ..messages import Message
from ..text import sanitize

# Option of generation -> field of a request.
_SAME = ("max_tokens", "temperature", "top_k", "top_p", "min_p", "repeat_penalty", "frequency_penalty",
         "presence_penalty", "seed", "grammar", "stop")  # fmt: skip
_FIELDS: Mapping[str, str] = {
    **{name: name for name in _SAME},
    "typical": "typical_p",
    "penalty_last_n": "repeat_last_n",
    "logit_bias": "logit_bias",
    "json_schema": "response_format",
    "draft_max": "draft_max",
    "verify": "verify",
}
_OURS = ("draft_max", "verify")  # they change no text, and other servers refuse what they do not know
_MADE: Mapping[str, Callable[[Any], Any]] = {
    "logit_bias": lambda bias: {str(token): amount for token, amount in bias.items()},
    "json_schema": lambda text: {"type": "json_schema", "json_schema": {"name": "answer", "schema": _object(text)}},
    "stop": lambda texts: texts if isinstance(texts, str) else list(texts),
}


def chat_body(model: str, messages: tuple[Message, ...], options: Mapping[str, Any], *, edgespec: bool) -> bytes:
    """A request for a stream. Raises BadRequestError for what cannot be asked of a server."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": message.role, "content": message.content} for message in messages],
        "stream": True,
    }
    if edgespec:
        body |= {"events": True, "reasoning_format": "none"}
    else:
        body["stream_options"] = {"include_usage": True}
    for name, value in options.items():
        if name not in _FIELDS:
            raise BadRequestError(f"{name} cannot be asked of a server; leave it out")
        if value is not None and (edgespec or name not in _OURS):
            body[_FIELDS[name]] = _MADE.get(name, lambda given: given)(value)
    try:
        return msgspec.json.encode(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadRequestError(f"the request cannot be sent to the server: {error}; give plain data") from None


class _Failure(msgspec.Struct):
    message: str = ""
    code: Any = None
    n_prompt_tokens: int = 0
    n_ctx: int = 0


class _Refusal(msgspec.Struct):
    error: msgspec.Raw = msgspec.Raw()


def refusal(status: int, body: bytes, shown: str, retry_after: str = "", elsewhere: str = "") -> EdgeSpecError:
    """The error that a response stands for. status: 200 for one within a stream.  elsewhere: where a redirect leads: it
    is told and not followed, for the key and the chat are for the address that was given.
    """
    if 300 <= status < 400:
        place = re.sub(r"/v1/(models|chat/completions)/?$", "", " ".join(sanitize(elsewhere[:300]).split()))[:200]
        where = f" to {place}; if that is where it should go, attach to that address" if place else ", but not where to"
        return ServerError(f"the server at {shown} sends on (status {status}){where}")
    try:
        error = bytes(msgspec.json.decode(body, type=_Refusal).error)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        error = b""
    return failed(status, error, shown, retry_after)


def failed(status: int, error: bytes, shown: str, retry_after: str = "") -> EdgeSpecError:
    """As refusal(), of the error object alone."""
    try:
        found = msgspec.json.decode(error, type=_Failure)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        found = _Failure()
    said = " ".join(sanitize(found.message[:1200]).split())[:300]
    said = said or (f"it answered with the status {status}" if status != 200 else "it gave no reason")
    if found.code == "context_length_exceeded" and 0 < found.n_ctx < 1 << 40 and found.n_prompt_tokens < 1 << 40:
        return ContextFullError(said, needed=found.n_prompt_tokens, available=found.n_ctx - 1)
    if status in (401, 403):
        return BadRequestError(
            f"the server at {shown} refuses: {said}; give its key with --api-key or EDGESPEC_API_KEY"
        )
    if status == 404:
        return ModelNotFoundError(f"the server at {shown} refuses: {said}; is the address right?")
    if status == 429:
        wait = f"; try again in {retry_after} s" if retry_after.isdecimal() and len(retry_after) < 6 else ""
        return QueueFullError(f"the server at {shown} is busy: {said}{wait}")
    if status == 504 or found.code == "deadline_exceeded":
        return DeadlineError(f"the server at {shown}: {said}")
    if 400 <= status < 500:
        return BadRequestError(f"the server at {shown} refuses: {said}")
    return ServerError(f"the server at {shown} failed: {said}")


def _object(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"the JSON schema cannot be read: {error}") from None
