"""`edgespec serve`: an OpenAI-compatible server for one model."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import EdgeSpecError
from ..text import sanitize
from .loading_line import LoadingLine
from .options import SETTINGS, load_spec, model_options

if TYPE_CHECKING:
    from ..engine.protocol import Loaded
    from ..models.entries import Entry
    from ..server.settings import ServerSettings

_PACKAGES = ("starlette", "uvicorn", "h11", "anyio")  # of the extra


@click.command("serve", context_settings=SETTINGS)
@model_options
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Where to listen.")
@click.option("--port", type=int, default=8080, show_default=True, metavar="N", help="0: any free one.")
@click.option("--api-key", metavar="KEY", help="What clients must send; EDGESPEC_API_KEY keeps it out of `ps`.")
@click.option("--alias", metavar="NAME", help="What clients call the model; default: its name.")
@click.option("--allow-host", multiple=True, metavar="NAME", help="Another name of this machine. Repeatable.")
@click.option("--allow-origin", multiple=True, metavar="URL", help="A web page that may ask. Repeatable.")
@click.option("--parallel", type=int, default=4, show_default=True, metavar="N", help="Requests answered at once.")
@click.option("--split-cache", is_flag=True, help="Give each of them an equal share of the context.")
@click.option("--queue", type=int, default=64, show_default=True, metavar="N", help="Requests that may wait.")
@click.option("--timeout", type=float, default=1800, show_default=True, metavar="SECONDS", help="For one request.")
@click.option("--grace", type=float, default=10, show_default=True, metavar="SECONDS", help="To finish, at the end.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
def serve(**options: Any) -> int:
    """Answer programs that speak to OpenAI's API, with one model, on this machine.

    Up to --parallel requests share the model: each decode has a row or a draft of every one. Others wait, first come,
    first served. Ctrl+C or SIGTERM ends the server: what runs may finish within --grace seconds, a second Ctrl+C ends
    it at once.
    """
    try:
        from ..server.serving import Server, open_socket
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _PACKAGES:
            raise
        raise EdgeSpecError(
            f"the server needs the package {error.name}, which is not installed; run: pip install starlette uvicorn"
        ) from None
    from ..engine.client import Limits, WorkerEngine

    settings = _settings(options)
    spec = load_spec(options, split_cache=options["split_cache"])
    quiet = options["quiet"]
    told = LoadingLine(show=not quiet and sys.stderr.isatty())
    with open_socket(settings) as listener:
        port = listener.getsockname()[1]

        def ready(loaded: Loaded) -> None:
            told.end()
            if not quiet:
                _print_ready(settings, port, loaded)

        engine = WorkerEngine(shared=False, limits=Limits(idle_s=None))
        Server(engine, spec, settings, on_loading=told.show).serve_until_told(listener, ready)
    if not quiet:
        click.echo("the server has ended", err=True)
    return 0


def _settings(options: dict[str, Any]) -> ServerSettings:
    """Raises BadRequestError, and as models.names.resolve."""
    from ..models.names import resolve
    from ..server.settings import ServerSettings

    path = resolve(options["model"])
    entry = _entry(path)
    name = path.stem if entry is None else entry.name
    same = {name, path.name, path.stem, options["model"] or name}
    sampling = {} if entry is None or entry.sampling is None else entry.sampling.given()
    return ServerSettings(
        model=options["alias"] or name,
        names=tuple(sorted(same)),
        host=options["host"],
        port=options["port"],
        api_key=options["api_key"] or os.environ.get("EDGESPEC_API_KEY") or None,
        hosts=options["allow_host"],
        origins=options["allow_origin"],
        parallel=options["parallel"],
        waiting=options["queue"],
        deadline_s=options["timeout"],
        grace_s=options["grace"],
        defaults=tuple(sampling.items()),
    )


def _entry(path: Path) -> Entry | None:
    from ..models.catalog import catalog

    return catalog().of_file(path)


def _print_ready(settings: ServerSettings, port: int, loaded: Loaded) -> None:
    """Where it is, and how a client gets there."""
    base = f"http://{settings.shown_host}:{port}"
    drafting = f"drafting with {loaded.drafter}" if loaded.drafter != "none" else loaded.why
    draft = "" if loaded.draft is None else f", draft model {loaded.draft}"
    for note in loaded.notes:
        click.echo(sanitize(note), err=True)
    click.echo(f"{sanitize(settings.model)} at {base}/v1")
    click.echo(sanitize(f"  {loaded.n_ctx} tokens of context, {drafting}{draft}"))
    click.echo(f"  OpenAI clients: base URL {base}/v1, {_key_line(settings)}, model {sanitize(settings.model)}")
    key = "" if settings.api_key is None else ' -H "Authorization: Bearer $EDGESPEC_API_KEY"'
    if not loaded.generates:
        click.echo(f"  curl {base}/v1/embeddings{key} -d '{json.dumps({'input': 'Hello'})}'")
    elif loaded.template:
        body = json.dumps({"messages": [{"role": "user", "content": "Hello"}]})
        click.echo(f"  curl {base}/v1/chat/completions{key} -d '{body}'")
    else:
        click.echo("  The model has no chat template: only /v1/completions")
    at_once = "one after the other" if settings.parallel == 1 else f"up to {settings.parallel} at once"
    click.echo(f"  Requests are answered {at_once}. Ctrl+C ends the server.")
    sys.stdout.flush()


def _key_line(settings: ServerSettings) -> str:
    return "any API key" if settings.api_key is None else "your API key"
