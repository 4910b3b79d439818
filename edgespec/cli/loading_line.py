"""The state of loading, on one line of a terminal that rewrites itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..text import sanitize

if TYPE_CHECKING:
    from ..engine.protocol import Loading


class LoadingLine:
    """On standard error; show=False: nothing is written."""

    def __init__(self, *, show: bool) -> None:
        self._show = show
        self._shown = False

    def show(self, event: Loading) -> None:
        if self._show:
            self._shown = True
            done = "" if event.fraction is None else f" {event.fraction:.0%}"
            click.echo(f"\r\x1b[2K{sanitize(event.line)}{done}", nl=False, err=True)

    def end(self) -> None:
        if self._shown:
            click.echo("\r\x1b[2K", nl=False, err=True)
            self._shown = False
