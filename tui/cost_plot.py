"""What a decode costs on this machine by the number of rows it checks at once, in plain steps."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.events import Resize
from textual.widgets import Static

_EIGHTHS = " ▁▂▃▄▅▆▇█"
_ROWS = 6  # lines of the picture
_MARGIN = 5  # cells of the scale on the left
_LEAST_TOP = 4.0  # plain steps at the top of the scale


def plot(widths: Sequence[int], ms: Sequence[float], width: int) -> list[str]:
    """Lines of at most `width` cells: a bar for each number of rows, the time of a plain step being 1.

    A dot stands where as many plain steps would end: the room between is what right guesses save.
    """
    costs = [value / ms[0] for value in ms]
    cell = max(1, min(3, (width - _MARGIN) // len(costs)))
    shown = list(zip(widths, costs, strict=True))[: max(1, (width - _MARGIN) // cell)]
    top = max(_LEAST_TOP, *(cost for _, cost in shown))
    lines = []
    for row in range(_ROWS, 0, -1):
        low, step = top * (row - 1) / _ROWS, top / _ROWS
        scale = f"{top * row / _ROWS:4.1f}x" if row in (_ROWS, _ROWS // 2) else " " * _MARGIN
        lines.append(scale + "".join(_column(rows, cost, low, step).ljust(cell) for rows, cost in shown).rstrip())
    labels = (_label(rows, i, cell).ljust(cell) for i, (rows, _) in enumerate(shown))
    return [*lines, "rows ".rjust(_MARGIN) + "".join(labels).rstrip()]


def _column(rows: int, cost: float, low: float, step: float) -> str:
    """One cell of a bar, whose lower edge is at `low` plain steps."""
    eighths = round(8 * (cost - low) / step)
    if eighths > 0:
        return _EIGHTHS[min(8, eighths)]
    return "·" if low < rows <= low + step else " "


def _label(rows: int, index: int, cell: int) -> str:
    """Numbers of two digits need two cells and a blank: then every other one is left out."""
    every = 1 if cell > 2 else 4
    return str(rows) if index % every == 0 and len(str(rows)) <= max(cell, 1) else ""


def key_costs(widths: Sequence[int], ms: Sequence[float], draft_ms: float | None) -> str:
    """The same in words."""
    chosen = [(w, value / ms[0]) for w, value in zip(widths, ms, strict=True) if w in (2, 4, 8, 16)]
    costs = ", ".join(f"{w} rows {cost:.1f}x" for w, cost in chosen)
    draft = "" if draft_ms is None else f"; a step of the draft model {draft_ms / ms[0]:.2f}x"
    return f"1 row {ms[0]:.1f} ms: {costs}{draft}."


class CostPlot(Static):
    """The picture and its words; says so where nothing was measured yet."""

    DEFAULT_CSS = """
    CostPlot { height: auto; color: $foreground; }
    CostPlot:ansi { color: ansi_default; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(markup=False, id=id)
        self._table: tuple[tuple[int, ...], tuple[float, ...], float | None] | None = None

    def show(self, widths: tuple[int, ...], ms: tuple[float, ...], draft_ms: float | None) -> None:
        """Milliseconds by number of rows, from one row on; empty: not measured."""
        self._table = (widths, ms, draft_ms) if widths and ms[0] > 0 else None
        self._draw()

    def on_mount(self) -> None:
        self._draw()

    def on_resize(self, event: Resize) -> None:
        self._draw()

    def _draw(self) -> None:
        title = Text("Cost of a step by rows checked at once", "bold")
        if self._table is None:
            self.update(Text("\n").join([title, Text("Not measured yet: the first planned reply does that.", "dim")]))
            return
        widths, ms, draft_ms = self._table
        lines = plot(widths, ms, max(_MARGIN + 1, self.content_size.width))
        words = Text(f"{key_costs(widths, ms, draft_ms)} Dots: as many plain steps.", "dim")
        self.update(Text("\n").join([title, *map(Text, lines), words]))
