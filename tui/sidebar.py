"""The list of conversations, and the search through all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from ..chat_session import ChatSession
from ..errors import EdgeSpecError
from ..history import Conversation, Hit
from .background import in_thread
from .labels import fitted, line, when

_CELLS = 29  # of a title
_PAGE = 100  # conversations in the list at once; the search finds all


class Sidebar(Vertical):
    """Lists and finds; what is done with a conversation is up to the screen."""

    DEFAULT_CSS = """
    Sidebar { width: 34; background: $panel; border-right: vkey $border; }
    Sidebar:ansi { background: ansi_default; }
    Sidebar > Input { border: none; height: 1; margin: 0 0 1 0; background: $surface; }
    Sidebar > OptionList { height: 1fr; border: none; background: transparent; padding: 0; }
    Sidebar > Static { height: auto; color: $text-muted; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("delete", "forget", "Delete", id="chats.delete"),
        Binding("escape", "leave", "Back", show=False),
    ]

    @dataclass
    class Opened(Message):
        """A conversation was chosen. message: the one that a search found in it."""

        conversation: int
        message: int | None = None

    @dataclass
    class Deleted(Message):
        """A conversation shall be deleted."""

        conversation: int

    @dataclass
    class Left(Message):
        """Back to the chat."""

    def __init__(self, session: ChatSession) -> None:
        super().__init__()
        self._session = session
        self._count = 0
        self._whole = False

    def compose(self) -> ComposeResult:
        yield Input(placeholder="Search all chats", id="search", compact=True)
        yield OptionList(id="chats", markup=False, compact=True)
        yield Static(Content("Enter opens, Delete deletes"), id="hint")

    @property
    def _chats(self) -> OptionList:
        return self.query_one("#chats", OptionList)

    def relist(self) -> None:
        """The latest conversations, as they are now; nothing while it is hidden or searches."""
        if not self.display or self.query_one("#search", Input).value.strip():
            return
        rows = self._session.history.conversations(_PAGE)
        self._chats.clear_options()
        self._count, self._whole = 0, False
        self._add(rows)
        self._chats.highlighted = next((i for i, row in enumerate(rows) if row.id == self._session.id), None)
        if not rows:
            self._chats.add_option(Option(Content("no chats yet"), disabled=True))

    def _add(self, rows: Sequence[Conversation]) -> None:
        self._count += len(rows)
        self._whole = len(rows) < _PAGE
        self._chats.add_options([Option(_row(row, row.id == self._session.id), id=f"c{row.id}") for row in rows])

    def _show_hits(self, hits: Sequence[Hit]) -> None:
        self._chats.clear_options()
        self._whole = True
        found = {f"c{hit.conversation}m{hit.message or 0}": hit for hit in reversed(hits)}
        self._chats.add_options([Option(_hit(hit), id=name) for name, hit in reversed(found.items())])
        if not hits:
            self._chats.add_option(Option(Content("nothing found"), disabled=True))

    def focus_list(self) -> None:
        """Let keys move in the list."""
        self._chats.focus()

    def focus_search(self, text: str = "") -> None:
        """Let keys write the search."""
        search = self.query_one("#search", Input)
        search.value = text or search.value
        search.focus()

    @on(Input.Changed, "#search")
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self.run_worker(self._search(event.value), group="search", exclusive=True)

    async def _search(self, text: str) -> None:
        if not text.strip():
            self.relist()
            return
        try:
            self._show_hits(await in_thread(lambda: self._session.history.search(text)))
        except EdgeSpecError as error:
            self.notify(line(str(error)), severity="error", markup=False)

    @on(Input.Submitted, "#search")
    def _searched(self, event: Input.Submitted) -> None:
        event.stop()
        self.focus_list()
        if self._chats.highlighted is None and self._chats.option_count:
            self._chats.highlighted = 0

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if (found := _ids(event.option.id)) is not None:
            self.post_message(self.Opened(*found))

    @on(OptionList.OptionHighlighted)
    def _moved(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        if not self._whole and event.option_index >= self._count - 2:
            self._add(self._session.history.conversations(_PAGE, self._count))

    def action_forget(self) -> None:
        if self._chats.has_focus and self._chats.highlighted is not None:
            found = _ids(self._chats.get_option_at_index(self._chats.highlighted).id)
            if found is not None:
                self.post_message(self.Deleted(found[0]))

    def action_leave(self) -> None:
        self.query_one("#search", Input).value = ""
        self.post_message(self.Left())


def _ids(option: str | None) -> tuple[int, int | None] | None:
    """Conversation and message of a row."""
    if option is None:
        return None
    conversation, _, message = option.removeprefix("c").partition("m")
    return int(conversation), int(message) or None if message else None


def _row(row: Conversation, current: bool) -> Content:
    return Content.assemble(
        ("▸ " if current else "  ", "$text-accent"),
        (fitted(row.label, _CELLS), "bold" if current else ""),
        f"\n  {when(row.updated)}, {row.messages} message{'' if row.messages == 1 else 's'}",
    )


def _hit(hit: Hit) -> Content:
    return Content.assemble(
        (fitted(hit.label, _CELLS), "bold"),
        "\n  ",
        line(hit.before, 24),
        " " if hit.before.endswith(" ") else "",
        (line(hit.match, 60), "reverse"),
        " " if hit.after.startswith(" ") else "",
        line(hit.after, 40),
    )
