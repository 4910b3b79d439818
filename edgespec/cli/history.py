"""`edgespec history`: the saved conversations."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import BadRequestError
from ..paths import write_whole
from ..text import sanitize
from .json_text import json_text
from .options import SETTINGS
from .tables import clean, print_table

if TYPE_CHECKING:
    from ..history import Conversation, History, Hit, Message

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_MARK = ("\x1b[1m", "\x1b[0m")  # around a hit, on a terminal with colours


@click.group("history", context_settings=SETTINGS)
def history() -> None:
    """Saved conversations: list, show, search, export, delete, import.

    They lie in one file under EDGESPEC_HOME, for you alone. IDs are those of `edgespec history ls`.
    """


@history.command("ls", context_settings=SETTINGS)
@click.option("-n", "--limit", type=click.IntRange(min=1), metavar="N", help="At most N; default: all.")
@click.option("--deleted", is_flag=True, help="The deleted ones, which `rm --undo` brings back.")
@_JSON
def ls(limit: int | None, deleted: bool, as_json: bool) -> None:
    """List conversations, the latest first."""
    with _opened() as saved:
        found = saved.conversations(limit, deleted=deleted)
    if as_json:
        _print_json([conversation_json(one) for one in found])
    elif found:
        rows = [
            (str(one.id), f"{one.updated.astimezone():%Y-%m-%d %H:%M}", str(one.messages), _model(one.model), one.label)
            for one in found
        ]
        print_table(("id", "updated", "messages", "model", "title"), rows, right=("id", "messages"))
    else:
        click.echo("no deleted conversations" if deleted else "no conversations yet", err=True)


@history.command("show", context_settings=SETTINGS)
@click.argument("conversation", type=int)
@_JSON
def show(conversation: int, as_json: bool) -> None:
    """Print the branch of CONVERSATION that is in use."""
    with _opened() as saved:
        if as_json:
            found = saved.conversation(conversation)
            messages = [message_json(message) for message in saved.path(conversation)]
            _print_json({**conversation_json(found), "system": found.system, "path": messages})
        else:
            _print_text(saved.export_markdown([conversation]))


@history.command("search", context_settings=SETTINGS)
@click.argument("query", nargs=-1, required=True)
@click.option("-n", "--limit", type=click.IntRange(min=1), default=50, metavar="N", help="At most N; default: 50.")
@_JSON
def search(query: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Find the messages and titles that hold every word of QUERY, the latest first.

    Parts of words count, upper and lower case do not matter. A "quoted phrase" is one word.
    """
    with _opened() as saved:
        found = saved.search(" ".join(query), limit)
    if as_json:
        _print_json([hit_json(hit) for hit in found])
        return
    for hit in found:
        start, end = _MARK if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else ("", "")
        line = f"{clean(hit.before)}{' ' * hit.before.endswith(' ')}{start}{clean(hit.match)}{end}"
        who = hit.role or "title"
        click.echo(f"{hit.conversation}  {who}: {line}{' ' * hit.after.startswith(' ')}{clean(hit.after)}")
    if not found:
        click.echo("nothing found", err=True)


@history.command("export", context_settings=SETTINGS)
@click.argument("conversations", type=int, nargs=-1)
@click.option("-o", "--output", metavar="FILE", help="Write to FILE, for you alone; default: standard output.")
@_JSON
def export(conversations: tuple[int, ...], output: str | None, as_json: bool) -> None:
    """Write CONVERSATIONS, or all of them, as Markdown, or with --json as what `edgespec history import` reads.

    Markdown has the branch in use; JSON has every branch, and how each reply came about.
    """
    with _opened() as saved:
        chosen = conversations or None
        text = saved.export_json(chosen) + "\n" if as_json else saved.export_markdown(chosen)
    if output is None:
        _print_text(text)
    else:
        write_whole(Path(output), text, private=True)


