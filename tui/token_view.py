"""A reply token by token, each in the colour and behind the glyph of its source, with a cursor that selects one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click, Resize
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from ..stats import RoundEvent
from ..text import Sanitizer
from .looks import style_of
from .reply_tokens import Event, ReplyTokens, TokenFacts
from .sources import look
from .token_layout import HIDDEN, OVERHANG, TokenLayout

_SELECTED = Style(reverse=True, bold=True)
_SAME_ROUND = Style(underline=True)


class TokenView(ScrollView, can_focus=True):
    """Fed with the events of a running reply or with those of an old one. Scrolls by itself, or grows with its text
    where its height is auto. Only lines that changed are drawn again, and layout only ever goes on at the end."""

    DEFAULT_CSS = """
    TokenView { height: 1fr; overflow-x: hidden; background: $background; color: $foreground; }
    TokenView:ansi { background: ansi_default; color: ansi_default; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right", "step(1)", "Next token", show=False, id="tokens.next"),
        Binding("left", "step(-1)", "Token before", show=False, id="tokens.previous"),
        Binding("down", "line(1)", "Line below", show=False, id="tokens.line-down"),
        Binding("up", "line(-1)", "Line above", show=False, id="tokens.line-up"),
        Binding("pagedown", "page(1)", "Page down", show=False, id="tokens.page-down"),
        Binding("pageup", "page(-1)", "Page up", show=False, id="tokens.page-up"),
        Binding("home", "edge(False)", "First token", show=False, id="tokens.first"),
        Binding("end", "edge(True)", "Last token", show=False, id="tokens.last"),
        Binding("n", "refusal(1)", "Next refused guess", id="tokens.next-refusal"),
        Binding("p", "refusal(-1)", "Refused guess before", id="tokens.previous-refusal"),
    ]

    cursor: reactive[int | None] = reactive(None, init=False)

    class Selected(Message):
        """A token was selected; facts: None where none is any more."""

        def __init__(self, view: TokenView, facts: TokenFacts | None) -> None:
            super().__init__()
            self.view, self.facts = view, facts

        @property
        def control(self) -> Widget:
            return self.view

    def __init__(self, events: Iterable[Event] = ()) -> None:
        super().__init__()
        self._reply = ReplyTokens()
        self._shown: list[str] = []  # texts that are safe for a terminal
        self._sanitizer = Sanitizer()
        self._layout: TokenLayout | None = None  # None until the width is known
        self._looks: dict[str, Style] = {}
        self.append(*events)

    def append(self, *events: Event) -> None:
        """More events of the reply."""
        follow = self._layout is not None and self.cursor is None and self.is_vertical_scroll_end
        changed = None
        for event in events:
            self._reply.add(event)
            if not isinstance(event, RoundEvent):
                line = self._lay(self._sanitizer.push(event.text), event.source)
                changed = line if changed is None else changed
            elif self.cursor is not None and self._reply.tokens[self.cursor].round == event.round:
                self._announce()  # its guesses are known now
        if changed is not None and self._layout is not None:
            self._grown(changed)
            if follow:
                self.scroll_end(animate=False, immediate=True, force=True)  # also before the scrollbar is there

    def _lay(self, text: str, source: str) -> int | None:
        self._shown.append(text)
        return None if self._layout is None else self._layout.append(text, look(source).glyph)

    def _laid_out(self, width: int) -> TokenLayout:
        """The layout for lines of `width` cells, made anew where the width has changed."""
        wanted = TokenLayout(width - OVERHANG)
        if self._layout is None or self._layout.width != wanted.width:
            for text, token in zip(self._shown, self._reply.tokens, strict=True):
                wanted.append(text, look(token.source).glyph)
            self._layout = wanted
        return self._layout

    def _grown(self, first: int) -> None:
        """Lines from `first` on have changed."""
        assert self._layout is not None
        count = len(self._layout.lines)
        if count != self.virtual_size.height:
            self.virtual_size = Size(self.size.width, count)
        self.refresh_lines(first, count - first)

    # Drawing

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._laid_out(width).lines)

    def on_resize(self, event: Resize) -> None:
        self._fit()

    def watch_show_vertical_scrollbar(self) -> None:
        self._fit()

    def _fit(self) -> None:
        """The width may be another one."""
        width = self.scrollable_content_region.width
        if width:
            self._laid_out(width)
            self._grown(0)
            self.reveal()

    def notify_style_update(self) -> None:
        """The theme may be another one."""
        super().notify_style_update()
        self._looks.clear()

    def render_line(self, y: int) -> Strip:
        line = y + self.scroll_offset.y
        width, base = self.size.width, self.rich_style
        if self._layout is None or line >= len(self._layout.lines):
            return Strip.blank(width, base)
        selected = None if self.cursor is None else self._reply.tokens[self.cursor]
        segments = []
        for piece in self._layout.lines[line]:
            token = self._reply.tokens[piece.token]
            style = base + self._look(token.source)
            if piece.token == self.cursor:
                style += _SELECTED
            elif selected is not None and token.round == selected.round:
                style += _SAME_ROUND
            segments.append(Segment(piece.mark + piece.text, style))
        return Strip(segments).adjust_cell_length(width, base)

    def _look(self, source: str) -> Style:
        style = self._looks.get(source)
        if style is None:
            style = self._looks[source] = style_of(source, self.app)
        return style

    # The cursor

    def watch_cursor(self, before: int | None, now: int | None) -> None:
        self.refresh()
        self._announce()
        self.reveal()

    def _announce(self) -> None:
        self.post_message(self.Selected(self, None if self.cursor is None else self._reply.facts(self.cursor)))

    def on_focus(self) -> None:
        self.call_after_refresh(self._take_focus)  # a widget that is focused is scrolled to its top first

    def _take_focus(self) -> None:
        if self.cursor is None:
            self.action_edge(True)
        self.reveal()

    def action_step(self, by: int) -> None:
        """To the next token (by = 1) or the one before (-1) that has a place of its own."""
        start = self._from(by)
        self._move(range(start, -1 if by < 0 else len(self._reply.tokens), by))

    def action_refusal(self, by: int) -> None:
        """To the next token, or the one before, for which a guess had to give way."""
        last = -1 if by < 0 else len(self._reply.tokens)
        self._move(i for i in range(self._from(by), last, by) if self._reply.refused(i))

    def action_edge(self, last: bool) -> None:
        """To the last token or the first."""
        numbers = range(len(self._reply.tokens))
        self._move(reversed(numbers) if last else numbers)

    def action_line(self, by: int) -> None:
        """To the token above or below."""
        if self._layout is None or self.cursor is None:
            self.action_edge(by > 0)
            return
        first, last = self._lines_of(self.cursor)
        column = self._column(first if by < 0 else last, self.cursor)
        count = len(self._layout.lines)
        line = max(0, min(count - 1, (last if by > 0 else first) + by))
        while 0 <= line < count and not self._layout.lines[line]:
            line += 1 if by > 0 else -1
        if 0 <= line < count:
            self._select_at(line, column)

    def action_page(self, by: int) -> None:
        """By as many lines as are shown."""
        self.action_line(by * max(1, min(self.size.height, self.screen.size.height) - 1))

    def on_click(self, event: Click) -> None:
        line = event.y + self.scroll_offset.y
        if self._layout is not None and line < len(self._layout.lines):
            self._select_at(line, event.x)

    def _from(self, by: int) -> int:
        """Where a walk begins."""
        if self.cursor is None:
            return len(self._reply.tokens) - 1 if by < 0 else 0
        return self.cursor + by

    def _move(self, numbers: Iterable[int]) -> None:
        if self._layout is not None:
            first = self._layout.first
            self.cursor = next((i for i in numbers if first[i] != HIDDEN), self.cursor)

    def _column(self, line: int, token: int) -> int:
        assert self._layout is not None
        at = 0
        for piece in self._layout.lines[line]:
            if piece.token == token:
                break
            at += piece.cells
        return at

    def _select_at(self, line: int, column: int) -> None:
        """The token at a place, or the nearest before it on that line."""
        assert self._layout is not None
        found, at = None, 0
        for piece in self._layout.lines[line]:
            if found is not None and at > column:
                break
            found, at = piece.token, at + piece.cells
        if found is not None:
            self.cursor = found

    def _lines_of(self, token: int) -> tuple[int, int]:
        """The first and the last line of a token that has a place; blanks at a line's end do not count for one."""
        assert self._layout is not None
        first = last = self._layout.first[token]
        lines = self._layout.lines
        while last + 1 < len(lines) and lines[last + 1] and lines[last + 1][0].token == token:
            last += 1
        if first < last and not (lines[first][-1].mark + lines[first][-1].text).strip():
            first += 1
        return first, last

    def reveal(self) -> None:
        """Scroll to the selected token: this view, and whatever it lies in."""
        if self._layout is None or self.cursor is None or self._layout.first[self.cursor] == HIDDEN:
            return
        first, last = self._lines_of(self.cursor)
        place = Region(0, first, self.size.width, last - first + 1)
        self.scroll_to_region(place, animate=False, force=True, immediate=True)
        place = place.translate((0, -self.scroll_offset.y))
        inner: Widget = self
        for outer in self.ancestors:
            if not isinstance(outer, Widget):
                return
            place = place.translate(inner.gutter.top_left).translate(inner.virtual_region.offset)
            if outer.max_scroll_y:
                outer.scroll_to_region(place, animate=False, force=True, immediate=True)
                return
            inner = outer
