"""Progress of slow steps, on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ..text import sanitize


@contextmanager
def loading(*, show: bool) -> Iterator[Callable[[str, float], None] | None]:
    """A bar per model file while it loads; nothing where standard error is no terminal."""
    if not show:
        yield None
        return
    columns = (TextColumn("loading {task.description}"), BarColumn(30), TextColumn("{task.percentage:>3.0f}%"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, int] = {}

        def report(name: str, fraction: float) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=1.0)
            bars.update(bars.task_ids[list(tasks).index(name)], completed=fraction)

        yield report


class Steps:
    """Steps of a long job: a line for each, and on a terminal one that rewrites itself, with a bar. None if not shown.

    It redraws only when told something: a thread of its own would disturb what is being timed.
    """

    def __init__(self, *, show: bool) -> None:
        self._console = Console(stderr=True, highlight=False, quiet=not show)
        columns = (TextColumn("{task.description}", markup=False), BarColumn(20), TimeElapsedColumn())
        self._bars = Progress(
            *columns, console=self._console, transient=True, auto_refresh=False, disable=not self._console.is_terminal
        )
        self._task = self._bars.add_task("", total=1.0, visible=False)

    def step(self, text: str) -> None:
        """Something that takes a while begins."""
        self._bars.reset(self._task, description=sanitize(text), visible=True)
        self._bars.refresh()
        if not self._console.is_terminal:
            self.note(text)

    def part(self, fraction: float) -> None:
        """How much of it is done, 0.0 to 1.0."""
        self._bars.update(self._task, completed=fraction, refresh=True)

    def note(self, line: str) -> None:
        """One line that should be seen."""
        self._console.print(sanitize(line), markup=False, soft_wrap=True)

    def end(self) -> None:
        """Take the bar away."""
        self._bars.stop()

    def __enter__(self) -> Steps:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
