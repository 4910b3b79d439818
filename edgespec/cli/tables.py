"""Tables of foreign text on standard output: sanitised, never cut, and not padded where nobody sees columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..text import sanitize

PLAIN_WIDTH = 500  # columns where stdout is not a terminal: nothing is cut or folded for a reader that has no columns


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """Print rows under their column names; columns in `right` are aligned right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold", justify="right" if column in right else "left")
    for row in rows:
        table.add_row(*(Text(clean(cell)) for cell in row))
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    with console.capture() as capture:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def clean(text: str) -> str:
    """Text on one line, without anything that a terminal would act on."""
    return sanitize(" ".join(text.split()))


def human_bytes(nbytes: int) -> str:
    """Such as "98.4 MB"."""
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if nbytes >= size:
            return f"{nbytes / size:.{2 if unit == 'GB' else 1}f} {unit}"
    return f"{nbytes / 1e3:.1f} kB"
