"""The table of drafters. Adding one: a file beside this, a row here (docs/add-a-drafter.md)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..drafting import Drafter
from ..errors import BadRequestError
from ..scoring import Scorer
from .chain import ChainDrafter
from .lookup import LookupDrafter
from .model import ModelDrafter

__all__ = ["DRAFTERS", "ChainDrafter", "LookupDrafter", "ModelDrafter", "Resources", "build", "select"]


@dataclass(frozen=True, slots=True)
class Resources:
    """What a request offers its drafters.

    draft: the draft model's context.  draft_temperature: its own, or None for the request's.
    cancelled: set when the request is cancelled.
    """

    draft: Scorer | None = None
    draft_temperature: float | None = None
    cancelled: threading.Event | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """make: a new drafter for one request.  needs_draft: it cannot work without a draft model."""

    make: Callable[[Resources], Drafter]
    needs_draft: bool = False


def _model(resources: Resources) -> ModelDrafter:
    if resources.draft is None:
        raise BadRequestError("drafter model needs a draft model; give one with --draft NAME or PATH")
    return ModelDrafter(resources.draft, temperature=resources.draft_temperature, cancelled=resources.cancelled)


# Chain order, cheapest first: each round takes the first source that proposes anything.
DRAFTERS: dict[str, Row] = {
    "lookup": Row(lambda _: LookupDrafter()),
    "model": Row(_model, needs_draft=True),
}


def select(wanted: str, *, has_draft: bool) -> tuple[str, ...]:
    """Names in chain order for "auto" (all that can work), "none" or a comma-separated list.

    Raises BadRequestError for an unknown name, or one that needs a draft model where there is none.
    """
    if wanted == "none":
        return ()
    if wanted == "auto":
        return tuple(name for name, row in DRAFTERS.items() if has_draft or not row.needs_draft)
    names = [name.strip() for name in wanted.split(",")]
    for name in names:
        if name not in DRAFTERS:
            raise BadRequestError(
                f"drafter {name!r} is not known; choose auto, none, or a comma list of {', '.join(DRAFTERS)}"
            )
        if DRAFTERS[name].needs_draft and not has_draft:
            raise BadRequestError(f"drafter {name} needs a draft model; give one with --draft NAME or PATH")
    return tuple(name for name in DRAFTERS if name in names)


def build(names: Sequence[str], resources: Resources) -> Drafter | None:
    """One drafter for a request: the named one, a chain of several, or None."""
    made = [DRAFTERS[name].make(resources) for name in names]
    return made[0] if len(made) == 1 else ChainDrafter(made) if made else None
