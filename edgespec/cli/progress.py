"""Progress of slow steps, on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn


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
