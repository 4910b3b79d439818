"""`edgespec chat --serve`: the app in a browser."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ..errors import BadRequestError, EdgeSpecError
from ..text import sanitize
from .loading_line import LoadingLine
from .options import given

if TYPE_CHECKING:
    from ..engine.protocol import Loaded, LoadSpec

PORT = 8000
_HOST = "127.0.0.1"
_BACKLOG = 128
_PACKAGES = ("textual_serve", "aiohttp", "aiohttp_jinja2")  # of the extra
_OTHER_SCREENS = ("plain", "sources", "inline")


def check_serve(options: dict[str, Any]) -> None:
    """Raises BadRequestError where options do not go together."""
    if not options["serve"]:
        if options["port"] is not None:
            raise BadRequestError("--port goes with --serve")
        return
    for name in _OTHER_SCREENS:
        if given(name) and options[name]:
            raise BadRequestError(f"--{name} is for a terminal; leave it out, or leave out --serve")
    if options["port"] is not None and not 0 <= options["port"] <= 65535:
        raise BadRequestError(f"the port is {options['port']}; it must be from 0 (any free one) to 65535")


def serve_chat(spec: LoadSpec, options: dict[str, Any]) -> int:
    """Until Ctrl+C or SIGTERM."""
    try:
        from ..browser.serving import ChatServer
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _PACKAGES:
            raise
        raise EdgeSpecError(
            f"the chat in a browser needs the package {error.name.partition('.')[0]}, which is not installed; run: "
            "pip install textual-serve"
        ) from None
    from ..engine.client import Limits, WorkerEngine
    from ..server.listening import open_socket

    port = PORT if options["port"] is None else options["port"]
    quiet = options["quiet"]
    line = LoadingLine(show=not quiet and sys.stderr.isatty())
    with open_socket(_HOST, port, _BACKLOG, "give another --port, or 0 for any free one") as listener:
        bound = listener.getsockname()[1]

        def ready(key: str, loaded: Loaded | None) -> None:
            line.end()
            _print_ready(f"http://{_HOST}:{bound}/?key={key}", loaded, quiet=quiet)

        engine = WorkerEngine(limits=Limits(linger_s=0.0))  # it ends with the last who uses it
        ChatServer(engine, spec, _command, on_loading=line.show).serve_until_told(listener, ready)
    if not quiet:
        click.echo("the chat has ended", err=True)
    return 0


def _command(conversation: int | None) -> Sequence[str]:
    """This command line once more, as the app behind a page."""
    before = len(sys.orig_argv) - len(sys.argv) + 1  # the interpreter, its options, and this program
    visitor = "" if conversation is None else str(conversation)
    return [sys.executable, *sys.orig_argv[1:before], *sys.argv[1:], "--visitor", visitor]


def _print_ready(address: str, loaded: Loaded | None, *, quiet: bool) -> None:
    click.echo(address if quiet else f"The chat is at {address}")
    if not quiet:
        for note in () if loaded is None else loaded.notes:
            click.echo(sanitize(note), err=True)
        click.echo("  Whoever has this address can read your conversations and files: keep it to yourself.")
        click.echo("  Ctrl+C ends it; conversations are saved.")
    sys.stdout.flush()
