"""The parts of the chat's screen, and what is said beside the messages."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.events import Resize
from textual.screen import Screen
from textual.widgets import Footer, Static

from ..chat_session import ChatSession
from ..history import Message
from .attachments import Attachment
from .completion import matches
from .composer import Composer
from .labels import line, model_name
from .message_view import MessageView
from .meter import Meter
from .sidebar import Sidebar
from .speculation_panel import SpeculationPanel
from .token_inspector import TokenInspector
from .transcript import Transcript

_NARROW = 64  # columns below which only one thing is shown at a time
_BOTH = 128  # columns from which on the list and the panel have room beside the chat
_SUGGESTED = 6  # commands that are shown while one is typed


class ChatLayout(Screen[None]):
    """editing: the message that the next one takes the place of.  attached: files that go with the next message."""

    CSS_PATH = "chat.tcss"

    def __init__(self, session: ChatSession, attached: tuple[Attachment, ...]) -> None:
        super().__init__()
        self.session = session
        self.attached = attached
        self.editing: Message | None = None
        self._queue: list[str] = []

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        with Horizontal(id="middle"):
            yield Sidebar(self.session)
            with Vertical(id="chat"):
                yield Transcript()
                yield TokenInspector()
                yield Static(id="banner")
                yield Static(id="above")
                yield Composer()
                yield Meter()
            yield SpeculationPanel()
        yield Footer(show_command_palette=False, compact=True)

    @property
    def transcript(self) -> Transcript:
        return self.query_one(Transcript)

    @property
    def composer(self) -> Composer:
        return self.query_one(Composer)

    @property
    def sidebar(self) -> Sidebar:
        return self.query_one(Sidebar)

    @property
    def panel(self) -> SpeculationPanel:
        return self.query_one(SpeculationPanel)

    @property
    def inspector(self) -> TokenInspector:
        return self.query_one(TokenInspector)

    @property
    def meter(self) -> Meter:
        return self.query_one(Meter)

    @property
    def selected(self) -> MessageView | None:
        """The message that keys are for, if one has the focus."""
        focused = self.focused
        while focused is not None and not isinstance(focused, MessageView):
            focused = focused.parent if isinstance(focused.parent, (MessageView, Vertical)) else None
        return focused

    @property
    def answer_view(self) -> MessageView | None:
        """The answer that is selected, or the last one."""
        if self.selected is not None and self.selected.role == "assistant":
            return self.selected
        return next((view for view in reversed(self.transcript.views) if view.role == "assistant"), None)

    # What is said beside the chat

    def say(self, text: str, *, wrong: bool = False) -> None:
        """A line that goes away by itself."""
        self.notify(line(text, 400), severity="error" if wrong else "information", markup=False)

    def warn(self, text: str) -> None:
        """A line above the message being written that stays; nothing for an empty text."""
        banner = self.query_one("#banner", Static)
        banner.update(Content(line(text, 600)))
        banner.display = bool(text)

    def above(self) -> None:
        """What the next message comes with, and what waits to be sent."""
        parts = ["editing an earlier message: Enter sends it on a new branch, Esc leaves it" if self.editing else ""]
        parts += [f"attached: {one.label}" for one in self.attached]
        parts += [f"next: {line(text, 60)}" for text in self._queue]
        parts += [f"{row.usage}  {row.help}" for row in matches(self.composer.text)[:_SUGGESTED]]
        shown = "\n".join(part for part in parts if part)
        above = self.query_one("#above", Static)
        above.update(Content(shown))
        above.display = bool(shown)

    def head(self) -> None:
        """Which model answers, and in which conversation."""
        session = self.session
        self.app.shows(session)  # type: ignore[attr-defined]  # ChatApp has it
        loaded, conversation = session.loaded, session.conversation
        model = model_name(loaded.name if loaded else session.spec.model or "starter model", 40)
        draft = f" + {model_name(loaded.draft, 30)}" if loaded and loaded.draft else ""
        where = f"  at {line(session.server, 60)}" if session.server else ""
        kept = "" if session.saved else "  not saved"
        title = line(conversation.label, 80) if conversation else "new chat"
        parts: list[str | tuple[str, str]] = [
            ("EdgeSpec  ", "bold"),
            (f"{model}{draft}", "$text-accent"),
            f"{where}  {title}",
            (kept, "$text-warning"),
        ]
        self.query_one("#head", Static).update(Content.assemble(*parts), layout=False)

    def beside(self, shown: Sidebar | SpeculationPanel) -> None:
        """Show the list or the panel; where there is no room for both, the other one goes."""
        shown.display = True
        if self.app.size.width < _BOTH:
            other = self.panel if shown is self.sidebar else self.sidebar
            other.display = False

    def make_room(self) -> None:
        """On a narrow screen, what lies beside the chat covers it."""
        if self.has_class("-narrow"):
            self.sidebar.display = self.panel.display = False

    def on_resize(self, event: Resize) -> None:
        self.set_class(event.size.width < _NARROW, "-narrow")
        if not self.sidebar.has_focus_within and not self.panel.has_focus_within:
            self.make_room()
