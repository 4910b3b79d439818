"""The text of a reply as it grows: prose as Markdown, code in blocks, both only ever added to at the end."""

from __future__ import annotations

from textual.containers import Vertical
from textual.widgets.markdown import MarkdownStream

from .code_block import CodeBlock
from .fences import Change, FenceSplitter
from .safe_markdown import SafeMarkdown
from .steady import LaidOutOnce


class ReplyBody(LaidOutOnce, Vertical):
    """Sanitised Markdown. `write` adds text, `finish` ends it; both wait until it is on the screen."""

    DEFAULT_CSS = """
    ReplyBody { height: auto; }
    ReplyBody SafeMarkdown { padding: 0; }
    ReplyBody MarkdownHeader { margin: 1 0 1 0; }
    ReplyBody MarkdownBlockQuote { margin: 0 0 1 0; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._splitter = FenceSplitter()
        self._prose: SafeMarkdown | None = None
        self._stream: MarkdownStream | None = None
        self._code: CodeBlock | None = None
        self.blocks: list[CodeBlock] = []

    async def write(self, text: str) -> None:
        """More text."""
        for change in self._splitter.push(text):
            await self._apply(change)

    async def finish(self) -> None:
        """The text is whole."""
        for change in self._splitter.finish():
            await self._apply(change)
        await self._end_prose()

    async def _apply(self, change: Change) -> None:
        if change.kind == "prose":
            await self._write_prose(change.text)
        elif change.kind == "code" and self._code is not None:
            self._code.add(change.text)
        elif change.kind == "close" and self._code is not None:
            await self._code.complete()
            self._code = None
        elif change.kind == "open":
            await self._end_prose()
            self._code = CodeBlock(len(self.blocks) + 1, change.text)
            self.blocks.append(self._code)
            await self.mount(self._code)
        elif change.kind == "cut":
            await self._end_prose()

    async def _write_prose(self, text: str) -> None:
        if self._stream is None:
            if not text.strip():
                return
            text = text.lstrip("\n")
            self._prose = SafeMarkdown()
            await self.mount(self._prose)
            self._stream = SafeMarkdown.get_stream(self._prose)
        await self._stream.write(text)

    async def _end_prose(self) -> None:
        if self._stream is not None:
            await self._stream.stop()
            self._stream = self._prose = None
