"""The looks of sources as styles: the terminal's own colours in an ANSI theme, else ones for a dark or a light one."""

from __future__ import annotations

from rich.color import Color
from rich.style import Style
from textual.app import App

from .sources import REJECTED, SourceStyle, look

_SGR_FOREGROUND = 30  # SGR 30 is the first of the terminal's eight colours, 39 the one of plain text
_SGR_DEFAULT = 39


def style_of(source: str, app: App[object]) -> Style:
    """How text of a source looks under the theme of `app`."""
    return _style(look(source), app)


def rejected_style(app: App[object]) -> Style:
    """How a rejected guess looks."""
    return _style(REJECTED, app)


def _style(row: SourceStyle, app: App[object]) -> Style:
    if app.native_ansi_color:
        number = int(row.ansi)
        return Style() if number == _SGR_DEFAULT else Style(color=Color.from_ansi(number - _SGR_FOREGROUND))
    return Style(color=Color.parse(row.dark if app.current_theme.dark else row.light))
