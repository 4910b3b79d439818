"""`edgespec chat --attach URL`: a chat with the model of a running server."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from ..errors import BadRequestError
from .options import SETTINGS_NAMES, given

if TYPE_CHECKING:
    from ..engine.server_engine import ServerEngine

_OF_A_MODEL = ("draft", "drafter", "heads", "no_tuned", "ctx_size", "suffix_history", *SETTINGS_NAMES)


def take_server(options: dict[str, Any]) -> ServerEngine | None:
    """The server that --attach names, taken out of the options, which keep the files. Raises BadRequestError."""
    named = [one for one in options["attach"] if re.match(r"https?://", one, re.IGNORECASE)]
    options["attach"] = tuple(one for one in options["attach"] if one not in named)
    if not named:
        for name in ("api_key", "ca_file"):
            if options[name] is not None:
                raise BadRequestError(f"--{name.replace('_', '-')} goes with --attach URL")
        return None
    if len(named) > 1:
        raise BadRequestError("--attach names two servers; give one")
    for name in _OF_A_MODEL:
        if given(name):
            raise BadRequestError(
                f"--{name.replace('_', '-')} is for a model of this machine; leave it out, or --attach URL"
            )
    if options["serve"] or options["visitor"] is not None:
        raise BadRequestError("--serve shares a model of this machine; leave out --attach URL, or chat in the terminal")
    from ..engine.server_engine import ServerEngine

    key = options["api_key"] or os.environ.get("EDGESPEC_API_KEY") or None
    model = options["model"] if given("model") else None
    return ServerEngine(named[0], key=key, model=model, ca_file=options["ca_file"])
