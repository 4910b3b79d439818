"""How full the context is and what will happen then, and how fast the answer comes: one line."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

_NEARLY = 0.85  # of the context


class Meter(Static):
    """Tokens of the context that the conversation takes, out of all."""

    DEFAULT_CSS = """
    Meter { height: 1; padding: 0 1; color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis; }
    Meter:ansi { color: ansi_default; }
    """

    def __init__(self) -> None:
        super().__init__(Content(""))
        self._taken, self._room = 0, 0
        self._activity = ""

    def context(self, used: int, size: int) -> None:
        """Tokens in use after the latest answer; size: of the context, 0 where no model is loaded."""
        self._taken, self._room = used, size
        self._draw()

    def activity(self, text: str) -> None:
        """What happens now, or how fast the latest answer was."""
        if text != self._activity:
            self._activity = text
            self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        parts: list[str | tuple[str, str]] = []
        if self._room:
            share = min(1.0, self._taken / self._room)
            cells = 10
            full = round(share * cells)
            colour = "$text-warning" if share >= _NEARLY else "$text-success"
            parts += [("━" * full, colour), ("╌" * (cells - full), "$text-muted")]
            parts.append(f" {self._taken:,}/{self._room:,} tokens")
            if share >= 1:
                parts.append(("  full: /new begins another chat; nothing was dropped", "$text-warning"))
            elif share >= _NEARLY:
                parts.append(("  nearly full: then answers end, and /new goes on", "$text-warning"))
        if self._activity:
            parts.append(("  " if parts else "") + self._activity)
        self.update(Content.assemble(*parts), layout=False)
