"""The user's own defaults: config.toml and EDGESPEC_* variables, a variable before the file.

Keys are the options of `edgespec run`, spelled with underscores. Whoever wants another key adds a row to KEYS.
`edgespec.load()` reads none of this: what a program does should not depend on a file that it does not name. A program
that wants it asks: `edgespec.load(**config.read().checked().defaults("load"))`, and "stream" for its requests.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from edgespec.models.quoting import one_line

from .config_file import config_file, read_file
from .errors import BadRequestError

Value = str | int | float | bool
Kind = type[str] | type[int] | type[float] | type[bool]
Source = Literal["environment", "file"]
Check = Callable[[Any], None]  # raises BadRequestError: what is wrong, and what is allowed

PREFIX = "EDGESPEC_"
TABLES = ("keys",)  # of the file, checked by whoever uses them: keys of the chat
OTHERS = (  # variables that are no keys
    "EDGESPEC_HOME",
    "EDGESPEC_API_KEY",
    "EDGESPEC_TEST_MODELS",
    "EDGESPEC_TEST_BROWSER",
    "EDGESPEC_TEST_PICTURES",
    "EDGESPEC_TEST_LOAD_SECONDS",
)
NO_DRAFT = ("auto", "none")  # names of no draft in particular

# Whose defaults a key gives: commands, and the functions `load` and `stream` of the Python API.
_SETTINGS = ("load", "run", "chat", "serve", "bench", "verify", "tune")
_ALONE = (*_SETTINGS, "train")  # of a model without a draft
_LOADING = ("load", "run", "chat", "serve", "bench", "verify")
_REQUEST = ("stream", "run", "chat")  # bench and verify have sampling options of their own, with other defaults


@dataclass(frozen=True, slots=True)
class Key:
    """What one key may be. kind: of its values.  commands: whose defaults it gives; none: it is for all of them."""

    kind: Kind
    commands: tuple[str, ...]
    check: Check
    help: str


@dataclass(frozen=True, slots=True)
class Setting:
    """A key that was set. where: the file or the variable."""

    value: Value
    source: Source
    where: str


@dataclass(frozen=True, slots=True)
class Config:
    """What file and environment say. problems: one line each.  strangers: EDGESPEC_* variables that mean nothing."""

    path: Path
    settings: Mapping[str, Setting]
    problems: tuple[str, ...] = ()
    strangers: tuple[str, ...] = ()

    def checked(self) -> Config:
        """Itself. Raises BadRequestError where something is wrong with it."""
        if self.problems:
            more = len(self.problems) - 1
            also = f" ({more} more: `edgespec config show`)" if more else ""
            raise BadRequestError(f"{self.problems[0]}{also}")
        return self

    def defaults(self, command: str) -> dict[str, Value]:
        """Defaults of a command's options by parameter; of "load" and "stream", their keywords."""
        found = {name: s.value for name, s in self.settings.items() if command in KEYS[name].commands}
        draft, model = self.settings.get("draft"), self.settings.get("model")
        if draft and model and (draft.source, model.source) == ("file", "environment") and draft.value not in NO_DRAFT:
            found.pop("draft", None)  # it was chosen for the file's model
        return found


def _shown(value: Any) -> str:
    return one_line(repr(value), 60)


def _text(name: str) -> Check:
    def check(value: Any) -> None:
        if not isinstance(value, str) or not value.strip() or "\0" in value:
            raise BadRequestError(f"{name} is {_shown(value)}; it must be a text in quotes, not empty")

    return check


def _switch(name: str) -> Check:
    def check(value: Any) -> None:
        if not isinstance(value, bool):
            raise BadRequestError(f"{name} is {_shown(value)}; it must be true or false")

    return check


def _one_of(name: str, *choices: str) -> Check:
    def check(value: Any) -> None:
        if value not in choices:
            raise BadRequestError(f"{name} is {_shown(value)}; choose one of {', '.join(choices)}")

    return check


def _load(field: str) -> Check:
    def check(value: Any) -> None:
        from .llama.settings import check_setting  # numpy and the rest: only for who sets such a key

        check_setting(field, value)

    return check


def _request(name: str) -> Check:
    def check(value: Any) -> None:
        from .options import check_options

        check_options(**{name: value})

    return check


def _drafter(value: Any) -> None:
    from .drafters import select

    _text("drafter")(value)
    select(value, has_draft=True, has_heads=True, has_eagle=True, has_mtp=True)


