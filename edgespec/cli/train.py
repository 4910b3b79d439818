"""`edgespec train`: draft heads for a model, from text that it writes itself, on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import BadRequestError
from ..models.names import resolve
from ..text import sanitize
from .json_text import json_text
from .options import ALONE_NAMES, SETTINGS, alone_options
from .progress import Steps

if TYPE_CHECKING:
    from ..api import LLM
    from ..train.collect import Prompt
    from ..train.process import Trained
    from ..train.settings import TrainSettings

_ROOM = 256  # tokens of a prompt


@click.command("train", context_settings=SETTINGS)
@click.argument("model")
@click.option("--form", default="sequential", show_default=True, metavar="FORM", help="Of heads: sequential or eagle.")
@click.option("--minutes", type=float, default=20.0, show_default=True, metavar="N", help="Time it may take in all.")
@click.option("--tokens", type=int, default=250_000, show_default=True, metavar="N", help="Most tokens to learn from.")
@click.option("--epochs", type=int, default=12, show_default=True, metavar="N", help="Most passes over them.")
@click.option("--heads", type=int, default=3, show_default=True, metavar="K", help="How many tokens ahead they guess.")
@click.option("--vocabulary", type=int, default=8192, show_default=True, metavar="N", help="Most tokens they know.")
@click.option(
    "--questions",
    type=int,
    default=600,
    show_default=True,
    metavar="N",
    help="Most questions that the model asks itself; 0: the built-in prompts alone.",
)
@click.option("--at-once", type=int, default=16, show_default=True, metavar="N", help="Texts written in one decode.")
@click.option("--prompts-file", metavar="FILE.jsonl", help="Prompts of your own beside the built-in ones.")
@click.option("--chats", is_flag=True, help="Prompts out of your saved conversations, too.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Of all that is drawn.")
@click.option("-o", "--out", metavar="FILE", help="Where the heads go; default: a folder of EdgeSpec's.")
@click.option("--fresh", is_flag=True, help="Begin anew instead of going on with an interrupted training.")
@alone_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("-q", "--quiet", is_flag=True, help="No progress and no notes on standard error.")
def train(model: str, **options: Any) -> None:
    """Train draft heads for MODEL and use them from now on.

    The model writes texts; small networks learn to guess its next tokens from its own hidden states; the best ones on
    texts that they were not trained on are kept and registered. Nothing leaves this machine. Interrupted, it goes on
    when the same command is given again.
    """
    from ..models.header import read_header
    from ..train import forms, process
    from ..train.settings import TrainSettings

    names = ("form", "minutes", "tokens", "epochs", "heads", "vocabulary", "questions", "at_once", "seed")
    settings = TrainSettings(**{name: options[name] for name in names})
    out = None if options["out"] is None else Path(options["out"]).absolute()
    suffix = forms.FORMS[settings.form].suffix
    if out is not None and out.suffix != suffix:
        raise BadRequestError(f"--out is {options['out']}; its name must end with {suffix}")
    own = [*_own_prompts(options["prompts_file"]), *(_own_chats() if options["chats"] else ())]
    path = resolve(model)
    if options["fresh"]:
        import shutil

        shutil.rmtree(process.work_folder(read_header(path), settings, own), ignore_errors=True)

    def load(file: Path, chosen: TrainSettings) -> LLM:
        return _load(file, chosen, options)

    with Steps(show=not options["quiet"]) as steps:
        done = process.train(path, settings, load, steps, own=own, out=out)
    if options["as_json"]:
        click.echo(json_text(trained_json(path, done)))
    else:
        _say(path, done)


def trained_json(path: Path, done: Trained) -> dict[str, Any]:
    """The object of --json."""
    return {
        "model": os.fsencode(path).decode("utf-8", "replace"),
        "path": os.fsencode(done.path).decode("utf-8", "replace"),
        "source": done.source,
        "tokens": done.tokens,
        "vocabulary": done.vocabulary,
        "epochs": done.epochs,
        "tau": done.measured[0].tau,
        "acceptance": list(done.measured[0].acceptance),
        "sampled_tau": done.measured[1].tau,
        "sampled_acceptance": list(done.measured[1].acceptance),
        "rounds": done.measured[0].rounds,
        "coverage": done.score.coverage,
        "seconds": done.seconds,
    }


def _say(path: Path, done: Trained) -> None:
    count = len(done.score.acceptance)
    what = f"{count} heads" if done.source == "medusa" else f"an EAGLE head for {count} guesses"
    click.echo(
        f"{sanitize(path.name)}: {what} over {done.vocabulary:,} tokens, learned from "
        f"{done.tokens:,} tokens in {done.seconds / 60:.1f} min"
    )
    for measured in done.measured:
        guesses = ", ".join(f"{share:.0%}" for share in measured.acceptance)
        click.echo(
            f"other prompts, temperature {measured.temperature:g}: {measured.tau:.2f} tokens a round; guesses "
            f"taken, each after the one before: {guesses}"
        )
    click.echo(f"registered: it drafts with {sanitize(str(done.path))} from now on")


def _own_prompts(path: str | None) -> list[str]:
    """Texts of the user's prompts, the last message of each."""
    if path is None:
        return []
    from ..bench.prompts import read_file

    texts = [prompt.messages[-1].get("content") for prompt in read_file(Path(path))]
    if not all(isinstance(text, str) for text in texts):
        raise BadRequestError(f"{path} has a message whose content is no text; give texts")
    return [str(text) for text in texts]


def _own_chats() -> list[Prompt]:
    """What was said in saved conversations, each with all that was said before it."""
    from ..history import History

    found: list[Prompt] = []
    with History() as saved:
        for conversation in saved.conversations():
            system = (("system", conversation.system),) if conversation.system else ()
            said = [(message.role, message.text) for message in saved.path(conversation.id)]
            ends = [] if conversation.raw else [i for i, (role, _) in enumerate(said) if role == "user"]
            found += [(*system, *said[: end + 1]) for end in ends]
    return found


def _load(path: Path, settings: TrainSettings, options: dict[str, Any]) -> LLM:
    from ..loading import load

    announce = None if options["quiet"] else lambda line: click.echo(sanitize(line), err=True)
    return load(
        path,
        draft=None,
        drafter="none",
        heads=None,
        ctx_size=settings.at_once * (settings.reply + _ROOM),
        parallel=settings.at_once,
        max_width=max(32, settings.at_once),
        split_cache=True,
        at_once=settings.at_once,
        announce=announce,
        **{name: options[name] for name in ALONE_NAMES},
    )
