"""The panel on speculation: what it did for a reply, what it costs here, and a switch for the sources."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.events import Resize
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Select, Static

from ..engine.protocol import Loaded
from ..history import ReplyDetails
from ..reply import Reply
from ..stats import GenerationStats, RoundEvent
from . import speculation_text
from .cost_plot import CostPlot
from .looks import style_of
from .sources import look
from .speculation_text import Figures

_REDRAW_S = 1.0  # while a reply runs: a redraw takes some milliseconds
_AUTO, _NONE = "auto", "none"


class DrafterChosen(Message):
    """The user wants these sources: "auto", "none" or a comma-separated list."""

    def __init__(self, drafter: str) -> None:
        super().__init__()
        self.drafter = drafter


class SpeculationPanel(VerticalScroll):
    """Fed with the rounds of a running reply or the details of an old one."""

    DEFAULT_CSS = """
    SpeculationPanel { padding: 0 0 0 1; background: $surface; color: $foreground; scrollbar-gutter: stable; }
    SpeculationPanel > Static { height: auto; margin: 0 1 1 0; }
    SpeculationPanel > #summary { text-style: bold; }
    SpeculationPanel > #switch-label { margin: 0; }
    SpeculationPanel > Select { margin: 0 1 1 0; }
    SpeculationPanel:ansi { background: ansi_default; color: ansi_default; }
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._rounds: list[RoundEvent] = []
        self._figures = Figures(GenerationStats())
        self._due: Timer | None = None
        self._loaded: Loaded | None = None
        self._chosen = _AUTO
        self._ready = False
        self._shown: dict[str, Text] = {}  # by id of a part: what it says now

    def compose(self) -> ComposeResult:
        yield Static(markup=False, id="summary")
        yield Static(markup=False, id="accepted")
        yield Static(markup=False, id="times")
        yield Static(markup=False, id="sources")
        yield Static(markup=False, id="measured")
        yield Static("Sources that guess:", id="switch-label")
        yield Select(self._choices(), allow_blank=False, value=self._chosen, compact=True, id="switch")
        yield CostPlot(id="costs")

    def on_mount(self) -> None:
        self._ready = True
        self._draw()
        self._draw_loaded()

    def on_show(self) -> None:
        self._draw()

    def on_resize(self, event: Resize) -> None:
        self._draw()

    # What is fed

    def reset(self) -> None:
        """Another reply begins."""
        self._rounds = []
        self._figures = Figures(GenerationStats())
        self._draw()

    def update_round(self, event: RoundEvent) -> None:
        """One more round of the reply that runs."""
        self._rounds.append(event)
        totals = self._figures.stats
        totals.record(event)
        self._figures = Figures(totals, totals.speedup_vs_plain)
        if self._due is None and self._ready and self.display:
            self._due = self.set_timer(_REDRAW_S, self._redraw)

    def finish(self, reply: Reply) -> None:
        """The reply has ended."""
        self._figures = Figures(reply.stats, reply.stats.speedup_vs_plain, reply.stats.why)
        self._draw()

    def show_details(self, details: ReplyDetails) -> None:
        """An old reply."""
        self._rounds, self._figures = list(details.rounds), speculation_text.figures_of(details)
        self._draw()

    def show_loaded(self, loaded: Loaded, chosen: str = _AUTO) -> None:
        """The model that answers. chosen: what the user asked for, as --drafter takes it."""
        self._loaded, self._chosen = loaded, chosen
        self._draw_loaded()

    # What is shown

    def _redraw(self) -> None:
        self._due = None
        self._draw()

    def _draw(self) -> None:
        if not self._ready or not self.display:
            return
        figures, rounds = self._figures, self._rounds
        width = max(10, self.scrollable_content_region.width - 1)
        spark = speculation_text.sparkline(rounds, width)
        bar, times = speculation_text.time_bar(figures.stats, width)
        why = speculation_text.why_line(figures)
        self._put("summary", speculation_text.summary(figures))
        self._put("accepted", speculation_text.accepted_line(rounds, width), spark)
        self._put("times", "Milliseconds per round", bar, times)
        self._put("sources", *self._table(width), self._legend())
        self._put("measured", speculation_text.speedup_line(figures), why)

    def _put(self, id: str, *lines: str | Text) -> None:
        """Show lines in a part. The panel is laid out again only where the height of the part may be another one."""
        text = Text("\n").join(line if isinstance(line, Text) else Text(line) for line in lines if line)
        before = self._shown.get(id)
        if text == before and text.spans == before.spans:
            return
        self._shown[id] = text
        part = self.query_one(f"#{id}", Static)
        wraps = any(len(line) > part.size.width for line in text.plain.split("\n"))
        lined = before is not None and before.plain.count("\n") == text.plain.count("\n")
        part.update(text, layout=wraps or not lined)

    def _table(self, width: int) -> list[Text]:
        """Numbers to the right, names in the look of their source."""
        heading, *rows = speculation_text.source_table(self._figures.stats)
        sizes = [max(len(row[i]) for row in (heading, *rows)) for i in range(len(heading))]
        sizes[0] = min(sizes[0], max(8, width - sum(sizes[1:]) - 6))
        lines = []
        for row in (heading, *rows):
            name = row[0][: sizes[0]].ljust(sizes[0])
            numbers = "  ".join(cell.rjust(size) for cell, size in zip(row[1:], sizes[1:], strict=True))
            lines.append(Text.assemble(name, "  ", numbers, style="bold" if row is heading else ""))
        return lines

    def _legend(self) -> Text:
        """Colour and glyph of each source that tokens came from."""
        names = speculation_text.seen_sources(self._rounds)
        rows = [(look(name), style_of(name, self.app)) for name in names]
        return Text("  ").join([Text("Tokens:"), *(Text(f"{row.glyph}{row.name}", style) for row, style in rows)])

    def notify_style_update(self) -> None:
        """The theme may be another one."""
        super().notify_style_update()
        self._draw()

    def _draw_loaded(self) -> None:
        loaded = self._loaded
        if loaded is None or not self._ready:
            return
        self.query_one(CostPlot).show(loaded.widths, loaded.ms, loaded.draft_ms)
        switch = self.query_one("#switch", Select)
        with self.prevent(Select.Changed):
            switch.set_options(self._choices())
            switch.value = self._chosen
        switch.disabled = bool(loaded.server)  # it chooses by itself

    def _choices(self) -> Iterable[tuple[str, str]]:
        """What the switch offers: all, none, each source alone, and what is chosen now."""
        sources = (*self._loaded.sources, *self._loaded.more) if self._loaded else ()
        choices = {_AUTO: "auto: whichever pays", **{name: f"{look(name).name} alone" for name in sources}}
        choices[_NONE] = "none: plain decoding"
        choices.setdefault(self._chosen, self._chosen)
        return [(label, value) for value, label in choices.items()]

    def on_select_changed(self, event: Select.Changed) -> None:
        event.stop()
        if str(event.value) != self._chosen:
            self._chosen = str(event.value)
            self.post_message(DrafterChosen(self._chosen))
