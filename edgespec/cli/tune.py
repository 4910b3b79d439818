"""`edgespec tune`: which form of a model is fastest here, and from now on used in its place."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import BadRequestError, ModelNotFoundError
from ..models.names import PathName, parse, resolve
from ..paths import user_path
from ..text import sanitize
from ..tuned import AS_IS, undo
from .json_text import json_text
from .options import SETTINGS, SETTINGS_NAMES, settings_options
from .progress import Steps

if TYPE_CHECKING:
    from ..tuning.keeping import Kept, Used
    from ..tuning.process import Measured


@click.command("tune", context_settings=SETTINGS)
@click.argument("model")
@click.option("--draft", metavar="NAME|PATH", help="A draft model, to be tuned for this target.")
@click.option("--yes", is_flag=True, help="Take the recommended copy of the target without being asked.")
@click.option("--keep-target", is_flag=True, help="Leave the target alone: tune the draft only.")
@click.option("--undo", "undoing", is_flag=True, help="Delete the copies of MODEL and of the draft.")
@settings_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("-q", "--quiet", is_flag=True, help="No progress and no notes on standard error.")
def tune(model: str, **options: Any) -> None:
    """Find the form of MODEL that is fastest here, and use it from now on.

    The file is measured as it is and requantized: how fast it decodes one token and several at once, and what that
    does to its perplexity on a fixed text. A copy of the target is another model, so it is used only if you agree. A
    copy of the draft changes nothing but speed, and is used if it is faster. The files themselves stay as they are.
    """
    if options["undoing"]:
        _undo(model, options)
        return
    _check(options)
    from ..tuning import process, report
    from ..tuning.loading import Models, Settings

    settings = Settings(**{name: options[name] for name in SETTINGS_NAMES})
    models = Models(resolve(model), None if options["draft"] is None else resolve(options["draft"]), settings)
    with Steps(show=not options["quiet"]) as steps:
        measured, kept = process.tune(
            models,
            keep_target=options["keep_target"],
            decide=lambda found: _decide(found, models.target.name, options, steps),
            progress=steps,
        )
    if options["as_json"]:
        click.echo(json_text(report.to_json(models, measured, kept)))
    else:
        _say(kept, models.target, models.draft)


def _check(options: dict[str, Any]) -> None:
    if options["yes"] and options["keep_target"]:
        raise BadRequestError("--yes takes a copy of the target, --keep-target takes none; give one of them")
    if options["keep_target"] and options["draft"] is None:
        raise BadRequestError("with --keep-target only a draft is tuned; name one with --draft")


def _decide(found: Measured, name: str, options: dict[str, Any], steps: Steps) -> bool | None:
    """Show what was measured; ask where there is something to ask and someone to answer."""
    from .tune_tables import print_tables, question

    steps.end()
    terminal = sys.stdin.isatty() and sys.stderr.isatty()
    copy = found.recommended.type
    if not options["as_json"]:
        print_tables(found, name)
    if not options["yes"] and not terminal:
        if copy != AS_IS:
            steps.note(f"the target is not changed: no terminal to ask on, and no --yes to take the {copy} copy")
        return None
    return copy != AS_IS and (options["yes"] or click.confirm(question(found, name), default=False, err=True))


def _say(kept: Kept, target: Path, draft: Path | None) -> None:
    click.echo()
    _say_used("target", target, kept.target)
    if draft is not None and kept.draft is not None:
        _say_used("draft", draft, kept.draft)


def _say_used(role: str, path: Path, used: Used) -> None:
    what = "is used as it is" if used.type == AS_IS else f"is replaced by its {used.type} copy, {used.path}"
    click.echo(sanitize(f"{role}: {path.name} {what}"))


def _undo(model: str, options: dict[str, Any]) -> None:
    others = {"--yes": "yes", "--keep-target": "keep_target", "--json": "as_json"}
    if wrong := [option for option, name in others.items() if options[name]]:
        raise BadRequestError(f"--undo does not go with {wrong[0]}; leave that out")
    for name in (model, options["draft"]):
        if name is None:
            continue
        try:
            path = resolve(name)
        except ModelNotFoundError:
            if not isinstance(parse(name), PathName):
                raise
            path = user_path(name)
        freed = undo(path)  # of a file that is gone, the copies may still be here
        done = "nothing to undo" if freed is None else f"undone, {freed / 1e6:.1f} MB freed"
        click.echo(sanitize(f"{path.name}: {done}"))
