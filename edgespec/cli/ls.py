"""`edgespec ls`: the models on this disk, and which may draft for which."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click

from ..errors import EdgeSpecError
from ..models.compat import Comparison
from ..models.header import Header, read_header
from ..models.local import LocalModel, local_models
from ..models.quoting import one_line
from ..models.usage import last_used
from .options import SETTINGS
from .tables import clean, human_bytes, print_table

_DRAFT_SHARE = 0.7  # of the target's bytes: a larger draft costs more than it can save
_SHOWN = 2  # names of drafts in the table


@dataclass(frozen=True, slots=True)
class _Row:
    """A model with its header, or with the reason why it has none."""

    model: LocalModel
    header: Header | None
    error: str = ""


@click.command("ls", context_settings=SETTINGS)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list.")
def ls(as_json: bool) -> None:
    """List the GGUF models on this disk.

    Looks in EdgeSpec's own folder, in the Hub cache, and in the folders of LM Studio and llama.cpp; reads headers
    alone, changes nothing and opens no connection.
    """
    rows = [row for row in map(_read, local_models()) if row.header is None or row.header.arch != "clip"]
    facts = _facts(rows)
    if as_json:
        click.echo(json.dumps(facts))
        return
    if not facts:
        click.echo("no models yet; `edgespec pull` fetches one", err=True)
        return
    columns = ("name", "quant", "size", "context", "tokenizer", "drafts", "last used", "where")
    print_table(columns, [_cells(fact) for fact in facts], right=("size", "context"))
    for fact in facts:
        if fact["error"]:
            click.echo(clean(f"{fact['name']}: {fact['error']}"), err=True)


def _read(model: LocalModel) -> _Row:
    try:
        return _Row(model, read_header(model.path))
    except (EdgeSpecError, OSError) as error:
        return _Row(model, None, one_line(str(error), 400))


def _facts(rows: list[_Row]) -> list[dict[str, Any]]:
    """What --json prints."""
    compare = Comparison()
    return [_fact(row, rows, compare) for row in rows]


def _fact(row: _Row, rows: list[_Row], compare: Comparison) -> dict[str, Any]:
    model, header = row.model, row.header
    used = last_used(model.path)
    return {
        "name": model.name,
        "path": os.fsencode(model.path).decode("utf-8", "replace"),
        "origin": model.origin,
        "size": model.size,
        "quantization": None if header is None else header.quant,
        "context_length": None if header is None else header.context_length,
        "tokenizer_id": None if header is None else _tokenizer_id(header, compare),
        "drafts": [] if header is None else _drafts(row, rows, compare),
        "last_used": None if used is None else datetime.fromtimestamp(used, UTC).isoformat(timespec="seconds"),
        "error": row.error or None,
    }


def _tokenizer_id(header: Header, compare: Comparison) -> str | None:
    """Equal for files that mean the same texts by the same ids."""
    vocabulary = compare.vocabulary(header)
    try:
        return None if vocabulary.type == "none" else f"{vocabulary.type}-{vocabulary.identity[:8]}"
    except EdgeSpecError:
        return None


def _drafts(row: _Row, rows: list[_Row], compare: Comparison) -> list[str]:
    """Names of clearly smaller models that may draft for this one, the smallest first."""
    smaller = sorted((r for r in rows if r.model.size < _DRAFT_SHARE * row.model.size), key=lambda r: r.model.size)
    return [other.model.name for other in smaller if _may_draft(row.header, other.header, compare)]


def _may_draft(target: Header | None, draft: Header | None, compare: Comparison) -> bool:
    try:
        return target is not None and draft is not None and compare(target, draft).ok
    except EdgeSpecError:
        return False


def _cells(fact: dict[str, Any]) -> tuple[str, ...]:
    drafts = fact["drafts"]
    more = f" and {len(drafts) - _SHOWN} more" if len(drafts) > _SHOWN else ""
    context = fact["context_length"]
    return (
        fact["name"],
        "damaged" if fact["error"] else fact["quantization"] or "?",
        human_bytes(fact["size"]),
        "?" if context is None else f"{context:,}",
        fact["tokenizer_id"] or "?",
        ", ".join(drafts[:_SHOWN]) + more or "none",
        fact["last_used"][:10] if fact["last_used"] else "never",
        f"{fact['origin']}: {fact['path']}",
    )
