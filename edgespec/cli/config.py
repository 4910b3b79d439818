"""`edgespec config`: the user's own defaults."""

from __future__ import annotations

import os
from typing import Any

import click

from ..config import KEYS, NO_DRAFT, Value, known, parsed, read, variable
from ..config_file import config_file, put, remove
from ..errors import BadRequestError
from ..paths import user_path
from ..text import sanitize
from .json_text import json_text
from .options import SETTINGS

_PATHS = ("model", "draft")
_HELP = "\b\nKeys:\n" + "\n".join(f"  {name:<18} {row.help}" for name, row in KEYS.items())  # \b: click keeps the lines


@click.group("config", context_settings=SETTINGS)
def config() -> None:
    """Your own defaults: one TOML file, and EDGESPEC_* variables.

    An option on the command line comes first, then the variable, then the file, then the built-in default. A key is
    an option of `edgespec run` with underscores; `edgespec config show` lists them all.
    """


@config.command("path", context_settings=SETTINGS)
def path() -> None:
    """Print where the file is, or would be."""
    click.echo(config_file())


@config.command("show", context_settings=SETTINGS)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(as_json: bool) -> None:
    """Print every key with its value, and where that comes from.

    What is wrong with file or variables is told on standard error.

    --json keys: path, values (a list of key, value, source), problems. source is environment, file or default.
    """
    found = read()
    builtin = _builtin()
    rows = [
        (name, found.settings[name].value, found.settings[name].source)
        if name in found.settings
        else (name, builtin[name], "default")
        for name in KEYS
    ]
    if as_json:
        values = [dict(zip(("key", "value", "source"), row, strict=True)) for row in rows]
        click.echo(json_text({"path": str(found.path), "values": values, "problems": found.problems}))
    else:
        origins = {"default": "default", "file": str(found.path)}
        for name, value, source in rows:
            origin = origins.get(source, variable(name))
            click.echo(f"{name:<18} {_one_line(value):<24} {sanitize(origin)}".rstrip())
    unknown = [f"{name}: no key has this name, so it does nothing" for name in found.strangers]
    for line in (*found.problems, *unknown):
        click.echo(f"edgespec: {' '.join(sanitize(line).split())}", err=True)


@config.command(
    "set",
    context_settings={**SETTINGS, "ignore_unknown_options": True},  # -1 is a value, no option
    epilog=_HELP,
)
@click.argument("key")
@click.argument("value")
def set_key(key: str, value: str) -> None:
    """Set KEY to VALUE in the file. Comments in it stay."""
    key = _spelled(key)
    row = known(key)
    chosen = _from_anywhere(key, parsed(row.kind, value))
    row.check(chosen)
    put(config_file(), key, chosen)
    click.echo(f"{key} = {_one_line(chosen)}")
    if os.environ.get(variable(key)):
        click.echo(f"{variable(key)} is set as well, and comes first", err=True)


@config.command("unset", context_settings=SETTINGS)
@click.argument("key")
def unset(key: str) -> None:
    """Take KEY out of the file: its default counts again."""
    file = config_file()
    if remove(file, key) or remove(file, _spelled(key)):
        click.echo(f"{key} is unset")
    elif _spelled(key) in KEYS:
        click.echo(f"{key} was not set")
    else:
        raise BadRequestError(f"no key {key!r} in {file}; `edgespec config show` lists what is set")


def _spelled(key: str) -> str:
    """A key as the file has it: people write it as the option, too."""
    return key.removeprefix("--").replace("-", "_")


def _from_anywhere(key: str, value: Value) -> Value:
    """The path of a file that is here, made absolute: the default counts in every folder."""
    if key in _PATHS and isinstance(value, str) and value not in NO_DRAFT:
        place = user_path(value)
        if place.is_file():
            return os.path.abspath(place)  # noqa: PTH100  # resolve() would follow links
    return value


def _builtin() -> dict[str, Any]:
    """Defaults of the options of chat and run; None where that is no fixed value."""
    from .chat import chat
    from .run import run

    found: dict[str, Any] = {"color": "auto"}
    for command in (chat, run):
        with command.make_context(str(command.name), [], resilient_parsing=True) as ctx:  # no arguments, no config
            found |= {name: value for name, value in ctx.params.items() if name in KEYS}
    return found


def _one_line(value: Any) -> str:
    if value is None:
        return "-"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return " ".join(sanitize(text).split())
