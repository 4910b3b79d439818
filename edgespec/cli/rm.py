"""`edgespec rm`: delete a model, and say what that frees."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import click

from .. import tuned
from ..errors import BadRequestError, EdgeSpecError
from ..models import pairs
from ..models.header import read_header
from ..models.removal import Removal, find_local, plan, remove
from .options import SETTINGS
from .tables import clean, human_bytes


@click.command("rm", context_settings=SETTINGS)
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def rm(name: str, yes: bool, as_json: bool) -> None:
    """Delete the model NAME, as `edgespec ls` calls it, with the copies that `edgespec tune` made of it.

    Only files in EdgeSpec's own folder and in the Hub cache are deleted; those of other programs are theirs. What a
    running edgespec has loaded is refused.
    """
    removal = plan(find_local(name))
    copies = _copies(removal.model.path)
    freed = removal.freed + sum(_size(path) for path in copies)
    if not yes and not _agreed(removal, copies, freed):
        click.echo("nothing is deleted", err=True)
        raise click.exceptions.Exit(1)
    _forget(removal.model.path)
    remove(removal)
    if as_json:
        click.echo(json.dumps(_report(removal, copies, freed)))
    else:
        click.echo(clean(f"{removal.model.name} is deleted; {freed:,} bytes ({human_bytes(freed)}) are free again"))


def _agreed(removal: Removal, copies: list[Path], freed: int) -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise BadRequestError("there is no terminal to ask on; give --yes to delete without a question")
    also = f" and {len(copies)} tuned cop{'y' if len(copies) == 1 else 'ies'}" if copies else ""
    question = f"delete {removal.model.path}{also}, {human_bytes(freed)}?"
    return click.confirm(clean(question), default=False, err=True)


def _forget(path: Path) -> None:
    """What is kept under the file's content, which is still there to be read."""
    with contextlib.suppress(EdgeSpecError):  # a damaged file has neither
        tuned.undo(path)
        pairs.forget(read_header(path))


def _copies(path: Path) -> list[Path]:
    """Files that `edgespec tune` keeps for the model."""
    try:
        return [file for folder in tuned.folders_of(path) for file in folder.iterdir() if file.is_file()]
    except EdgeSpecError:  # of a damaged file none were made
        return []


def _size(path: Path) -> int:
    return path.stat().st_size


def _report(removal: Removal, copies: list[Path], freed: int) -> dict[str, Any]:
    return {
        "name": removal.model.name,
        "freed_bytes": freed,
        "deleted": [os.fsencode(path).decode("utf-8", "replace") for path in (*removal.files, *copies)],
    }
