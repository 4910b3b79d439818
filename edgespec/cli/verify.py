"""`edgespec verify`: is the output exactly the model's own, with the user's files, on this machine?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import BadRequestError
from ..text import sanitize
from .options import SETTINGS, load_model, model_options

if TYPE_CHECKING:
    from ..api import LLM
    from ..checks import IdentityResult, LawResult, Progress, Report
    from ..forks import Fork

_PROMPTS = 10
_WIDTH = 160  # columns where stdout is no terminal


@click.command("verify", context_settings=SETTINGS)
@model_options
@click.option("--prompts-file", metavar="FILE.jsonl", help='Lines of {"prompt"} or {"messages"}; default: built-in.')
@click.option("--prompts", type=int, metavar="N", help=f"How many; default: {_PROMPTS} built-in ones, all of a file.")
@click.option("-n", "--max-tokens", type=int, default=48, show_default=True, metavar="N", help="Tokens of each text.")
@click.option("--draft-max", type=int, default=3, show_default=True, metavar="K", help="Tokens drafted per round.")
@click.option("--samples", type=int, default=500, show_default=True, metavar="N", help="Outcomes per drafter.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Of all that is drawn.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("-q", "--quiet", is_flag=True, help="No progress and no notes on standard error.")
def verify(**options: Any) -> int:
    """Check on your own models that speculation changes nothing.

    Greedy text and the text of a seed must be those of plain decoding, token for token, or differ where the model
    disagrees with itself; sampled text must have the model's law, for every drafter; and a rule that is wrong on
    purpose must be caught. Exit codes: 0 all hold, 1 not, 2 usage.
    """
    from ..bench.prompts import read_file
    from ..checks import CheckOptions, built_in, encoded
    from ..checks import verify as run_checks

    count, path = options["prompts"], options["prompts_file"]
    if count is not None and count < 1:
        raise BadRequestError(f"prompts is {count}; it must be a whole number from 1")
    chosen = CheckOptions(**{name: options[name] for name in ("max_tokens", "draft_max", "samples", "seed")})
    own = None if path is None else [p for p in read_file(Path(path)) if not p.follows][:count]
    with _load(options) as llm:
        prompts = built_in(llm, count or _PROMPTS) if own is None else encoded(llm, own)
        with _progress(quiet=options["quiet"]) as progress:
            report = run_checks(llm, prompts, chosen, progress)
        name = llm.name
    if not options["quiet"]:
        for row in report.distribution:
            if row.tv is None:
                click.echo(f"{row.drafter} never drafted: what is sampled with it was not checked", err=True)
    if options["as_json"]:
        click.echo(json.dumps(report.to_json()))
    else:
        _print(name, report)
    return 0 if report.ok else 1


def _load(options: dict[str, Any]) -> LLM:
    # One sequence: cells of others, though masked, change the order of sums, which no replay of a fork repeats.
    return load_model(options, parallel=1)


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Progress]:
    """A bar on a terminal, else a line as each check begins; on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    if quiet:
        yield lambda *_: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(30), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def report(check: str, done: int, total: int) -> None:
            if done:
                bar.update(task, completed=done)
                return
            bar.reset(task, description=check, total=total)
            if not console.is_terminal:
                click.echo(f"checking: {check} ({total})", err=True)

        yield report


def _print(model: str, report: Report) -> None:
    """The table for people, then every fork."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDTH
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("check", "result", "details"):
        table.add_column(column, no_wrap=column != "details")
    table.add_row("greedy text", _word(report.greedy.ok), _counts(report.greedy))
    table.add_row("text of a seed", _word(report.seed.ok), _counts(report.seed))
    for row in report.distribution:
        table.add_row(f"distribution, {row.drafter}", _word(row.ok), _law(row))
    caught = report.negative_control_caught
    table.add_row("negative control", "caught" if caught else "MISSED", _law(report.control))
    with console.capture() as capture:
        console.print(table)
    forks = [*_forks("greedy", report.greedy), *_forks("seed", report.seed)]
    lines = [
        f"{sanitize(model)}: {'all checks hold' if report.ok else 'NOT all checks hold'}",
        "",
        *(line.rstrip() for line in capture.get().splitlines()),
        *([""] if forks else []),
        *forks,
    ]
    click.echo("\n".join(lines))


def _word(ok: bool) -> str:
    return "ok" if ok else "FAILED"


def _counts(result: IdentityResult) -> str:
    parts = [f"{result.identical} of {result.prompts} prompts identical to plain decoding"]
    if result.explained:
        parts.append(f"{result.explained} differ where the model disagrees with itself")
    if result.unexplained:
        parts.append(f"{result.unexplained} differ WITHOUT EXPLANATION")
    idle = [name for name, drafted in result.drafted.items() if not drafted and name != "auto"]  # auto may decide so
    if idle:
        parts.append(f"never drafted: {', '.join(idle)}")
    return "; ".join(parts)


def _law(result: LawResult) -> str:
    if result.tv is None:
        return f"never drafted in {result.samples} samples, so nothing was checked"
    return (
        f"{result.tv:.3f} from the model's own law, bound {result.bound:.3f}; {result.samples} samples, "
        f"{result.accepted} of {result.drafted} drafted tokens accepted"
    )


def _forks(kind: str, result: IdentityResult) -> Iterator[str]:
    """One line for each fork; sources that share it share the line."""
    drafters: dict[tuple[str, Fork], list[str]] = {}
    for found in result.forks:
        drafters.setdefault((found.prompt, found.fork), []).append(found.drafter)
    for (prompt, fork), names in drafters.items():
        yield (
            f"{kind}, {sanitize(prompt)}, {' '.join(names)}: token {fork.position + 1} is {fork.other}, plain "
            f"{fork.plain}; their logits differ by {fork.gap_at_one:+.4f} with the text decoded one by one, by "
            f"{fork.gap_at_width:+.4f} in the drafter's rounds: {'explained' if fork.explained else 'NOT EXPLAINED'}"
        )
