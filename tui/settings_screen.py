"""The system prompt and the parameters of one conversation, in a form that takes only what a request may have."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Label, Static, TextArea

from ..chat_session import ChatSession
from ..chat_settings import SETTINGS, parse_setting
from ..errors import EdgeSpecError
from ..sampling import SamplingParams
from ..text import sanitize
from .labels import line

_DEFAULTS = SamplingParams()


class SettingsScreen(ModalScreen[None]):
    """system: begin at the system prompt."""

    DEFAULT_CSS = """
    SettingsScreen { align: center middle; }
    SettingsScreen > VerticalScroll {
        width: 90; max-width: 100%; height: auto; max-height: 95%; border: round $primary; padding: 0 1;
        background: $surface;
    }
    SettingsScreen TextArea { height: 4; border: none; padding: 0 1; margin: 0 0 1 0; background: $boost; }
    SettingsScreen Horizontal { height: 1; }
    SettingsScreen Label { width: 19; }
    SettingsScreen Input { width: 16; border: none; height: 1; }
    SettingsScreen .help { width: 1fr; height: 1; padding: 0 0 0 1; color: $text-muted; text-wrap: nowrap;
        text-overflow: ellipsis; }
    SettingsScreen .wrong { color: $text-error; height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Leave as it was", show=False),
        Binding("ctrl+s", "save", "Save", priority=True),
        Binding("up", "app.focus_previous", show=False),
        Binding("down", "app.focus_next", show=False),
    ]

    def __init__(self, session: ChatSession, *, system: bool = False) -> None:
        super().__init__()
        self._session, self._begin_at_system = session, system

    def compose(self) -> ComposeResult:
        with VerticalScroll() as scroll:
            scroll.border_title = "Settings of this conversation"
            scroll.border_subtitle = "Enter or Ctrl+S saves, Esc leaves"
            yield Label("System prompt")
            yield TextArea(self._session.system, id="system", tab_behavior="focus", highlight_cursor_line=False)
            own, options = self._session.params, self._session.options
            for name, row in SETTINGS.items():
                value = own.get(name)
                usual = options.get(name) if name not in own else None
                usual = getattr(_DEFAULTS, name, None) if usual is None else usual
                with Horizontal():
                    yield Label(name.replace("_", " "))
                    shown = "" if value is None else sanitize(str(value))
                    hint = "default" if usual is None else f"default {usual}"
                    yield Input(shown, placeholder=line(hint, 24), id=name, compact=True, select_on_focus=False)
                    yield Static(Content(row.help), classes="help")
            yield Static(Content(""), classes="wrong")

    def on_mount(self) -> None:
        self.query_one("#system" if self._begin_at_system else "#temperature").focus()

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self._check(event.input)

    @on(Input.Submitted)
    def _entered(self) -> None:
        self.action_save()

    def action_save(self) -> None:
        """Take all of it, or say what is wrong and take nothing."""
        fields = list(self.query(Input))
        wrong = next((field for field in fields if not self._check(field)), None)
        if wrong is not None:
            self._check(wrong)
            wrong.focus()
            return
        try:
            for field in fields:
                assert field.id is not None
                before = self._session.params.get(field.id)
                if field.value != ("" if before is None else str(before)):
                    self._session.set(field.id, field.value)
            system = self.query_one("#system", TextArea).text.strip()
            if system != self._session.system:
                self._session.system = system
        except EdgeSpecError as error:
            self._say(str(error))
            return
        self.dismiss()

    def action_leave(self) -> None:
        self.dismiss()

    def _check(self, field: Input) -> bool:
        """Whether the value is one that a request may have; says why not."""
        assert field.id is not None
        try:
            parse_setting(field.id, field.value)
        except EdgeSpecError as error:
            self._say(str(error))
            return False
        self._say("")
        return True

    def _say(self, text: str) -> None:
        self.query_one(".wrong", Static).update(Content(line(text)))
