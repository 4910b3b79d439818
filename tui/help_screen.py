"""All keys and commands, from the tables that make them work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from ..chat_commands import APP, COMMANDS
from .keys import help_of, key_table

_FIXED = (
    ("enter", "Send the message. While an answer is written, it waits and is sent next."),
    ("ctrl+j, alt+enter, shift+enter", "Begin a new line in the message."),
    ("up, down", "At the first or last line: bring back what you sent before."),
    ("pageup, pagedown", "Scroll the chat; at its top, older messages come."),
    ("shift+tab", "Select the last message; then the keys below work on it."),
    ("tab", "Complete a command after /."),
    ("ctrl+c", "Copy what is marked with the mouse."),
    ("ctrl+p", "Find a command by a part of its name."),
)


_KEYS_CELLS = 22


class HelpScreen(ModalScreen[None]):
    """own: keys that config.toml sets, by name."""

    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen > VerticalScroll {
        width: 96; max-width: 100%; height: auto; max-height: 90%; border: round $primary; padding: 0 2;
        background: $surface;
    }
    HelpScreen Static { height: auto; margin: 0 0 1 0; }
    HelpScreen .title { color: $text-primary; text-style: bold; margin: 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,f1,enter", "app.pop_screen", "Back")]

    def __init__(self, own: Mapping[str, str]) -> None:
        super().__init__()
        self._own = own

    def compose(self) -> ComposeResult:
        with VerticalScroll() as scroll:
            scroll.border_title = "Keys and commands"
            scroll.border_subtitle = "Esc closes"
            everywhere = [(keys, does) for keys, does in _FIXED]
            for place, rows in (("chat", everywhere), ("message", [])):
                for key in key_table():
                    keys = self._own.get(key.id, key.keys)
                    if key.where == place and keys:
                        rows.append((keys.replace(",", ", "), help_of(key.id)))
            commands = [(row.usage, row.help) for row in COMMANDS.values() if APP in row.front_ends]
            for title, table in (
                ("Everywhere", everywhere),
                ("On a message that is selected", rows),
                ("Commands, typed as a message (// begins a message with a slash)", commands),
            ):
                yield Static(Content(title), classes="title")
                yield Static(_table(table))
            yield Static(Content("Keys can be changed in config.toml: docs/tui.md says how."))


def _table(rows: list[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(max_width=_KEYS_CELLS, style="bold")
    table.add_column(ratio=1)
    for left, right in rows:
        table.add_row(Text(left), Text(right))
    return table
