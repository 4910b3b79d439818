"""The speculation view through the keyboard: tokens, the selected one, and the panel of figures."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from made_reply import TEXT, made_reply, pieces
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.pilot import Pilot
from textual.widget import Widget
from textual.widgets import Select, Static

from edgespec.engine.protocol import Loaded
from edgespec.history import ReplyDetails
from edgespec.reply import Reply
from edgespec.stats import DraftedToken, GenerationStats, RoundEvent, TokenEvent
from edgespec.tui.looks import style_of
from edgespec.tui.reply_tokens import Event
from edgespec.tui.sources import REJECTED, SOURCES, UNKNOWN
from edgespec.tui.speculation_panel import DrafterChosen, SpeculationPanel
from edgespec.tui.speculation_text import describe
from edgespec.tui.token_inspector import TokenInspector, literal, percent
from edgespec.tui.token_view import TokenView

LOADED = Loaded(
    name="large.gguf", path="/models/large.gguf", n_ctx=4096, draft="small.gguf", drafter="suffix,lookup,model",
    sources=("suffix", "lookup", "model"), why="", notes=(), template=True, widths=tuple(range(1, 17)),
    ms=tuple(20.0 + 2.5 * i for i in range(16)), draft_ms=4.0, threads=2, weight_bytes=1, kv_bytes=1,
)  # fmt: skip
GHOSTS = RoundEvent(
    1, "model", 3,
    (DraftedToken(1, " two", 0.9, 0.8, True), DraftedToken(2, " cat\x1b[31m\u202e", 0.41, 0.03, False),
     DraftedToken(3, " mat", 0.5, None, False)),
    1, 2, (1, 9), 4.0, 20.0, 1.0,
)  # fmt: skip
TOKENS = (
    TokenEvent("One", 0, "target", -0.1, 0),
    TokenEvent(" two", 1, "model", -0.2, 1),
    TokenEvent(" dogs", 9, "target", -0.69, 1),
)


def in_app(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that runs in an event loop of its own."""

    @functools.wraps(test)
    def run(**arguments: Any) -> None:
        asyncio.run(test(**arguments))

    return run


