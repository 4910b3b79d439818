"""What config.toml and EDGESPEC_* variables change for a command."""

from __future__ import annotations

import os
from itertools import takewhile
from typing import Any

from .options import SETTINGS

# They help to mend a broken file, so they run with one.
_MENDERS = ("config", "doctor")


def defaults_of(command: str, arguments: list[str]) -> dict[str, Any]:
    """click's default map: by command, then by parameter. Raises BadRequestError where file or environment are wrong.

    arguments: the command's; one that asks for help gets it whatever the file says.
    """
    from ..config import read

    config = read()
    before = takewhile(lambda argument: argument != "--", arguments)
    if config.problems and (command in _MENDERS or any(a in SETTINGS["help_option_names"] for a in before)):
        return {}
    config.checked()
    color = config.settings.get("color")
    if color is not None:
        _set_color(str(color.value))
    return {command: config.defaults(command)}


def _set_color(wanted: str) -> None:
    """As the variables that rich and our own output look at; where one is set already, that is what counts."""
    if not os.environ.get("NO_COLOR") and not os.environ.get("FORCE_COLOR"):
        if wanted == "never":
            os.environ["NO_COLOR"] = "1"
        elif wanted == "always":
            os.environ["FORCE_COLOR"] = "1"
