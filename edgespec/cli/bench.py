"""`edgespec bench`: does speculation pay here, on this model, and by how much?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import BadRequestError, Cancelled, EdgeSpecError
from .json_text import json_text
from .options import SETTINGS, load_model, model_options

if TYPE_CHECKING:
    from ..api import LLM
    from ..bench.peers import Peer


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
@click.option("--parallel", type=int, metavar="N", help="Throughput of N greedy requests at once.")
@click.option("--split-cache", is_flag=True, help="With --parallel: an equal share of the context for each request.")
@click.option("--plot", metavar="FILE", help="Draw costs and speed-ups as .png or .svg; needs matplotlib.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("-q", "--quiet", is_flag=True, help="No progress and no notes on standard error.")
def bench(**options: Any) -> int:
    """Measure decode speed against plain decoding, here and now.

    Every prompt is run plain, in the mode, in the mode, plain (A B B A) on one loaded model, after the prompt has
    been read. Reported are medians of paired ratios with 95% intervals, and counts that need no clock.

    With --parallel N, N prompts are answered at once, as the server does it, against the peers, else plain decoding.
    """
    from ..bench.modes import chosen_modes
    from ..bench.peers import parse_peers
    from ..bench.plot import check_plot, draw
    from ..bench.prompts import load_workloads
    from ..bench.report import to_json
    from ..bench.runner import Settings, run_bench, run_count
    from .bench_tables import print_tables

    heads = options["heads"] != "none"  # "auto" may find some
    may = {"has_draft": options["draft"] != "none", "has_heads": heads, "has_eagle": heads, "has_mtp": True}
    settings = _settings(options, Settings)
    if options["peers"] and options["buffers"] not in (None, "auto"):
        raise BadRequestError("peers choose weight buffers themselves; compare with them at --buffers auto")
    if options["peers"]:
        options["buffers"] = "auto"  # theirs: a measured choice could be another
    if options["parallel"] is not None:
        from .bench_parallel import bench_parallel

        workloads = load_workloads(options["workloads"], _limit(options["prompts"]))
        return bench_parallel(options, settings, workloads, partial(_progress, quiet=options["quiet"]))
    if options["split_cache"]:
        raise BadRequestError("--split-cache goes with --parallel: one request has the whole context; leave it out")
    starts = parse_peers(tuple(dict.fromkeys(options["peers"])))
    named = {name for mode in chosen_modes(options["modes"], sweep=False, sources=(), **may) for name in mode.sources}
    workloads = load_workloads(options["workloads"], _limit(options["prompts"]))
    picture = None if options["plot"] is None else Path(options["plot"])
    if picture is not None:
        check_plot(picture)
    with ExitStack() as stack:
        llm = stack.enter_context(_load(options, named))
        modes = chosen_modes(options["modes"], sweep=options["sweep"], sources=llm.sources, **llm.has)
        peers: list[Peer] = []
        for start in starts:
            peers.append(start(llm))
            stack.callback(peers[-1].close)
        total = run_count(workloads, len(modes), len(peers))
        with _progress(total, [w.name for w in workloads], quiet=options["quiet"]) as progress:
            outcome = run_bench(llm, workloads, modes, settings, peers, progress)
        result = to_json(llm, outcome, settings)
    if options["as_json"]:
        click.echo(json_text(result))
    else:
        print_tables(result)
    if picture is not None:
        draw(result, picture)
    if isinstance(outcome.stopped, EdgeSpecError):
        raise outcome.stopped
    return 0 if outcome.stopped is None else Cancelled.exit_code


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


def _load(options: dict[str, Any], named: set[str]) -> LLM:
    """named: sources of fixed modes; what they need is loaded, also where the mode auto does without."""
    from ..drafters import DRAFTERS

    # One conversation at a time: what others left in the cache would slow both sides of a ratio.
    llm = load_model(options, parallel=1)
    own = llm.sources
    more = {name for name in named - set(own) if llm.left_out.get(f"has_{DRAFTERS[name].needs}")}
    if more:
        llm.close()
        llm = load_model({**options, "drafter": ",".join((*own, *more))}, parallel=1)
        llm.sources = own
    return llm


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
