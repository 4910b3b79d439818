"""Errors as OpenAI's clients know them: a status, and {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

from typing import Any

from ..errors import (
    BadRequestError,
    ContextFullError,
    DeadlineError,
    EdgeSpecError,
    EngineDied,
    QueueFullError,
)

MAX_MESSAGE = 1000  # characters: it may repeat a value of the request
NO_RETRY = {"x-should-retry": "false"}  # openai-python tries everything from 500 on again unless it is told so

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    503: "unavailable_error",
}
_KINDS: tuple[tuple[type[EdgeSpecError], int, str | None], ...] = (
    (ContextFullError, 400, "context_length_exceeded"),
    (BadRequestError, 400, None),
    (QueueFullError, 429, "queue_full"),
    (DeadlineError, 504, "deadline_exceeded"),
    (EngineDied, 500, "engine_died"),
    (EdgeSpecError, 500, None),
)
# Of what only the engine can check: words of the message, and the fields that can be meant.
_BLAME = (
    ("JSON schema", ("response_format", "text", "json_schema", "tools")),
    ("grammar", ("grammar", "response_format", "text", "json_schema")),
    ("logit", ("logit_bias",)),
    ("chat template", ("messages", "input")),
    ("token id", ("prompt", "input")),
    ("an input", ("input",)),
    ("the prompt", ("prompt", "messages", "input")),
    ("draft max", ("draft_max",)),
)


class ApiError(Exception):
    """What a client is told. param: the field that is meant.  more: further fields of the error object."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
        more: dict[str, Any] | None = None,
    ) -> None:
        self.message = message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE]}..."
        super().__init__(self.message)
        self.status, self.param, self.code = status, param, code
        self.headers = headers or {}
        self._more = more or {}

    @property
    def error(self) -> dict[str, Any]:
        """The error object."""
        kind = _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"message": self.message, "type": kind, "param": self.param, "code": self.code, **self._more}

    @property
    def body(self) -> dict[str, Any]:
        return {"error": self.error}


def api_error(error: Exception, fields: frozenset[str] = frozenset()) -> ApiError:
    """What a client is told of an error. fields: of its request, one of which may be to blame."""
    if isinstance(error, ApiError):
        return error
    if not isinstance(error, EdgeSpecError):
        return ApiError(500, f"the server failed on this request ({type(error).__name__}); its log has more")
    status, code = next((status, code) for kind, status, code in _KINDS if isinstance(error, kind))
    more = {}
    if isinstance(error, ContextFullError):
        more = {"n_prompt_tokens": error.needed, "n_ctx": error.available + 1}
    param = _to_blame(str(error), fields) if status == 400 else None
    headers = NO_RETRY if isinstance(error, DeadlineError) else {}
    return ApiError(status, str(error), param=param, code=code, headers=dict(headers), more=more)


def shutting_down() -> ApiError:
    """For requests that a server cannot finish any more."""
    return ApiError(503, "the server is shutting down", code="shutting_down", headers={"Retry-After": "5"})


def _to_blame(message: str, fields: frozenset[str]) -> str | None:
    for words, names in _BLAME:
        if words in message:
            return next((name for name in names if name in fields), None)
    return None
