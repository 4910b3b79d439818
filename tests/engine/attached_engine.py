"""A ServerEngine for tests, and what it is asked."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from edgespec.engine.protocol import GenerateSpec
from edgespec.engine.server_engine import ServerEngine
from edgespec.messages import Message


def spec(text: str, **options: Any) -> GenerateSpec:
    return GenerateSpec(messages=(Message("system", "Repeat."), Message("user", text)), options=options)


def attached(url: str, **options: Any) -> Any:
    """A ServerEngine that knows its model; to be closed."""
    engine = ServerEngine(url, **options)
    engine.load(engine.spec)
    return closing(engine)
