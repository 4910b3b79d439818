"""What a person may set for a conversation, by name: one table for the app's panel and plain chat. One row each."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from .errors import BadRequestError
from .options import check_options

Value = str | int | float
UNSET = ("", "default")  # texts that mean: as the model or the command line has it


@dataclass(frozen=True, slots=True)
class ChatSetting:
    """kind: of its value.  help: what it does, with its range."""

    kind: type[str] | type[int] | type[float]
    help: str


SETTINGS = {
    "temperature": ChatSetting(float, "0 or more; 0 is greedy"),
    "top_k": ChatSetting(int, "keep the K likeliest tokens; 0 is off"),
    "top_p": ChatSetting(float, "keep the likeliest tokens of this mass, above 0 to 1; 1 is off"),
    "min_p": ChatSetting(float, "drop tokens below this share of the likeliest one, 0 to 1; 0 is off"),
    "typical": ChatSetting(float, "locally typical mass, above 0 to 1; 1 is off"),
    "repeat_penalty": ChatSetting(float, "0.01 to 100; 1 is off"),
    "frequency_penalty": ChatSetting(float, "-100 to 100; 0 is off"),
    "presence_penalty": ChatSetting(float, "-100 to 100; 0 is off"),
    "seed": ChatSetting(int, "repeat a text; 0 to 2^64 - 1"),
    "max_tokens": ChatSetting(int, "tokens of an answer, 1 or more"),
    "draft_max": ChatSetting(int, "guesses per round; 0 is plain decoding"),
    "verify": ChatSetting(str, "acceptance rule: block, token or seed"),
    "stop": ChatSetting(str, "end the answer before this text"),
}


def parse_setting(name: str, text: str) -> tuple[str, Value | None]:
    """(its full name, the value that `text` stands for, None for UNSET). Dashes are as good as underscores.

    Raises BadRequestError for an unknown name or a value that no request may have.
    """
    known = name.strip().lower().replace("-", "_")
    if known not in SETTINGS:
        near = difflib.get_close_matches(known, SETTINGS, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(SETTINGS)}"
        raise BadRequestError(f"there is no setting {name.strip()[:40]!r}; {hint}")
    if text.strip().lower() in UNSET:
        return known, None
    kind = SETTINGS[known].kind
    try:
        value: Value = text if kind is str else kind(text.strip())
    except ValueError:
        wanted = "a whole number" if kind is int else "a number"
        raise BadRequestError(
            f"{known} is {text.strip()[:40]!r}; it must be {wanted}: {SETTINGS[known].help}"
        ) from None
    check_options(**{known: value})
    return known, value


def stored_settings(params: Mapping[str, object]) -> dict[str, Value]:
    """The settings among the parameters of a saved conversation that are in the table and still allowed."""
    kept: dict[str, Value] = {}
    for name, value in params.items():
        if name in SETTINGS and isinstance(value, str | int | float) and not isinstance(value, bool):
            try:
                check_options(**{name: value})
            except BadRequestError:
                continue  # an imported conversation may hold anything
            kept[name] = value
    return kept
