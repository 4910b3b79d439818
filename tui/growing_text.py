"""Plain text that only grows at its end: long texts cost as little to add to as short ones."""

from __future__ import annotations

from textual.containers import Vertical
from textual.content import Content

from .steady import LaidOutOnce, SteadyStatic

_PART_LINES = 24  # in one widget: only the last one is laid out again
_PART_CHARACTERS = 4_000  # a single line may be long


class GrowingText(LaidOutOnce, Vertical):
    """Sanitised text, shown literally. room: lines that are taken at a time."""

    DEFAULT_CSS = """
    GrowingText { height: auto; }
    GrowingText > SteadyStatic { height: auto; }
    """

    def __init__(self, text: str = "", *, room: int = 1) -> None:
        super().__init__()
        self._lines = room
        self._parts: list[str] = []
        self._widgets: list[SteadyStatic] = []
        self._first = text

    def on_mount(self) -> None:
        self.add(self._first)
        self._first = ""

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self._parts) + self._first

    def add(self, text: str) -> None:
        """Add to the end."""
        while text:
            if not self._parts or self._full(self._parts[-1]):
                self._begin_part()
            taken = self._room(self._parts[-1], text)
            self._parts[-1] += text[:taken]
            text = text[taken:]
            self._widgets[-1].update(Content(self._parts[-1].removesuffix("\n")))

    def _begin_part(self) -> None:
        if self._widgets:
            self._widgets[-1].settle()
        self._parts.append("")
        self._widgets.append(SteadyStatic(Content("")))
        self._widgets[-1].room = self._lines
        self.mount(self._widgets[-1])

    def _full(self, part: str) -> bool:
        return part.endswith("\n") and (part.count("\n") >= _PART_LINES or len(part) > _PART_CHARACTERS)

    def _room(self, part: str, text: str) -> int:
        """How much of `text` goes into the part: up to the end of the line that fills it."""
        lines = part.count("\n")
        end = 0
        while end < len(text):
            newline = text.find("\n", end)
            if newline < 0:
                return len(text)
            end, lines = newline + 1, lines + 1
            if lines >= _PART_LINES or len(part) + end > _PART_CHARACTERS:
                return end
        return end
