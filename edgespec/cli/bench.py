"""`edgespec bench`: does speculation pay here, on this model, and by how much?"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import BadRequestError
from .options import SETTINGS, load_model, model_options

if TYPE_CHECKING:
    from ..api import LLM
    from ..bench.peers import Peer

_ENOUGH = 20  # prompts, for an interval that says something
_WIDTH = 160  # columns where stdout is no terminal


@click.command("bench", context_settings=SETTINGS)
@model_options
@click.option(
    "--workload",
    "workloads",
    multiple=True,
    default=("all",),
    metavar="NAME|FILE.jsonl",
    help="code, chat, rag, edit, prose, all (default), or a file of prompts. Repeatable.",
)
@click.option("--mode", "modes", multiple=True, metavar="auto|plain|SOURCE:K", help="What to measure. Repeatable.")
@click.option("--sweep", is_flag=True, help="Every source at K = 1, 2, 3, 5, 7, 11 and 15.")
@click.option("--prompts", type=int, default=6, show_default=True, metavar="N", help="Prompts per workload; 0: all.")
@click.option("-n", "--max-tokens", type=int, default=128, show_default=True, metavar="N", help="Tokens per run.")
@click.option("--temperature", type=float, help="Default: 0, and 1 for prose.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Of sampling and of the intervals.")
@click.option("--raw", is_flag=True, help="Complete the texts instead of answering them (no chat template).")
@click.option(
    "--peer",
    "peers",
    multiple=True,
    metavar="NAME",
    help="Another program on the same file: llama-cpp-python or llama-server=PATH. Repeatable.",
)
@click.option("--plot", metavar="FILE", help="Draw costs and speed-ups as .png or .svg; needs matplotlib.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("-q", "--quiet", is_flag=True, help="No progress and no notes on standard error.")
def bench(**options: Any) -> None:
    """Measure decode speed against plain decoding, here and now.

    Every prompt is run plain, in the mode, in the mode, plain (A B B A) on one loaded model, after the prompt has
    been read. Reported are medians of paired ratios with 95% intervals, and counts that need no clock.
    """
    from ..bench.modes import chosen_modes
    from ..bench.peers import parse_peer
    from ..bench.plot import check_plot, draw
    from ..bench.prompts import load_workloads
    from ..bench.report import to_json
    from ..bench.runner import Settings, run_bench, run_count

    has_draft = options["draft"] not in ("none", "auto")
    settings = _settings(options, Settings)
    starts = [parse_peer(text) for text in dict.fromkeys(options["peers"])]
    if starts and options["buffers"] != "auto":
        raise BadRequestError("peers choose weight buffers themselves; compare with them at --buffers auto")
    chosen_modes(options["modes"], sweep=False, sources=(), has_draft=has_draft)
    workloads = load_workloads(options["workloads"], _limit(options["prompts"]))
    picture = None if options["plot"] is None else Path(options["plot"])
    if picture is not None:
        check_plot(picture)
    with ExitStack() as stack:
        llm = stack.enter_context(_load(options))
        modes = chosen_modes(
            options["modes"], sweep=options["sweep"], sources=llm.sources, has_draft=llm.draft is not None
        )
        peers: list[Peer] = []
        for start in starts:
            peers.append(start(llm))
            stack.callback(peers[-1].close)
        total = run_count(workloads, len(modes), len(peers))
        with _progress(total, [w.name for w in workloads], quiet=options["quiet"]) as progress:
            outcome = run_bench(llm, workloads, modes, settings, peers, progress)
        result = to_json(llm, outcome, settings)
    if picture is not None:
        draw(result, picture)
    if options["as_json"]:
        click.echo(json.dumps(result, ensure_ascii=False))
    else:
        _print(result)


def _settings(options: dict[str, Any], kind: Any) -> Any:
    """Checked as a request would be, before a model is loaded."""
    from ..options import check_options

    same = ("max_tokens", "temperature", "seed", "raw")
    given = {name: options[name] for name in same}
    checked = {name: given[name] for name in ("max_tokens", "seed")}
    check_options(**checked, **({} if given["temperature"] is None else {"temperature": given["temperature"]}))
    return kind(**given)


def _limit(prompts: int) -> int | None:
    if prompts < 0:
        raise BadRequestError(f"prompts is {prompts}; it must be a whole number, 0 for all")
    return prompts or None


def _load(options: dict[str, Any]) -> LLM:
    # One conversation at a time: what others left in the cache would slow both sides of a ratio.
    return load_model(options, parallel=1)


@contextmanager
def _progress(total: int, names: Sequence[str], *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """A bar on a terminal, else a line when a workload begins; on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    if quiet:
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(30), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    seen: set[str] = set()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("measuring costs", total=total)

        def report(name: str) -> None:
            if not console.is_terminal and name not in seen:
                click.echo(f"workload {len(seen) + 1} of {len(names)}: {name}", err=True)
            seen.add(name)
            bar.update(task, description=name, advance=1)

        yield report


def _print(result: dict[str, Any]) -> None:
    """The tables for people."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ..text import sanitize

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDTH
    settings = result["settings"]
    draft = f" with {result['draft']}" if result["draft"] else ""
    head = (
        f"{result['model']}{draft}: {result['regime']} regime (buffers {settings['buffers']}), "
        f"threads {settings['threads']}, flash attention {settings['flash_attn']}, "
        f"{settings['max_tokens']} tokens per run, seed {settings['seed']}"
    )
    curve = ", ".join(f"{rows}: {ms:.1f}" for rows, ms in result["cost_table"].items())
    step = "" if result["draft_step_ms"] is None else f"; one step of the draft: {result['draft_step_ms']:.1f} ms"
    tables = [_rows(Table(box=None, pad_edge=False, padding=(0, 2, 0, 0)), result["workloads"])]
    if result["peers"]:
        tables.append(_peers(Table(box=None, pad_edge=False, padding=(0, 2, 0, 0)), result["peers"]))
    with console.capture() as capture:
        console.print(Text(sanitize(head)), soft_wrap=True)
        console.print(f"milliseconds of a decode by its rows: {curve}{step}", soft_wrap=True)
        for table in tables:
            console.print()
            console.print(table)
        if any(row["prompts"] < _ENOUGH for row in result["workloads"]):
            console.print(f"\nIntervals of fewer than {_ENOUGH} prompts are rough; raise --prompts.", soft_wrap=True)
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def _rows(table: Any, rows: list[dict[str, Any]]) -> Any:
    from rich.text import Text

    table.add_column("workload", no_wrap=True)
    table.add_column("mode", no_wrap=True)
    for column in (
        "prompts", "speed-up", "95% interval", "by counts", "tokens/step", "accepted", "plain tok/s", "ms/round",
        "predicted",
    ):  # fmt: skip
        table.add_column(column, justify="right", no_wrap=True)
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


def _peers(table: Any, rows: list[dict[str, Any]]) -> Any:
    from rich.text import Text

    for column in ("workload", "peer", "our mode"):
        table.add_column(column, no_wrap=True)
    for column in ("speed-up over it", "95% interval", "its tok/s"):
        table.add_column(column, justify="right", no_wrap=True)
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
