"""One message of a chat: who says it, on which branch, and its text as Markdown, literally, or token by token."""

from __future__ import annotations

from typing import ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message as TextualMessage
from textual.widget import Widget
from textual.widgets import Static

from ..history import Message, ReplyDetails
from ..stats import RoundEvent, TokenEvent
from ..text import sanitize
from .growing_text import GrowingText
from .keys import message_bindings
from .labels import ending, model_name
from .reply_body import ReplyBody
from .steady import LaidOutOnce
from .token_view import TokenView

View = Literal["markdown", "raw", "tokens"]

_LONG_LINES = 24  # of what the user said; the rest is shown on request


class MessageView(LaidOutOnce, Vertical, can_focus=True):
    """role: "user" or "assistant".  message: as the history has it, None until it is there.  text: sanitised."""

    DEFAULT_CSS = """
    MessageView { height: auto; padding: 0 1; border-left: blank; margin: 0 0 1 0; }
    MessageView:focus { border-left: thick $accent; }
    MessageView > .title { height: 1; color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis; }
    MessageView.-user > .title { color: $text-primary; text-style: bold; }
    MessageView.-assistant > .title { color: $foreground; text-style: bold; }
    MessageView > .error { height: auto; color: $text-error; }
    MessageView > TokenView { height: auto; }
    MessageView:ansi > .title { color: ansi_default; }
    MessageView:ansi MarkdownTable { background: ansi_default; }
    """
    BINDINGS: ClassVar[list[BindingType]] = message_bindings()

    class Command(TextualMessage):
        """A key was pressed on this message."""

        def __init__(self, view: MessageView, name: str) -> None:
            super().__init__()
            self.view, self.name = view, name

    def __init__(self, role: str, *, text: str = "", message: Message | None = None, model: str = "") -> None:
        super().__init__(classes=f"-{role}")
        self.role, self.message = role, message
        self.text = sanitize(message.text if message is not None else text)
        self.model = message.model if message is not None else model
        self.view: View = "markdown" if role == "assistant" else "raw"
        self.events: list[TokenEvent | RoundEvent] = []
        self._whole = False  # the user asked to see all of a long message
        self._live = message is None and role == "assistant"
        self._note = ""

    def compose(self) -> ComposeResult:
        yield Static(Content(self._title()), classes="title")

    async def on_mount(self) -> None:
        await self._show()

    @property
    def body(self) -> ReplyBody | None:
        """The Markdown, while it is shown."""
        return next(iter(self.query(ReplyBody)), None)

    def action_command(self, name: str) -> None:
        self.post_message(self.Command(self, name))

    # A running answer

    async def write(self, text: str, events: tuple[TokenEvent | RoundEvent, ...]) -> None:
        """More of it, sanitised."""
        self.text += text
        self.events += events
        if not text and self.view != "tokens":
            return
        for widget in self.children:
            if isinstance(widget, ReplyBody):
                await widget.write(text)
            elif isinstance(widget, TokenView):
                widget.append(*events)
            elif isinstance(widget, GrowingText):
                widget.add(text)

    async def finish(self) -> None:
        """The answer is whole."""
        self._live = False
        self._note = ""
        if self.body is not None:
            await self.body.finish()
        self._retitle()

    def note(self, text: str) -> None:
        """What happens now, beside the name."""
        if text != self._note:
            self._note = text
            self._retitle()

    def fail(self, text: str) -> None:
        """Why there is no answer, or no more of it."""
        self.mount(Static(Content(text), classes="error"))

    def know(self, message: Message) -> None:
        """What the history has of it by now."""
        if message != self.message:
            self.message = message
            self.model = message.model
            self._retitle()

    # Ways to look at it

    async def show_as(self, view: View, details: ReplyDetails | None = None) -> None:
        """Show it in another way. details: tokens and rounds of an old answer, for "tokens"."""
        if details is not None and not self.events:
            self.events = sorted(
                [*details.tokens, *details.rounds], key=lambda event: (event.round, isinstance(event, RoundEvent))
            )
        self.view = view
        await self._show()

    async def show_all(self) -> None:
        """All of a long message, or its beginning again."""
        self._whole = not self._whole
        await self._show()

    @property
    def shortened(self) -> bool:
        """Whether it is a long message of the user."""
        return self.role == "user" and self.text.count("\n") >= _LONG_LINES

    async def _show(self) -> None:
        with self.app.batch_update():
            for old in list(self.query("ReplyBody, GrowingText, TokenView, .more")):
                if old.parent is self:
                    await old.remove()
            await self.mount(*self._widgets(), after=0)
            if self.body is not None:
                await self.body.write(self.text)
                if not self._live:
                    await self.body.finish()

    def _widgets(self) -> list[Widget]:
        if self.view == "tokens":
            return [TokenView(self.events)]
        if self.view == "markdown":
            return [ReplyBody()]
        if not self.shortened or self._whole:
            return [GrowingText(self.text)]
        lines = self.text.split("\n")
        more = Static(Content(f"… {len(lines) - _LONG_LINES} more lines (v shows them)"), classes="more")
        return [GrowingText("\n".join(lines[:_LONG_LINES])), more]

    def _title(self) -> str:
        who = "You" if self.role == "user" else model_name(self.model) or "Answer"
        parts = [who]
        if self.message is not None and self.message.branches > 1:
            parts.append(f"‹ {self.message.branch + 1}/{self.message.branches} ›")
        if self._note:
            parts.append(self._note)
        elif self.message is not None and not self._live and (end := ending(self.message)):
            parts.append(end)
        return "  ".join(parts)

    def _retitle(self) -> None:
        if self.is_mounted:
            self.query_one(".title", Static).update(Content(self._title()), layout=False)
