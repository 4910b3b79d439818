"""Which key does what: the defaults of the table of commands, and what [keys] in config.toml says instead."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..config_file import config_file, read_file
from ..errors import BadRequestError
from ..text import sanitize

_MODIFIERS = r"(?:(?:ctrl|alt|shift|super|meta)\+)*"
_KEY = re.compile(
    rf"{_MODIFIERS}(?:[a-z0-9]|f[1-9]|f1\d|f2[0-4]|up|down|left|right|home|end|pageup|pagedown|insert|delete|backspace|"
    r"enter|escape|tab|space|question_mark|slash|comma|full_stop|minus|plus|equals_sign|"
    r"left_square_bracket|right_square_bracket|semicolon|backslash)"
)
_RESERVED = {"enter": "it sends the message", "ctrl+c": "it copies"}


@dataclass(frozen=True, slots=True)
class Key:
    """One action that a key can be bound to. id: its name in [keys].  keys: the default, "" for none, or several
    separated by commas.  where: keys of "chat" work everywhere, those of "message" on a message that is selected."""

    id: str
    keys: str
    where: str = "chat"


def own_keys(known: Iterable[Key], section: Mapping[str, Any]) -> dict[str, str]:
    """The keys that `section`, the [keys] of config.toml, sets: id to keys as Textual spells them.

    "" takes the key away. Raises BadRequestError for an unknown id or key, and for a key given twice.
    """
    table = {key.id: key for key in known}
    own: dict[str, str] = {}
    for name, value in section.items():
        if name not in table:
            near = difflib.get_close_matches(name, table, 1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(table)}"
            raise BadRequestError(f"[keys] in {config_file()}: unknown name {sanitize(name)[:40]!r}; {hint}")
        own[name] = _checked(name, value)
    _check_twice(table, own)
    return own


def read_own_keys(known: Iterable[Key]) -> dict[str, str]:
    """What [keys] in config.toml sets. Raises BadRequestError."""
    section = read_file(config_file()).get("keys", {})
    if not isinstance(section, dict):
        raise BadRequestError(f"keys in {config_file()} is no table; write a line [keys] and names below it")
    return own_keys(known, section)


def _checked(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise BadRequestError(f'[keys] {name} is {value!r}; give a text such as "ctrl+n", or "" for no key')
    keys = [key.strip().lower() for key in value.split(",") if key.strip()]
    for key in keys:
        if not _KEY.fullmatch(key):
            raise BadRequestError(
                f"[keys] {name}: {sanitize(key)[:40]!r} is no key; write it as ctrl+n, alt+enter, f2 or question_mark"
            )
        if key in _RESERVED:
            raise BadRequestError(f"[keys] {name}: {key} cannot be bound, {_RESERVED[key]}; choose another key")
    return ",".join(keys)


def _check_twice(table: Mapping[str, Key], own: Mapping[str, str]) -> None:
    """A key may mean one thing on a message and another elsewhere, but not two in one place."""
    taken: dict[tuple[str, str], str] = {}
    for name, row in table.items():
        for key in filter(None, own.get(name, row.keys).split(",")):
            other = taken.setdefault((row.where, key), name)
            if other != name:
                raise BadRequestError(f"[keys]: {key} is bound to {other} and to {name}; give one of them another key")
