"""EdgeSpec: the fastest exact way to chat with a local language model.

>>> import edgespec
>>> with edgespec.load() as llm:
...     print(llm.chat([{"role": "user", "content": "Name a colour."}]).text)
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from .errors import (
    BadRequestError,
    Cancelled,
    ContextFullError,
    DeadlineError,
    DecodeError,
    EdgeSpecError,
    EngineDied,
    EngineError,
    ModelLoadError,
    ModelNotFoundError,
    VocabMismatchError,
)

if TYPE_CHECKING:
    from .api import LLM, Stream
    from .loading import load
    from .reply import Reply
    from .sampling import SamplingParams
    from .stats import GenerationStats, RoundEvent, TokenEvent

__all__ = [
    "LLM",
    "BadRequestError",
    "Cancelled",
    "ContextFullError",
    "DeadlineError",
    "DecodeError",
    "EdgeSpecError",
    "EngineDied",
    "EngineError",
    "GenerationStats",
    "ModelLoadError",
    "ModelNotFoundError",
    "Reply",
    "RoundEvent",
    "SamplingParams",
    "Stream",
    "TokenEvent",
    "VocabMismatchError",
    "load",
]

_HOME = {
    "LLM": "api",
    "Stream": "api",
    "load": "loading",
    "Reply": "reply",
    "SamplingParams": "sampling",
    "GenerationStats": "stats",
    "RoundEvent": "stats",
    "TokenEvent": "stats",
}

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    """Import on first use: `edgespec show` must not wait for llama.cpp."""
    if name in _HOME:
        from importlib import import_module

        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
