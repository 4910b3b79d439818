"""The edgespec command. One file per command, one row in COMMANDS; a command is imported when it is run."""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import os
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

from ..errors import EdgeSpecError
from .options import SETTINGS

COMMANDS = {
    # name: (module, one line for --help)
    "chat": ("chat", "Talk to a model; `edgespec` alone does the same."),
    "run": ("run", "Answer one prompt, or complete a text; reads standard input when piped."),
    "serve": ("serve", "Answer programs that speak to OpenAI's API."),
    "show": ("show", "Print what a GGUF file is, without loading it."),
    "pull": ("pull", "Fetch a model by name."),
    "ls": ("ls", "List the models on this disk."),
    "rm": ("rm", "Delete a model."),
    "pair": ("pair", "List the drafts for a model, and why the others may not draft."),
    "bench": ("bench", "Measure decode speed against plain decoding."),
    "verify": ("verify", "Check on your own models that speculation changes nothing."),
    "tune": ("tune", "Find the form of a model that is fastest here, and use it."),
    "train": ("train", "Train draft heads for a model from text that it writes itself."),
    "convert": ("convert", "Make draft heads for a model out of a published checkpoint."),
    "history": ("history", "List, show, search, export, delete and import saved conversations."),
    "doctor": ("doctor", "Check that all that EdgeSpec needs works here."),
    "config": ("config", "Show and set your own defaults."),
}

_BARE = ("chat",)  # what the program's name alone means


class _OutputClosed(Exception):
    """The reader of standard output has gone."""


class _Commands(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except OSError as error:
            # click itself would turn a closed pipe into exit code 1. EINVAL is how Windows says it.
            if error.errno in (errno.EPIPE, errno.EINVAL) and error.filename is None:
                raise _OutputClosed from error
            raise

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and not ctx.resilient_parsing:  # that: completion in a shell
            from .configured import defaults_of

            ctx.default_map = defaults_of(name, rest)
        return name, command, rest

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        row = COMMANDS.get(cmd_name)
        if row is None:
            return None
        command = getattr(import_module(f".{row[0]}", __name__), row[0])
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):  # from the table, so that --help imports nothing
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.command(cls=_Commands, context_settings=SETTINGS)
@click.version_option(version("edgespec"), prog_name="edgespec")
@click.option("-v", "--verbose", is_flag=True, help="Show log lines of EdgeSpec and llama.cpp on standard error.")
def edgespec(verbose: bool) -> None:
    """The fastest exact way to chat with a local language model."""
    if verbose:
        logging.basicConfig(level=logging.DEBUG, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    else:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("edgespec: %(message)s"))
        handler.addFilter(lambda record: record.name != "edgespec.llama")  # llama.cpp's own lines only with -v
        logging.getLogger("edgespec").addHandler(handler)


def main() -> None:
    """Entry point: runs a command and turns every failure into one line and a documented exit code."""
    sys.exit(_run())


def _run() -> int:
    _open_missing_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that cannot show a character shows "?", not a traceback
            stream.reconfigure(errors="replace")
    try:
        result = edgespec.main(args=list(_BARE) if _is_bare() else None, standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        message, ctx = error.format_message(), getattr(error, "ctx", None)
        if ctx is not None and message == ctx.get_help():  # no command at all
            error.show()
            return error.exit_code
        command = "edgespec" if ctx is None else ctx.command_path
        return _fail(f"{message.rstrip('.')}; see `{command} --help`", error.exit_code)
    except EdgeSpecError as error:
        return _fail(str(error), error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        return 130
    except (BrokenPipeError, _OutputClosed):
        return _closed()
    except OSError as error:
        what = f"{error.filename}: " if error.filename else "cannot write the output: "
        return _fail(f"{what}{error.strerror or error}", 1, quiet_stdout=True)
    except MemoryError:
        return _fail("out of memory; use a smaller model or a smaller --ctx-size", 1)


def _is_bare() -> bool:
    """True where somebody at a terminal typed the program's name and nothing else."""
    return len(sys.argv) == 1 and sys.stdin.isatty() and sys.stdout.isatty()


def _open_missing_streams() -> None:
    """Where the caller closed one (`>&-`), Python has None, and the next file opened would get its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115  # open until the end


def _fail(message: str, code: int, *, quiet_stdout: bool = False) -> int:
    from ..text import sanitize

    if quiet_stdout:
        _drop_stdout()
    line = " ".join(sanitize(message).split())
    with contextlib.suppress(OSError):  # standard error gone as well: the exit code is all that is left to say it
        click.echo(f"edgespec: {line}", err=True)
    return code


def _closed() -> int:
    """The reader has had enough (`| head -1`): stop quietly."""
    _drop_stdout()
    return 0


def _drop_stdout() -> None:
    """Keep Python from flushing to a dead standard output at exit and printing a traceback."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