async def until(pilot: Pilot[None], condition: Callable[[], Any]) -> None:
    """Let the app work until something is so."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "it did not come to be"
        await pilot.pause(0.02)


def in_sight(view: TokenView, outer: Widget) -> bool:
    """Is the selected token on the screen?"""
    assert view.cursor is not None
    first, last = view._lines_of(view.cursor)
    return outer.scroll_offset.y <= first <= last < outer.scroll_offset.y + outer.size.height


class Shown(App[None]):
    """A view, its inspector and a panel. inner: the view grows inside a scroll of its own."""

    def __init__(self, events: Iterable[Event] = (), *, grows: bool = False, dark: bool = True) -> None:
        super().__init__()
        self.view, self.inspector, self.panel = TokenView(events), TokenInspector(), SpeculationPanel()
        self._grows, self._dark = grows, dark
        self.chosen: list[str] = []

    def compose(self) -> ComposeResult:
        if self._grows:
            self.view.styles.height = "auto"
            with VerticalScroll(id="outer"):
                yield self.view
        else:
            yield self.view
        yield self.inspector
        yield self.panel

    def on_mount(self) -> None:
        self.theme = "textual-dark" if self._dark else "textual-light"

    def on_token_view_selected(self, event: TokenView.Selected) -> None:
        self.inspector.show(event.facts, event.view)

    def on_drafter_chosen(self, event: DrafterChosen) -> None:
        self.chosen.append(event.drafter)

    def lines(self) -> list[str]:
        """What the view shows."""
        return ["".join(s.text for s in self.view.render_line(y)).rstrip() for y in range(self.view.size.height)]

    def said(self, widget: str) -> str:
        return str(self.query_one(widget, Static).content)


@in_app
async def test_tokens_have_the_glyph_and_the_colour_of_their_source() -> None:
    app = Shown((*TOKENS, GHOSTS))
    async with app.run_test(size=(80, 24)):
        assert app.lines()[0].strip() == "One ·two dogs"
        colours = {s.text.strip(): s.style.color.name for s in app.view.render_line(0) if s.style and s.text.strip()}
        assert colours["·two"] == SOURCES["model"].dark
        assert colours["One"] == SOURCES["target"].dark
        app.theme = "textual-light"
        assert style_of("model", app).color.name == SOURCES["model"].light
        app.theme = "ansi-dark"
        assert style_of("model", app).color.number == 2


@in_app
async def test_the_selected_token_shows_the_ghosts_of_its_round() -> None:
    app = Shown((*TOKENS, GHOSTS))
    async with app.run_test(size=(80, 24)) as pilot:
        app.view.focus()
        await pilot.press("home", "n")
        await until(pilot, lambda: '" dogs"' in app.said("TokenInspector"))
        assert app.view.cursor == 2
        text = app.said("TokenInspector")
        assert '" dogs"' in text
        assert "p 50% (logprob -0.69) · round 1, token 3" in text
        assert 'In place of " cat\\x1b[31m\\u202e". 1 of 3 guesses accepted' in text
        assert "draft 41%, target 3.0%" in text
        assert '" mat" draft 50%, not looked at' in text
        await pilot.press("left")
        await until(pilot, lambda: "· draft model · p 82%" in app.said("TokenInspector"))
        await pilot.press("left", "left")
        await until(pilot, lambda: "It came with the prompt" in app.said("TokenInspector"))
        assert app.view.cursor == 0


@in_app
async def test_a_round_that_is_not_complete_is_told_later() -> None:
    app = Shown()
    async with app.run_test(size=(80, 24)) as pilot:
        assert "No token selected" in app.said("TokenInspector")
        app.view.append(*TOKENS)
        app.view.focus()
        await pilot.press("end")
        await until(pilot, lambda: "not complete yet" in app.said("TokenInspector"))
        app.view.append(GHOSTS)
        await until(pilot, lambda: "rejected" in app.said("TokenInspector"))
        app.inspector.show(None)
        assert "No token selected" in app.said("TokenInspector")


@pytest.mark.parametrize("size", [(40, 24), (80, 24), (140, 45)])
@pytest.mark.parametrize("grows", [False, True], ids=["scrolls", "grows"])
@in_app
async def test_the_cursor_walks_over_every_token_and_stays_in_sight(size: tuple[int, int], grows: bool) -> None:
    events = list(made_reply(TEXT * 2))
    app = Shown(events, grows=grows)
    async with app.run_test(size=size) as pilot:
        tokens = len([e for e in events if isinstance(e, TokenEvent)])
        app.view.focus()
        await until(pilot, lambda: app.view.cursor == tokens - 1)
        view, seen = app.view, []
        view.action_edge(False)
        while view.cursor not in seen:
            seen.append(view.cursor)
            view.action_step(1)
        assert seen[0] == 0
        assert len(seen) >= tokens - 4  # the joiner of the two cats, and what it joins, have no place of their own
        await pilot.press("end")
        await pilot.pause()
        assert view.cursor == tokens - 1
        outer = app.query_one("#outer") if grows else view
        await until(pilot, lambda: in_sight(view, outer))
        lines = []
        for key in ("home", "down", "down", "up"):
            await pilot.press(key)
            lines.append(view._lines_of(view.cursor)[0])
        assert lines == [0, 1, 2, 1]
        await pilot.press("pagedown", "pageup")
        await pilot.click(view, offset=(3, 0)) if not grows else await pilot.press("home")
        await until(pilot, lambda: in_sight(view, outer))


@in_app
async def test_a_view_that_grows_takes_the_lines_that_it_needs() -> None:
    app = Shown(grows=True)
    async with app.run_test(size=(60, 24)) as pilot:
        events = list(made_reply(TEXT * 2))
        for start in range(0, len(events), 50):
            app.view.append(*events[start : start + 50])
            await until(pilot, lambda: app.view.size.height == len(app.view._layout.lines))
        assert app.view.size.height > 20
        await pilot.resize_terminal(40, 24)
        await until(pilot, lambda: app.view.size.width < 40)
        await until(pilot, lambda: app.view.size.height == len(app.view._layout.lines))


@in_app
async def test_a_long_reply_is_only_drawn_where_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    words = pieces(TEXT)
    app = Shown()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        app.view.append(*(TokenEvent(words[i % len(words)], i, "target", -0.5, 0) for i in range(20_000)))
        await pilot.pause()
        before = len(app.view._layout.lines)
        drawn: list[int] = []
        draw = TokenView.render_line
        monkeypatch.setattr(TokenView, "render_line", lambda view, y: drawn.append(y) or draw(view, y))
        laid = app.view._layout
        app.view.append(TokenEvent(" x", 0, "model", -0.5, 1))
        await until(pilot, lambda: drawn)
        assert app.view._layout is laid
        assert len(laid.lines) - before <= 1
        assert 1 <= len(drawn) <= app.view.size.height  # a line more scrolls the others
        drawn.clear()
        app.view.append(TokenEvent("y", 0, "model", -0.5, 2))
        await until(pilot, lambda: drawn)
        assert 1 <= len(drawn) <= 2
        begin = time.process_time()
        app.view.append(*(TokenEvent(words[i % len(words)], i, "target", -0.5, 3) for i in range(1000)))
        assert time.process_time() - begin < 0.5  # a thousand tokens are half a minute of reading


@in_app
async def test_hostile_text_stays_text() -> None:
    hostile = "\x1b]52;c;eA==\x07\x1b[2J[bold]x[/bold]\x9b31m\u202e"
    app = Shown(TokenEvent(char, 0, "target", -1.0, i) for i, char in enumerate(hostile))
    async with app.run_test(size=(80, 24)) as pilot:
        shown = "".join(app.lines())
        assert shown == "[bold]x[/bold]"
        app.view.focus()
        await pilot.press("home")
        await until(pilot, lambda: app.inspector.facts is not None)
        assert app.inspector.facts is not None
        app.inspector.show(replace(app.inspector.facts, token=TokenEvent(hostile, 0, "x\x1b[1m", -1.0, 0)))
        await pilot.pause()
        svg = app.export_screenshot()
        assert not set(svg) & {"\x1b", "\x9b", "\x07", "\u202e"}
        assert "[bold]x[/bold]" in app.said("TokenInspector")


def test_literal_and_percent() -> None:
    assert literal(' a\n\t"\\') == '" a\\n\\t\\"\\\\"'
    assert literal("é灯👩\u200d💻") == '"é灯👩\\u200d💻"'
    assert len(literal("x" * 100)) < 50
    assert all(literal(chr(code)).isprintable() for code in (*range(0x3000), 0xD800, 0xFEFF, 0xE0001, 0x10FFFF))
    assert [percent(p) for p in (0, 0.0004, 0.034, 0.5, 0.996, 1)] == ["0%", "<0.1%", "3.4%", "50%", "99.6%", "100%"]


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_looks_can_be_read_and_told_apart() -> None:
    rows = [*SOURCES.values(), UNKNOWN, REJECTED]
    for row in rows:
        assert (luminance(row.dark) + 0.05) / (luminance("#1e1e1e") + 0.05) >= 4.5
        assert (luminance("#e0e0e0") + 0.05) / (luminance(row.light) + 0.05) >= 4.5
        assert len(row.glyph) <= 1
    for field in ("ansi", "dark", "light", "glyph", "name"):
        assert len({getattr(row, field) for row in rows}) == len(rows), field


# The panel


def rounds(count: int = 12) -> list[RoundEvent]:
    return [e for e in made_reply(TEXT * 2) if isinstance(e, RoundEvent)][:count]


@in_app
async def test_the_panel_follows_the_rounds() -> None:
    app = Shown()
    async with app.run_test(size=(100, 45)) as pilot:
        panel = app.panel
        assert app.said("#summary") == "Nothing has been generated yet."
        panel.reset()
        for event in rounds():
            panel.update_round(event)
        stats = GenerationStats()
        for event in rounds():
            stats.record(event)
        panel._redraw()
        share = f"{100 * stats.accepted / stats.produced:.0f}% of tokens were guessed right"
        assert f"x faster than plain here; {share}." in app.said("#summary")
        assert "measured on 3 plain rounds" in app.said("#measured")
        assert "· draft " in app.said("#sources")
        assert "Tokens:  target  +bonus  ·draft" in app.said("#sources")
        assert "verify" in app.said("#times")
        await pilot.pause()


@in_app
async def test_why_speculation_is_off_is_a_sentence() -> None:
    stats = GenerationStats(why="guesses cost more than they save here")
    stats.record(RoundEvent(1, "target", 0, (), 0, 1, (5,), 0.0, 20.0, 1.0))
    app = Shown()
    async with app.run_test(size=(60, 40)):
        app.panel.finish(Reply("x", (5,), (-0.1,), "stop", "m", "model", stats))
        assert app.said("#summary") == "Plain speed: guesses cost more than they save here."
        assert "Nothing was guessed: guesses cost more than they save here" in app.said("#measured")
        assert "not measured yet (nothing was guessed)" in app.said("#measured")
        stats.why = "medusa off: it needs 2.00 tokens a round at K = 1 and is expected to give 1.20"
        stats.record(RoundEvent(2, "lookup", 1, (DraftedToken(6, "x", 1.0, 0.0, False),), 0, 1, (5,), 0.0, 20.0, 1.0))
        app.panel.finish(Reply("xx", (5, 5), (-0.1, -0.1), "stop", "m", "model", stats))
        assert "In the end: heads off: it needs" in " ".join(app.said("#measured").split())
        stats = GenerationStats(why="the answer ended before anything could be guessed")
        app.panel.finish(Reply("x", (5,), (-0.1,), "length", "m", "model", stats))
        assert app.said("#summary") == "The answer ended before anything could be guessed."
        assert "Nothing was guessed" not in app.said("#measured")


@in_app
async def test_the_switch_names_what_can_be_used() -> None:
    app = Shown()
    async with app.run_test(size=(60, 60)) as pilot:
        app.panel.show_loaded(LOADED, "suffix,lookup")
        await pilot.pause()
        switch = app.query_one("#switch", Select)
        assert switch.value == "suffix,lookup"
        assert app.chosen == []
        switch.focus()
        await pilot.press("enter", "home", "down", "enter")
        await until(pilot, lambda: app.chosen == ["suffix"])
        app.panel.show_loaded(LOADED, "none")
        await pilot.pause()
        assert app.chosen == ["suffix"]
        app.panel.show_loaded(msgspec.structs.replace(LOADED, more=("medusa",)), "auto")
        await pilot.pause()
        await pilot.press("enter", "end", "up", "enter")  # heads that a load would bring, before "none"
        await until(pilot, lambda: app.chosen == ["suffix", "medusa"])


@in_app
async def test_an_old_reply_looks_as_it_did() -> None:
    events = list(made_reply())
    details = ReplyDetails(
        tuple(e for e in events if isinstance(e, TokenEvent)),
        tuple(e for e in events if isinstance(e, RoundEvent)),
        {"stats": {"speedup_vs_plain": 1.86, "why": ""}},
    )
    live, old = Shown(events), Shown((*details.tokens, *details.rounds))
    shown = []
    for app in (live, old):
        async with app.run_test(size=(80, 45)) as pilot:
            app.panel.show_details(details)
            await pilot.pause()
            shown.append((app.lines(), app.said("#summary")))
    assert shown[0] == shown[1]
    assert shown[1][1].startswith("1.9x faster than plain here; ")
    lines = describe(details, 40)
    assert lines[0] == shown[1][1]
    assert all(len(line) <= 80 for line in lines)


@pytest.mark.parametrize("width", [24, 40, 60, 140])
@in_app
async def test_the_cost_plot_fits_and_says_the_numbers(width: int) -> None:
    app = Shown()
    async with app.run_test(size=(width, 50)) as pilot:
        assert "Not measured yet" in app.said("CostPlot")
        app.panel.show_loaded(LOADED)
        await pilot.pause()
        text = app.said("CostPlot")
        picture = text.splitlines()[1:8]
        assert all(len(line) <= app.query_one("CostPlot").size.width for line in picture)
        assert "1 row 20.0 ms: 2 rows 1.1x, 4 rows 1.4x, 8 rows 1.9x, 16 rows 2.9x" in text
        assert "a step of the draft model 0.20x" in text
        assert picture[-1].startswith("rows 1")
        assert picture[0].startswith(" 4.0x")


@pytest.mark.parametrize("theme", ["textual-dark", "textual-light", "ansi-dark"])
@in_app
async def test_without_colour_glyphs_are_left(theme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = Shown(made_reply())
    async with app.run_test(size=(40, 24)) as pilot:
        app.theme = theme
        app.view.focus()
        await pilot.press("home")
        await until(pilot, lambda: app.view.cursor == app.view.scroll_offset.y == 0)
        text = "".join(app.lines())
        assert all(SOURCES[name].glyph in text for name in ("model", "lookup", "suffix", "bonus"))
        styles = [s.style for s in app.view.render_line(0) if s.style is not None]
        assert styles[0].reverse
