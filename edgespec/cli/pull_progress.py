"""How far `edgespec pull` is: bars on a terminal, else a line for each stage, or JSON lines on standard output."""

from __future__ import annotations

import json
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from ..text import sanitize

_STAGES = {"wait": "waiting for another process:", "check": "checking", "download": "downloading"}
_BETWEEN_S = 0.5  # between two JSON lines of one stage


def progress_json(name: str, stage: str, done: int, total: int) -> dict[str, str | int]:
    """What --json prints while it works."""
    return {"type": "progress", "name": name, "stage": stage, "done": done, "total": total}


class Report(ABC):
    """Where the progress of several downloads is shown."""

    def progress(self, name: str) -> Callable[[str, int, int], None]:
        """For models.pulling.fetch: shows one model's."""
        return lambda stage, done, total: self.show(name, stage, done, total)

    @abstractmethod
    def show(self, name: str, stage: str, done: int, total: int) -> None: ...

    @abstractmethod
    def note(self, line: str) -> None:
        """One line for the user."""

    def done(self, name: str) -> None:  # noqa: B027  # most have nothing to end
        """The model is here."""


class _Silent(Report):
    def show(self, name: str, stage: str, done: int, total: int) -> None: ...

    def note(self, line: str) -> None: ...


class _Lines(Report):
    """One line a stage."""

    def __init__(self) -> None:
        self._shown: set[tuple[str, str]] = set()

    def show(self, name: str, stage: str, done: int, total: int) -> None:
        if (name, stage) not in self._shown:
            self._shown.add((name, stage))
            self.note(f"{_STAGES.get(stage, stage)} {name} ({total / 1e6:,.0f} MB)")

    def note(self, line: str) -> None:
        click.echo(sanitize(line), err=True)


class _Json(_Lines):
    """Notes go to standard error, as everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self._last: tuple[str, str] | None = None
        self._at = 0.0

    def show(self, name: str, stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        if (name, stage) == self._last and done < total and now - self._at < _BETWEEN_S:
            return
        self._last, self._at = (name, stage), now
        click.echo(json.dumps(progress_json(name, stage, done, total)))


class _Bars(Report):
    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def show(self, name: str, stage: str, done: int, total: int) -> None:
        text = f"{_STAGES.get(stage, stage)} {sanitize(name)}"
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(text, total=total)
        self._bars.update(self._tasks[name], description=text, completed=done, total=total)

    def note(self, line: str) -> None:
        self._bars.console.print(sanitize(line), markup=False, highlight=False, soft_wrap=True)

    def done(self, name: str) -> None:
        if name in self._tasks:
            self._bars.remove_task(self._tasks.pop(name))


@contextmanager
def reporter(*, as_json: bool, quiet: bool) -> Iterator[Report]:
    """What suits these options and this standard error."""
    if as_json:
        yield _Json()
    elif quiet:
        yield _Silent()
    elif not sys.stderr.isatty():
        yield _Lines()
    else:
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}", markup=False), BarColumn(30), DownloadColumn())
        speed = (TransferSpeedColumn(), TimeRemainingColumn())
        with Progress(*columns, *speed, console=console, transient=True) as bars:
            yield _Bars(bars)
