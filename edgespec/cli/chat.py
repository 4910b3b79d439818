"""`edgespec chat`: talk to a model in the terminal."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
import msgspec
from click.core import ParameterSource

from ..errors import BadRequestError, EdgeSpecError, HistoryDamagedError
from .attached import take_server
from .chat_serve import PORT, check_serve, serve_chat
from .options import SETTINGS, history_options, load_spec, logit_bias, model_options, sampling_options, text_file

if TYPE_CHECKING:
    from textual.app import App

    from ..engine.interface import Engine
    from ..engine.protocol import LoadSpec
    from ..engine.server_engine import ServerEngine
    from ..history import History
    from ..tui.app import AppSettings, ChatApp
    from ..tui.attachments import Attachment

_REQUEST = (
    "max_tokens", "draft_max", "temperature", "top_k", "top_p", "min_p", "typical", "repeat_penalty",
    "frequency_penalty", "presence_penalty", "seed", "verify", "stop",
)  # fmt: skip
_MOST_PIPED = 4_000_000  # bytes; no context holds more


@click.command("chat", context_settings=SETTINGS)
@model_options
@history_options
@click.option("--draft-max", type=int, metavar="K", help="Tokens drafted per round; 0: plain decoding.")
@click.option(
    "-n", "--max-tokens", type=int, metavar="N", help="Of each answer; default: until it or the context ends."
)
@sampling_options
@click.option("--system", metavar="TEXT", help="System prompt of new conversations.")
@click.option("--stop", multiple=True, metavar="TEXT", help="End an answer before TEXT. Repeatable.")
@click.option("-c", "--continue", "continue_", is_flag=True, help="Go on with the latest conversation.")
@click.option("--conversation", type=int, metavar="ID", help="Go on with this one; `edgespec history ls` lists them.")
@click.option("--save/--no-save", default=True, help="Save conversations; default: --save.")
@click.option(
    "--attach",
    multiple=True,
    metavar="FILE|URL",
    help="A text file for the first message; or the running server that answers. Repeatable.",
)
@click.option("--api-key", metavar="KEY", help="Of that server; EDGESPEC_API_KEY keeps it out of `ps`.")
@click.option("--ca-file", metavar="FILE", help="Certificates to trust, PEM, where that server speaks https.")
@click.option("--plain", is_flag=True, help="Line by line, without a screen; so it is anyway without a terminal.")
@click.option("--sources", is_flag=True, help="With --plain: colour and mark each token by who proposed it.")
@click.option("--theme", metavar="NAME", help="Colours; ansi-dark and ansi-light: those of the terminal.")
@click.option("--inline", is_flag=True, help="Below the prompt of the shell, instead of on the whole screen.")
@click.option("--no-mouse", is_flag=True, help="Leave the mouse to the terminal.")
@click.option("--serve", is_flag=True, help="In a browser on this machine, instead of here.")
@click.option("--port", type=int, metavar="N", help=f"With --serve: where; default: {PORT}, 0: any free one.")
@click.option("--visitor", metavar="ID", hidden=True, help="Be the app behind a page that shows this conversation.")
@click.option("-q", "--quiet", is_flag=True, help="No notes on standard error.")
def chat(**options: Any) -> int:
    """Talk to a model on the whole screen. `edgespec` alone does the same.

    Without a model and a conversation, a screen shows what is here and what can be fetched. What is piped in goes with
    the first message. Conversations are saved as they happen.

    With --plain, or without a terminal, it is a chat line by line; what is piped in is then one message.

    With --serve, it is in a browser, where every page is a chat of its own.

    With --attach http://127.0.0.1:8080, the model is that of a running `edgespec serve`, or another server of OpenAI's
    API.
    """
    check_serve(options)
    request = _request(options)
    server = take_server(options)
    spec = load_spec(options, suffix_history=options["suffix_history"]) if server is None else server.spec
    visitor = options["visitor"] is not None
    if options["serve"] and not visitor:
        _check_app(options)
        return serve_chat(spec, options)
    if not visitor and (options["plain"] or not sys.stdout.isatty()):
        return _plain(request, spec, options, server)
    from ..engine.client import Limits, WorkerEngine
    from ..tui.app import DEFAULT_THEME, AppSettings

    again = options["visitor"] or None
    attached = () if again else _attached(options, piped=not visitor)
    with _history(saved=options["save"]) as history:
        settings = AppSettings(
            spec=spec,
            options=request,
            system=options["system"] or "",
            conversation=_conversation(history, options) if again is None else _shown(history, again),
            attached=attached,
            keys=_keys(),
            theme=options["theme"] or DEFAULT_THEME,
            saved=options["save"],
        )
        # The engine that a page starts, where the server's has died, ends with the pages.
        engine = server or WorkerEngine(limits=Limits(linger_s=0.0) if visitor else Limits())
        return _run(settings, history, engine, inline=options["inline"], mouse=not options["no_mouse"])


def _plain(request: dict[str, Any], spec: LoadSpec, options: dict[str, Any], server: ServerEngine | None) -> int:
    """Line by line."""
    from ..chat_session import ChatSession
    from ..engine.client import WorkerEngine
    from ..tui.attachments import read_attachment
    from .plain_chat import plain_chat

    attached = tuple(read_attachment(name) for name in options["attach"])
    with contextlib.ExitStack() as stack:
        history = stack.enter_context(_history(saved=options["save"]))
        engine: Engine = stack.enter_context(contextlib.closing(server or WorkerEngine()))
        session = ChatSession(
            engine, history, spec, options=request, system=options["system"] or "", saved=options["save"]
        )
        conversation = _conversation(history, options)
        if conversation is not None:
            found = session.open(conversation)
            if spec.model is None:
                session.spec = msgspec.structs.replace(spec, model=_still_here(found.model))
        return plain_chat(
            session,
            saving=lambda: stack.enter_context(_history(saved=True)),
            quiet=options["quiet"],
            sources=options["sources"],
            attached=attached,
        )


def _still_here(model: str) -> str | None:
    """A model that answered before, if its file is still there."""
    from ..models.names import resolve

    try:
        return str(resolve(model)) if model else None
    except EdgeSpecError:
        return None


def _check_app(options: dict[str, Any]) -> None:
    """Raises what would keep the app of each page from beginning."""
    from textual.app import App

    from ..tui.attachments import read_attachment

    if options["theme"] is not None:
        _check_theme(App(), options["theme"])
    _keys()
    for name in options["attach"]:
        read_attachment(name)
    with _history(saved=options["save"]) as history:
        _conversation(history, options)


def _check_theme(app: App[Any], name: str) -> None:
    if name not in app.available_themes:
        names = ", ".join(sorted(app.available_themes))
        raise BadRequestError(f"there is no theme {name!r}; choose one of {names}")


def _run(settings: AppSettings, history: History, engine: Engine, *, inline: bool, mouse: bool) -> int:
    from ..tui.app import ChatApp

    try:
        app = ChatApp(engine, history, settings)
        _check_theme(app, settings.theme)
        notes = _Notes(app)
        log = logging.getLogger("edgespec")
        before = log.handlers
        log.handlers = [notes]  # a line on standard error would lie across the screen
        try:
            app.run(inline=inline, mouse=mouse)
        finally:
            log.handlers = before
        return app.return_code or 0
    finally:
        engine.close()


class _Notes(logging.Handler):
    """Shows warnings inside the app."""

    def __init__(self, app: ChatApp) -> None:
        super().__init__(logging.WARNING)
        self._app = app

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != "edgespec.llama":
            self._app.note(record.getMessage())


def _request(options: dict[str, Any]) -> dict[str, Any]:
    """Options of requests that the command line or the configuration gives. Raises BadRequestError."""
    from ..options import check_options

    source = click.get_current_context().get_parameter_source
    request = {name: options[name] for name in _REQUEST if source(name) is not ParameterSource.DEFAULT}
    if options["logit_bias"]:
        request["logit_bias"] = logit_bias(options["logit_bias"])
    for name in ("grammar", "json_schema"):
        if options[name] is not None:
            request[name] = text_file(f"--{name.replace('_', '-')}", options[name])
    check_options(**request)
    return request


def _shown(history: History, conversation: str) -> int | None:
    """The conversation that a page has shown, unless it was deleted meanwhile; None where it was a new one."""
    number = int(conversation)
    try:
        return history.conversation(number).id if number else None
    except EdgeSpecError:
        return None


def _attached(options: dict[str, Any], *, piped: bool) -> tuple[Attachment, ...]:
    """Files, and what was piped in; the keyboard is the terminal's from then on."""
    from ..tui.attachments import Attachment, read_attachment

    attached = [read_attachment(name) for name in options["attach"]]
    if piped and not sys.stdin.isatty():
        data = sys.stdin.buffer.read(_MOST_PIPED + 1)
        if len(data) > _MOST_PIPED:
            raise BadRequestError(f"more than {_MOST_PIPED // 1_000_000} MB were piped in; no context holds so much")
        if text := data.decode("utf-8", "replace").strip():
            attached.append(Attachment("standard input", text))
        try:
            os.dup2(os.open("/dev/tty", os.O_RDWR), 0)
        except OSError as error:
            raise BadRequestError("no keyboard can be reached; `edgespec run` answers one prompt") from error
    return tuple(attached)


