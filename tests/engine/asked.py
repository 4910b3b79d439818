"""Short ways to ask an engine, for tests."""

from __future__ import annotations

from typing import Any

from edgespec.engine.interface import Engine, Generating
from edgespec.engine.protocol import Finished, GenerateSpec
from edgespec.messages import Message
from edgespec.reply import Reply


def spec(
    text: str, *, conversation: str | None = None, deadline_s: float | None = None, **options: Any
) -> GenerateSpec:
    """One message of a user."""
    return GenerateSpec(
        messages=(Message("user", text),), options=options, conversation=conversation, deadline_s=deadline_s
    )


def answered(engine: Engine, text: str, **more: Any) -> Reply:
    """The whole reply to one message."""
    return finished(engine.generate(spec(text, **more)))


def finished(generating: Generating) -> Reply:
    """Wait for the end."""
    return generating.result(Finished).reply
