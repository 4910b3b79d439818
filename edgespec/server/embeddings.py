"""POST /v1/embeddings, for models that were made for it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engine.protocol import MAX_INPUTS, Embedded, EmbedSpec, Loaded
from ..errors import BadRequestError
from .answering import PATIENCE_S, Answering, json_response
from .errors import NO_RETRY, ApiError
from .fields import Field, kept, text, token_ids, without_effect
from .metrics import Metrics
from .queueing import Asked
from .schema import read_fields, required

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

_FORMATS = ("float", "base64")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingsWanted:
    """A request that has been read. packed: embeddings as base64 of float32.  size: how many numbers; None: all.
    given: names of the fields that were sent."""

    spec: EmbedSpec
    model: str | None
    packed: bool
    size: int | None
    given: frozenset[str]


def read_embeddings(body: Mapping[str, Any]) -> EmbeddingsWanted:
    """Raises ApiError."""
    _, values = read_fields(EMBEDDINGS, body)
    return EmbeddingsWanted(
        spec=EmbedSpec(inputs=required(values, "input")),
        model=values.get("model"),
        packed=values.get("encoding_format") == "base64",
        size=values.get("dimensions"),
        given=frozenset(body),
    )


def check_embeds(loaded: Loaded, wanted: EmbeddingsWanted) -> None:
    """Raises ApiError where this model does not make such embeddings."""
    if not loaded.embedding:
        raise ApiError(501, loaded.why_not_embedding, code="not_supported", headers=NO_RETRY)
    if wanted.size not in (None, loaded.embedding):
        why = f"this model's embeddings have {loaded.embedding} numbers, and are not shortened; leave dimensions out"
        raise ApiError(400, why, param="dimensions", code="invalid_value")


class EmbeddingsAnswer(Answering):
    """An ASGI application for one request that is in line."""

    def __init__(self, asked: Asked, wanted: EmbeddingsWanted, model: str, metrics: Metrics, endpoint: str) -> None:
        super().__init__(asked, wanted.given, metrics, endpoint)
        self._wanted, self._model = wanted, model

    async def _tell(self, scope: Scope, receive: Receive, send: Send) -> None:
        while True:
            for event in await self._asked.take(PATIENCE_S):
                if isinstance(event, Embedded):
                    await json_response(self._told(event))(scope, receive, send)
                    return

    def _told(self, made: Embedded) -> dict[str, Any]:
        data = [
            {"object": "embedding", "index": i, "embedding": self._vector(vector)}
            for i, vector in enumerate(made.vectors)
        ]
        usage = {"prompt_tokens": made.tokens, "total_tokens": made.tokens}
        return {"object": "list", "data": data, "model": self._model, "usage": usage}

    def _vector(self, data: bytes) -> str | list[float]:
        values = np.frombuffer(data, np.float32)
        if self._wanted.packed:
            return base64.b64encode(values.astype("<f4").tobytes()).decode("ascii")
        return [float(value) for value in values]


def _inputs(name: str, value: Any) -> tuple[str | tuple[int, ...], ...]:
    """A text, a list of texts, a list of token ids, or a list of such lists."""
    if isinstance(value, str) or (isinstance(value, list) and value and isinstance(value[0], int)):
        value = [value]
    if not isinstance(value, list) or not 0 < len(value) <= MAX_INPUTS:
        raise BadRequestError(f"{name} must be text, token ids, or a list of 1 to {MAX_INPUTS} of them")
    return tuple(_input(f"{name}[{i}]" if len(value) > 1 else name, one) for i, one in enumerate(value))


def _input(name: str, value: Any) -> str | tuple[int, ...]:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, list) and value:
        return token_ids(name, value)
    raise BadRequestError(f"{name} must be text or a list of token ids, not empty")


def _format(name: str, value: Any) -> str:
    if value not in _FORMATS:
        raise BadRequestError(f"{name} must be float or base64")
    return str(value)


def _size(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadRequestError(f"{name} must be a whole number from 1")
    return value


EMBEDDINGS: Mapping[str, Field] = {
    "input": kept(_inputs),
    "model": kept(text),
    "encoding_format": kept(_format),
    "dimensions": kept(_size),
    "user": without_effect(),
}
