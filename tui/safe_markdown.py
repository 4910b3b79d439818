"""Markdown from a model: links are text with their address beside it, nothing can be clicked, nothing is fetched."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from pygments.token import Token as Syntax
from textual.content import Content
from textual.highlight import HighlightTheme, highlight
from textual.widgets import Markdown
from textual.widgets._markdown import MarkdownParagraph  # the public module does not name it
from textual.widgets.markdown import MarkdownFence

from .steady import LaidOutOnce, SteadyStatic

_HIGHLIGHTED = 60_000  # characters; more is shown without colours
_MOST_NESTED = 20  # lists and quotes inside each other; more is drawn flat


class _AnsiHighlight(HighlightTheme):
    """Syntax in the terminal's own colours."""

    STYLES = {  # noqa: RUF012  # as the base class has it
        Syntax.Comment: "dim italic",
        Syntax.Keyword: "bold ansi_magenta",
        Syntax.Name.Function: "ansi_blue",
        Syntax.Name.Class: "ansi_blue bold",
        Syntax.Name.Builtin: "ansi_cyan",
        Syntax.Literal.Number: "ansi_yellow",
        Syntax.Literal.String: "ansi_green",
    }


def coloured(code: str, language: str, *, ansi: bool) -> Content:
    """Code with its syntax in colours; plain where the language is not known or there is too much of it."""
    if len(code) > _HIGHLIGHTED or not language:
        return Content(code)
    return highlight(code, language=language, theme=_AnsiHighlight if ansi else HighlightTheme)


@functools.cache
def parser() -> MarkdownIt:
    """CommonMark with tables and strikethrough; no HTML, and links and images as text."""
    markdown = MarkdownIt("commonmark", {"html": False, "maxNesting": _MOST_NESTED})
    markdown.enable(["table", "strikethrough"])
    markdown.core.ruler.push("links_as_text", _links_as_text)
    return markdown


def _links_as_text(state: StateCore) -> None:
    for token in state.tokens:
        if token.children:
            token.children = list(_plain(token.children))


def _plain(children: Iterable[Token]) -> Iterable[Token]:
    targets: list[tuple[str, int]] = []
    shown = ""
    for child in children:
        if child.type == "link_open":
            targets.append((str(child.attrs.get("href", "")), len(shown)))
        elif child.type == "link_close":
            target, start = targets.pop()
            if target not in (shown[start:], f"mailto:{shown[start:]}"):  # an address that is not its own text
                yield _text(f" ({target})")
        elif child.type == "image":
            yield _text(f"[image: {child.content}] ({child.attrs.get('src', '')})")
        else:
            shown += child.content
            yield child


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


class _Fence(MarkdownFence):
    """Code inside a list or a quote."""

    @classmethod
    def highlight(cls, code: str, language: str, ansi: bool = False, dark: bool = False) -> Content:
        return coloured(code, language.strip().split(" ")[0], ansi=ansi)


class _Paragraph(MarkdownParagraph, SteadyStatic):
    """Grows word by word. Styles come from the first of the bases."""


class SafeMarkdown(LaidOutOnce, Markdown):
    """A Markdown widget for text that nobody vouches for. The text must be sanitised."""

    BLOCKS = {  # noqa: RUF012
        **Markdown.BLOCKS,
        "fence": _Fence,
        "code_block": _Fence,
        "paragraph_open": _Paragraph,
    }

    def __init__(self, markdown: str = "") -> None:
        super().__init__(markdown, parser_factory=parser, open_links=False)