@contextlib.contextmanager
def _history(*, saved: bool) -> Iterator[History]:
    """The saved conversations; with saved=False some that end with the program, in memory alone."""
    from ..history import History

    with contextlib.ExitStack() as stack:
        if not saved:
            history = History.temporary()
        else:
            try:
                history = History()
            except HistoryDamagedError as error:
                click.echo(f"edgespec: {error}", err=True)
                history = History()
        yield stack.enter_context(history)


def _conversation(history: History, options: dict[str, Any]) -> int | None:
    """The one to go on with. Raises BadRequestError where there is none."""
    wanted: int | None = options["conversation"]
    if wanted is not None and options["continue_"]:
        raise BadRequestError("give --continue or --conversation, not both")
    if (wanted is not None or options["continue_"]) and not options["save"]:
        raise BadRequestError("--no-save begins a conversation of its own; leave it out to go on with a saved one")
    if wanted is not None:
        found = history.conversation(wanted)
        if found.raw:
            raise BadRequestError(f"conversation {wanted} is a completed text, not a chat; choose another")
        return wanted
    if not options["continue_"]:
        return None
    latest = history.latest()
    if latest is None:
        raise BadRequestError("there is no conversation to continue; leave out --continue to begin one")
    return latest.id


def _keys() -> dict[str, str]:
    from ..tui.keymap import read_own_keys
    from ..tui.keys import key_table

    return read_own_keys(key_table())
