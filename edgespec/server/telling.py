"""Events of the engine as a client gets them that asks for `events`: the lines of `run --jsonl`, and some more."""

from __future__ import annotations

from typing import Any

from ..engine.protocol import Event, Finished, Reading
from ..stats import RoundEvent, TokenEvent


def engine_event(event: Event) -> dict[str, Any] | None:
    """None for one that says nothing about the answer."""
    match event:
        case TokenEvent():
            return event.to_json()
        case RoundEvent():
            return {**event.to_json(), "beside": event.beside}
        case Reading():
            return {"type": "reading", "done": event.done, "total": event.total, "reused": event.reused}
        case Finished(reply):
            facts = reply.to_json()
            del facts["text"]  # it has come
            return {"type": "reply", **facts}
        case _:
            return None