@history.command("rm", context_settings=SETTINGS)
@click.argument("conversations", type=int, nargs=-1)
@click.option("--undo", is_flag=True, help="Bring deleted ones back.")
@click.option("--purge", is_flag=True, help="Remove deleted ones from the disk, for good; without IDs: all of them.")
@click.option("--yes", is_flag=True, help="Do not ask before --purge.")
@_JSON
def rm(conversations: tuple[int, ...], undo: bool, purge: bool, yes: bool, as_json: bool) -> None:
    """Delete CONVERSATIONS. That can be undone until `--purge` removes them from the disk."""
    if undo and purge:
        raise BadRequestError("give --undo or --purge, not both")
    if not conversations and not purge:
        raise BadRequestError("no conversation is named; give its id, which `edgespec history ls` shows")
    with _opened() as saved:
        if purge:
            report = _purge(saved, conversations, yes=yes)
        else:
            with saved.together():  # a wrong id among them: none is touched
                for one in conversations:
                    (saved.restore if undo else saved.delete)(one)
            report = {"restored" if undo else "deleted": list(conversations)}
    if as_json:
        _print_json({"deleted": [], "restored": [], "purged": 0, **report})
    elif purge:
        click.echo(f"{_count(report['purged'])} gone for good")
    else:
        ids = " ".join(map(str, conversations))
        them = "it" if len(conversations) == 1 else "them"
        undone = "" if undo else f"; `edgespec history rm --undo {ids}` brings {them} back"
        click.echo(f"{_count(len(conversations))} {'brought back' if undo else 'deleted'}{undone}")


@history.command("import", context_settings=SETTINGS)
@click.argument("file")
@_JSON
def import_(file: str, as_json: bool) -> None:
    """Add the conversations of FILE: an export of EdgeSpec, or conversations.json of a ChatGPT export; -: stdin.

    What was imported before and has not changed is skipped.
    """
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise BadRequestError(f"cannot read {file}: {error.strerror or error}") from error
    with _opened() as saved:
        done = saved.import_(data)
    if as_json:
        _print_json({"added": list(done.added), "skipped": done.skipped})
    else:
        skipped = f", {done.skipped} skipped that were imported before" if done.skipped else ""
        click.echo(f"{_count(len(done.added))} imported{skipped}")


def conversation_json(one: Conversation) -> dict[str, Any]:
    """An item of ls --json."""
    return {
        "id": one.id,
        "title": one.title,
        "preview": one.preview,
        "model": one.model,
        "raw": one.raw,
        "messages": one.messages,
        "created": one.created.isoformat(timespec="milliseconds"),
        "updated": one.updated.isoformat(timespec="milliseconds"),
        "deleted": one.deleted,
    }


def message_json(message: Message) -> dict[str, Any]:
    """A message of show --json."""
    return {
        "id": message.id,
        "parent": message.parent,
        "role": message.role,
        "text": message.text,
        "model": message.model,
        "created": message.created.isoformat(timespec="milliseconds"),
        "finish_reason": message.finish_reason,
        "branch": message.branch,
        "branches": message.branches,
    }


def hit_json(hit: Hit) -> dict[str, Any]:
    """An item of search --json."""
    return {
        "conversation": hit.conversation,
        "label": hit.label,
        "message": hit.message,
        "role": hit.role,
        "created": hit.created.isoformat(timespec="milliseconds"),
        "before": hit.before,
        "match": hit.match,
        "after": hit.after,
    }


@contextmanager
def _opened() -> Iterator[History]:
    from ..history import History

    with History() as saved:
        yield saved


def _purge(saved: History, conversations: tuple[int, ...], *, yes: bool) -> dict[str, Any]:
    if not yes:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise BadRequestError("there is no terminal to ask on; give --yes to purge without a question")
        count = len(conversations) or len(saved.conversations(deleted=True))
        if not click.confirm(f"remove {_count(count)} from the disk, for good?", default=False, err=True):
            raise click.exceptions.Exit(1)
    return {"purged": saved.purge(*conversations)}


def _count(number: int) -> str:
    return f"{number} conversation{'' if number == 1 else 's'}"


def _model(model: str) -> str:
    return model.replace("\\", "/").rpartition("/")[2]


def _print_json(value: Any) -> None:
    click.echo(json_text(value))


def _print_text(text: str) -> None:
    """As it is into a pipe or a file, sanitised onto a terminal."""
    click.echo(sanitize(text) if sys.stdout.isatty() else text, nl=False, color=True)  # click would strip it, too
