"""Server-sent events: what a stream consists of."""

from __future__ import annotations

from typing import Any

import msgspec

MEDIA_TYPE = "text/event-stream"
HEADERS = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store"))
DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"  # a comment: clients pass it by

_encode = msgspec.json.Encoder().encode


def frame(data: dict[str, Any], event: str | None = None) -> bytes:
    """One event. JSON has no line break in it, whatever the model said, so an event is one line of data."""
    head = b"" if event is None else f"event: {event}\n".encode()
    return head + b"data: " + _encode(data) + b"\n\n"
