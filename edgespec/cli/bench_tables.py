"""What `edgespec bench` measured, as tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..text import sanitize

_ENOUGH = 20  # prompts, for an interval that says something
_WIDTH = 160  # columns where stdout is no terminal


def print_tables(result: dict[str, Any]) -> None:
    """What was measured, on standard output."""
    console = _console()
    head = _head(result)
    curve = ", ".join(f"{rows}: {ms:.1f}" for rows, ms in result["cost_table"].items())
    step = "" if result["draft_step_ms"] is None else f"; one step of the draft: {result['draft_step_ms']:.1f} ms"
    tables = [_modes(result["workloads"])]
    if result["auto_over_fixed"]:
        tables.append(_fixed(result["auto_over_fixed"]))
    if result["peers"]:
        tables.append(_peers(result["peers"]))
    with console.capture() as capture:
        console.print(Text(sanitize(head)), soft_wrap=True)
        console.print(f"milliseconds of a decode by its rows: {curve}{step}", soft_wrap=True)
        for table in tables:
            console.print()
            console.print(table)
        if any(row["prompts"] < _ENOUGH for row in result["workloads"]):
            console.print(f"\nIntervals of fewer than {_ENOUGH} prompts are rough; raise --prompts.", soft_wrap=True)
        if not result["complete"]:
            console.print("\nNot complete: these are the prompts that were finished before it stopped.", soft_wrap=True)
    _print(capture.get())


def print_throughput(result: dict[str, Any]) -> None:
    """What was measured of several requests at once, on standard output."""
    console = _console()
    count = result["parallel"]
    numbers = ("groups", "ratio", "95% interval", "tokens/s", "theirs", "tokens/step", "accepted")
    table = _table(("workload", "peer", "our mode"), numbers)
    for row in result["throughput"]:
        table.add_row(
            Text(row["workload"]),
            Text(row["against"]),
            row["mode"],
            str(row["groups"]),
            _number(row["ratio"], "x"),
            _interval(row["ci"]),
            _number(row["tokens_per_s"], digits=1),
            _number(row["their_tokens_per_s"], digits=1),
            _number(row["tau"]),
            "" if row["acceptance"] is None else f"{row['acceptance']:.0%}",
        )
    with console.capture() as capture:
        console.print(Text(sanitize(f"{_head(result)}; {count} at once, greedy")), soft_wrap=True)
        console.print()
        console.print(table)
        if any(row["groups"] < _ENOUGH for row in result["throughput"]):
            console.print(f"\nIntervals of fewer than {_ENOUGH} groups are rough; raise --prompts.", soft_wrap=True)
        if not result["complete"]:
            console.print("\nNot complete: these are the groups that were finished before it stopped.", soft_wrap=True)
    _print(capture.get())


def _console() -> Console:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDTH
    return console


def _print(text: str) -> None:
    click.echo("\n".join(line.rstrip() for line in text.splitlines()))


def _head(result: dict[str, Any]) -> str:
    settings = result["settings"]
    draft = f" with {result['draft']}" if result["draft"] else ""
    return (
        f"{result['model']}{draft}: {result['regime']} regime (buffers {settings['buffers']}), "
        f"threads {settings['threads']}, flash attention {settings['flash_attn']}, "
        f"{settings['max_tokens']} tokens per run, seed {settings['seed']}"
    )


def _table(words: Sequence[str], numbers: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in words:
        table.add_column(column, no_wrap=column != "peer", overflow="fold")  # a peer's options may be long
    for column in numbers:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _modes(rows: list[dict[str, Any]]) -> Table:
    counts = ("by counts", "tokens/step", "accepted")
    times = ("plain tok/s", "ms/round", "predicted")
    table = _table(("workload", "mode"), ("prompts", "speed-up", "95% interval", *counts, *times))
    for row in rows:
        table.add_row(
            Text(row["name"]),
            row["mode"],
            str(row["prompts"]),
            _number(row["speedup"], "x"),
            _interval(row["ci"]),
            _number(row["calibrated_speedup"], "x"),
            _number(row["tau"]),
            "" if row["acceptance"] is None else f"{row['acceptance']:.0%}",
            _number(row["plain_tokens_per_s"], digits=1),
            _number(row["measured_ms"], digits=1),
            _number(row["predicted_ms"], digits=1),
        )
    return table


def _fixed(rows: list[dict[str, Any]]) -> Table:
    table = _table(("workload", "best fixed mode"), ("prompts", "auto over it", "95% interval"))
    for row in rows:
        table.add_row(
            Text(row["workload"]),
            row["mode"],
            str(row["prompts"]),
            _number(row["speedup_over_it"], "x"),
            _interval(row["ci"]),
        )
    return table


def _peers(rows: list[dict[str, Any]]) -> Table:
    table = _table(("workload", "peer", "our mode"), ("speed-up over it", "95% interval", "its tok/s"))
    for row in rows:
        table.add_row(
            Text(row["workload"]),
            Text(row["name"]),
            row["mode"],
            _number(row["speedup_over_peer"], "x"),
            _interval(row["ci"]),
            _number(row["peer_tokens_per_s"], digits=1),
        )
    return table


def _number(value: float | None, unit: str = "", digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}{unit}"


def _interval(ci: Sequence[float] | None) -> str:
    return "" if ci is None else f"{ci[0]:.2f} to {ci[1]:.2f}"
