"""How `run` writes events to standard output: text, coloured sources, JSON lines, or nothing until the end."""

from __future__ import annotations

import os
import sys
from typing import Any, Protocol

import click

from edgespec.tui.sources import SOURCES, legend, paint

from ..stats import RoundEvent, TokenEvent
from ..text import Sanitizer
from .json_text import json_text


class Writer(Protocol):
    """Shows events as they come."""

    def event(self, event: TokenEvent | RoundEvent) -> None: ...

    def end(self) -> None: ...


def writer(options: dict[str, Any]) -> Writer:
    """The writer that run's options ask for."""
    if options["as_json"]:
        return _Silent()
    if options["jsonl"]:
        return _JsonLines()
    if options["sources"]:
        return _Sources()
    return _Text()


class _Silent:
    def event(self, event: TokenEvent | RoundEvent) -> None: ...

    def end(self) -> None: ...


class _JsonLines:
    def event(self, event: TokenEvent | RoundEvent) -> None:
        _put(json_text(event.to_json()) + "\n")

    def end(self) -> None: ...


class _Text:
    """The answer alone: byte for byte into a pipe, sanitised onto a terminal."""

    def __init__(self) -> None:
        self._sanitizer = Sanitizer() if sys.stdout.isatty() else None
        self._last = "\n"

    def event(self, event: TokenEvent | RoundEvent) -> None:
        if isinstance(event, TokenEvent):
            self._show(self._sanitizer.push(event.text) if self._sanitizer else event.text)

    def end(self) -> None:
        if self._sanitizer:
            self._show(self._sanitizer.finish())
        if self._last != "\n":
            _put("\n")

    def _show(self, text: str) -> None:
        if text:
            self._last = text[-1]
            _put(text)


class _Sources:
    """Each token in its source's colour; without colour, with its glyph before it. Always sanitised."""

    def __init__(self) -> None:
        self._sanitizer = Sanitizer()
        self._colour = not os.environ.get("NO_COLOR") and (sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR")))
        self._seen: dict[str, None] = {}

    def event(self, event: TokenEvent | RoundEvent) -> None:
        if isinstance(event, TokenEvent):
            text = self._sanitizer.push(event.text)
            if text:
                self._seen[event.source] = None
                _put(paint(text, event.source, colour=self._colour))

    def end(self) -> None:
        _put(self._sanitizer.finish() + "\n")
        click.echo(legend([s for s in SOURCES if s in self._seen], colour=self._colour), err=True, color=True)


def _put(text: str) -> None:
    """Write now: a stream that waits for a full buffer is no stream. Raises OSError (closed, full)."""
    sys.stdout.write(text)
    sys.stdout.flush()