KEYS = {
    "model": Key(str, _LOADING, _text("model"), "the model: a name or a path"),
    "draft": Key(str, _LOADING, _text("draft"), "the draft model of that model: a name or a path, none or auto"),
    "drafter": Key(str, _LOADING, _drafter, "sources of guesses"),
    "ctx_size": Key(int, _LOADING, _load("n_ctx"), "tokens of context"),
    "threads": Key(int, _ALONE, _load("threads"), "threads"),
    "gpu_layers": Key(int, _ALONE, _load("gpu_layers"), "layers of the target on the GPU, -1 for all"),
    "draft_gpu_layers": Key(int, _SETTINGS, _load("gpu_layers"), "layers of the draft on the GPU, -1 for all"),
    "kv_type": Key(str, _ALONE, _load("kv_type"), "numbers in the KV cache"),
    "buffers": Key(str, _ALONE, _load("buffers"), "weight layout"),
    "flash_attn": Key(str, _ALONE, _load("flash_attn"), "flash attention"),
    "suffix_history": Key(bool, ("load", "run", "chat"), _switch("suffix_history"), "keep replies for suffix drafting"),
    "draft_max": Key(int, _REQUEST, _request("draft_max"), "guesses per round"),
    "verify": Key(str, _REQUEST, _request("verify"), "acceptance rule"),
    "max_tokens": Key(int, _REQUEST, _request("max_tokens"), "tokens of an answer"),
    "temperature": Key(float, _REQUEST, _request("temperature"), "0 is greedy"),
    "top_k": Key(int, _REQUEST, _request("top_k"), "0 is off"),
    "top_p": Key(float, _REQUEST, _request("top_p"), "1 is off"),
    "min_p": Key(float, _REQUEST, _request("min_p"), "0 is off"),
    "typical": Key(float, _REQUEST, _request("typical"), "1 is off"),
    "repeat_penalty": Key(float, _REQUEST, _request("repeat_penalty"), "1 is off"),
    "frequency_penalty": Key(float, _REQUEST, _request("frequency_penalty"), "0 is off"),
    "presence_penalty": Key(float, _REQUEST, _request("presence_penalty"), "0 is off"),
    "save": Key(bool, ("run", "chat"), _switch("save"), "save questions and answers"),
    "system": Key(str, ("run", "chat"), _text("system"), "system prompt"),
    "theme": Key(str, ("chat",), _text("theme"), "colours of the chat"),
    "color": Key(str, (), _one_of("color", "auto", "always", "never"), "colours in the output"),
}


def variable(name: str) -> str:
    """The environment variable of a key."""
    return PREFIX + name.upper()


def read(environ: Mapping[str, str] = os.environ) -> Config:
    """File and environment together. Nothing is raised: what is wrong is in `problems`."""
    path = config_file()
    problems: list[str] = []
    settings: dict[str, Setting] = {}
    for name, value in _file(path, problems).items():
        if name in TABLES and isinstance(value, dict):
            continue
        _add(settings, problems, name, value, "file", str(path))
    for name in KEYS:
        if text := environ.get(variable(name)):  # an empty one is as good as none
            _add(settings, problems, name, parsed(KEYS[name].kind, text), "environment", variable(name))
    known = {variable(name) for name in KEYS} | set(OTHERS)
    strangers = sorted(name for name in environ if name.startswith(PREFIX) and name not in known)
    return Config(path, settings, tuple(problems), tuple(strangers))


def parsed(kind: Kind, text: str) -> Value:
    """A value written as text, of that kind; the text itself where it cannot be, for a check to refuse."""
    if kind is bool:
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    try:
        return kind(text)
    except ValueError:
        return text


def known(name: str) -> Key:
    """The row of a key. Raises BadRequestError for another one, with the nearest name."""
    if name not in KEYS:
        near = difflib.get_close_matches(name.lower().replace("-", "_"), KEYS, 1)
        hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(KEYS)}"
        raise BadRequestError(f"unknown key {_shown(name)}; {hint}")
    return KEYS[name]


def _file(path: Path, problems: list[str]) -> dict[str, Any]:
    try:
        return read_file(path)
    except BadRequestError as error:
        problems.append(str(error))
        return {}


def _add(settings: dict[str, Setting], problems: list[str], name: str, value: Any, source: Source, where: str) -> None:
    try:
        known(name).check(value)
    except BadRequestError as error:
        problems.append(f"{where}: {error}")
    else:
        settings[name] = Setting(value, source, where)
