"""The messages of the branch in use, the latest at the bottom; older ones are put on the screen when asked for."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from ..history import Message
from .message_view import MessageView
from .steady import LaidOutOnce

_AT_ONCE = 24  # messages: a screen is made of widgets, and a chat may have thousands of turns


class Transcript(LaidOutOnce, VerticalScroll, can_focus=False):
    """Follows the newest text until the user scrolls up, and again once they are back at the end."""

    DEFAULT_CSS = """
    Transcript { height: 1fr; scrollbar-gutter: stable; padding: 0 1; }
    Transcript > .hint { height: auto; color: $text-muted; margin: 1 1 1 1; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._path: tuple[Message, ...] = ()
        self._first = 0  # place in the path of the first message on the screen

    def compose(self) -> ComposeResult:
        yield Static(Content(""), classes="hint")

    def on_mount(self) -> None:
        self.anchor()

    @property
    def views(self) -> list[MessageView]:
        """The messages on the screen, the oldest first."""
        return [child for child in self.children if isinstance(child, MessageView)]

    def hint(self, text: str) -> None:
        """What stands above the messages; nothing for an empty text."""
        hint = self.query_one(".hint", Static)
        hint.update(Content(text))
        hint.display = bool(text)

    async def show(self, path: Sequence[Message], *, empty: str) -> None:
        """Bring the screen to this branch; messages that are on it already stay as they are. empty: shown if none."""
        self._path = tuple(path)
        views = self.views
        if not views or views[0].message is None or views[0].message.id not in {m.id for m in path}:
            self._first = max(0, len(path) - _AT_ONCE)
        wanted = path[self._first :]
        same = 0
        for view, message in zip(views, wanted, strict=False):
            if view.message is None or view.message.id != message.id:
                break
            view.know(message)
            same += 1
        with self.app.batch_update():
            for view in views[same:]:
                await view.remove()
            await self.mount_all([MessageView(message.role, message=message) for message in wanted[same:]])
        self._say(empty)

    async def earlier(self) -> bool:
        """Put older messages on the screen; False where there are none."""
        if not self._first:
            return False
        first = max(0, self._first - _AT_ONCE)
        older = [MessageView(message.role, message=message) for message in self._path[first : self._first]]
        before = self.virtual_size.height - self.scroll_y
        await self.mount_all(older, after=0)
        self._first = first
        self._say("")
        self.call_after_refresh(lambda: self.scroll_to(y=self.virtual_size.height - before, animate=False))
        return True

    async def cut(self, message: Message | None) -> None:
        """Take a message and all after it off the screen; None: nothing."""
        views = self.views
        place = next((i for i, v in enumerate(views) if message and v.message and v.message.id == message.id), None)
        for view in views[place:] if place is not None else ():
            await view.remove()

    async def add(self, view: MessageView) -> MessageView:
        """One more message at the end."""
        self.hint("")
        await self.mount(view)
        self.anchor()
        return view

    async def page(self, by: int) -> None:
        """Scroll by screens; at the top, older messages come."""
        if by < 0 and self.scroll_y <= 0 and await self.earlier():
            return
        self.scroll_relative(y=by * max(1, self.size.height - 2), animate=False)

    def _say(self, empty: str) -> None:
        if self._first:
            self.hint(f"{self._first} earlier messages; Page Up at the top shows them")
        else:
            self.hint("" if self._path else empty)
