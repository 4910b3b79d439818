"""Where a message is typed: grows with its text, sends with Enter, and takes a paste as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, cast

from textual import events
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual.binding import BindingType
from textual.keys import Keys
from textual.message import Message
from textual.widgets import TextArea

_NEWLINES = ("ctrl+j", "alt+enter", "shift+enter")
_PAGES = {"pageup": -1, "pagedown": 1}
_MOST_KEPT = 200  # messages that the up arrow brings back

# Terminals without the newer keyboard protocol send Alt+Enter as these two, which Textual takes for Escape and Enter.
cast(dict[str, Any], ANSI_SEQUENCES_KEYS)["\x1b\r"] = (Keys.ControlJ,)


class Composer(TextArea):
    """Enter sends; Ctrl+J, Alt+Enter and Shift+Enter begin a new line; up and down at the edges bring back messages."""

    DEFAULT_CSS = """
    Composer { height: auto; min-height: 3; max-height: 12; border: round $primary; padding: 0 1; }
    Composer:focus { border: round $accent; }
    """

    BINDINGS: ClassVar[list[BindingType]] = []

    @dataclass
    class Submitted(Message):
        """A text was sent."""

        text: str

    @dataclass
    class Completing(Message):
        """Tab was pressed on a slash command."""

        text: str

    @dataclass
    class Paged(Message):
        """The messages above shall scroll. by: screens."""

        by: int

    def __init__(self) -> None:
        super().__init__(
            soft_wrap=True, tab_behavior="focus", highlight_cursor_line=False, placeholder="Message, or / for commands"
        )
        self.cursor_blink = False  # nothing moves by itself, and each blink would draw the screen
        self.sent: list[str] = []
        self._place: int | None = None  # in `sent`, while the up arrow is in use
        self._draft = ""

    def remember(self, text: str) -> None:
        """A message that the up arrow shall bring back."""
        if text.strip() and self.sent[-1:] != [text]:
            self.sent = [*self.sent, text][-_MOST_KEPT:]
        self._place = None

    def put(self, text: str) -> None:
        """Show `text` for editing."""
        self.text = text
        self.move_cursor(self.document.end)

    async def _on_key(self, event: events.Key) -> None:
        if self._took(event.key):
            event.stop()
            event.prevent_default()
        else:
            await super()._on_key(event)

    def _took(self, key: str) -> bool:
        """Whether a key means something of ours here."""
        if key == "enter":
            self.post_message(self.Submitted(self.text))
        elif key in _NEWLINES:
            self.insert("\n")
        elif key == "tab" and self.text.startswith("/") and "\n" not in self.text:
            self.post_message(self.Completing(self.text))
        elif key in _PAGES:
            self.post_message(self.Paged(_PAGES[key]))
        elif key == "up":
            return self.cursor_at_first_line and self._back()
        elif key == "down":
            return self.cursor_at_last_line and self._forward()
        else:
            return False
        return True

    def _back(self) -> bool:
        """To the message before; False where there is none."""
        place = len(self.sent) if self._place is None else self._place
        if place == 0:
            return False
        if self._place is None:
            self._draft = self.text
        self._place = place - 1
        self.put(self.sent[self._place])
        self.move_cursor((0, len(self.document[0])))
        return True

    def _forward(self) -> bool:
        """To the message after, at last to what was being typed."""
        if self._place is None:
            return False
        self._place += 1
        if self._place == len(self.sent):
            self._place = None
            self.put(self._draft)
        else:
            self.put(self.sent[self._place])
        return True
