"""A block of code: plain while it is being written, in colours once it is complete."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from .growing_text import GrowingText
from .safe_markdown import coloured
from .steady import LaidOutOnce

_ROOM = 4  # lines by which a block grows while it is being written: the whole screen moves then


class CodeBlock(LaidOutOnce, Vertical):
    """number: how the block is called in its message, from 1.  language: as the fence names it; may be anything."""

    DEFAULT_CSS = """
    CodeBlock { height: auto; margin: 0 0 1 0; background: $boost; border-left: outer $secondary; }
    CodeBlock:ansi { background: ansi_default; }
    CodeBlock > .code-title { color: $text-muted; padding: 0 1; height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    CodeBlock > .code { padding: 0 1; height: auto; }
    """

    def __init__(self, number: int, language: str) -> None:
        super().__init__()
        self.number, self.language = number, language
        self.code = ""
        self._plain = GrowingText(room=_ROOM)
        self._plain.add_class("code")
        self._whole: Static | None = None

    def compose(self) -> ComposeResult:
        yield Static(Content(f"{self.language or 'code'}  /copy {self.number}"), classes="code-title")
        yield self._plain

    def add(self, text: str) -> None:
        """More of the code, sanitised."""
        self.code += text
        self._plain.add(text)

    async def complete(self) -> None:
        """The code is whole."""
        self._whole = Static(self._content(), classes="code")
        with self.app.batch_update():
            await self._plain.remove()
            await self.mount(self._whole)

    def notify_style_update(self) -> None:
        """A theme may use the terminal's own colours or ours."""
        super().notify_style_update()
        if self._whole is not None:
            self._whole.update(self._content())

    def _content(self) -> Content:
        return coloured(self.code.removesuffix("\n"), self.language, ansi=self.app.native_ansi_color)
