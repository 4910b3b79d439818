"""The table of drafters. Adding one: a file beside this, a row here (docs/add-a-drafter.md)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..acceptance import Prior
from ..costs import Costs
from ..drafting import Drafter, Features, Head, LatestState
from ..errors import BadRequestError
from ..heads.storage import Heads
from ..losses import Ledger
from ..planning import Planner
from ..scoring import Scorer
from .chain import ChainDrafter
from .eagle import EagleDrafter
from .following import FollowingDrafter
from .knowledge import Knowledge
from .lookup import LookupDrafter
from .medusa import MedusaDrafter
from .model import ModelDrafter
from .mtp import MtpDrafter
from .planned import LATEST, PlannedDrafter
from .suffix import SuffixDrafter
from .suffix_index import Index

__all__ = [
    "DRAFTERS",
    "ChainDrafter",
    "EagleDrafter",
    "Knowledge",
    "LookupDrafter",
    "MedusaDrafter",
    "ModelDrafter",
    "MtpDrafter",
    "PlannedDrafter",
    "Resources",
    "SuffixDrafter",
    "build",
    "planned",
    "select",
]


@dataclass(frozen=True, slots=True)
class Resources:
    """What a request offers its drafters.

    draft: the draft model's context.  draft_temperature: its own, or None for the request's.
    cancelled: set when the request is cancelled.  past: the user's earlier replies, where they are kept.
    heads: Medusa heads on the target's hidden states.  eagle: an EAGLE head that follows the target.  mtp: the
    target's own MTP layers.  ends: is this one of the target's end tokens?
    """

    draft: Scorer | None = None
    draft_temperature: float | None = None
    cancelled: threading.Event | None = None
    past: Index | None = None
    heads: Heads | None = None
    eagle: Head | None = None
    mtp: Head | None = None
    ends: Callable[[int], bool] = lambda _: False


@dataclass(frozen=True, slots=True)
class Row:
    """make: a new drafter for one request.  needs: what it cannot work without, a key of _NEEDS; empty: nothing.

    prior: acceptance by feature that the planner expects before it has seen any of its tokens.
    """

    make: Callable[[Resources], Drafter]
    needs: str = ""
    prior: Prior = lambda _: 0.5


# What a source may need, and what is said where it is missing.
_NEEDS = {
    "draft": "drafter {} needs a draft model; give one with --draft NAME or PATH",
    "heads": "drafter {} needs heads for this model; give their file with --heads PATH",
    "eagle": "drafter {} needs an EAGLE head for this model; give its file with --heads PATH",
    "mtp": "drafter {} needs a model file with MTP layers that llama.cpp runs; choose another drafter",
}


def _model(resources: Resources, latest: int | None = None) -> ModelDrafter:
    if resources.draft is None:
        raise BadRequestError(_NEEDS["draft"].format("model"))
    return ModelDrafter(
        resources.draft, temperature=resources.draft_temperature, cancelled=resources.cancelled, latest=latest
    )


def _medusa(resources: Resources) -> MedusaDrafter:
    if resources.heads is None:
        raise BadRequestError(_NEEDS["heads"].format("medusa"))
    return MedusaDrafter(resources.heads, LatestState(), ends=resources.ends)


def _eagle(resources: Resources) -> EagleDrafter:
    if resources.eagle is None:
        raise BadRequestError(_NEEDS["eagle"].format("eagle"))
    return EagleDrafter(resources.eagle, Features(), ends=resources.ends)


def _mtp(resources: Resources) -> MtpDrafter:
    if resources.mtp is None:
        raise BadRequestError(_NEEDS["mtp"].format("mtp"))
    return MtpDrafter(resources.mtp, Features(), ends=resources.ends)


# Chain order, cheapest first: each round takes the first source that proposes anything.
DRAFTERS: dict[str, Row] = {
    # Counts before the latest occurrence: suffix has a better draft wherever both have one, and lookup still
    # stands in where a path is too improbable for suffix.
    "suffix": Row(
        lambda resources: SuffixDrafter(past=resources.past), prior=lambda twentieths: (twentieths + 0.5) / 20
    ),
    "lookup": Row(lambda _: LookupDrafter(), prior=lambda matched: min(0.85, 0.1 + 0.1 * matched)),
    # A head sees less of what came before with each place.
    "medusa": Row(_medusa, needs="heads", prior=lambda place: 0.5 * 0.8**place),
    # These see what was drafted, but guess from guesses.
    "eagle": Row(_eagle, needs="eagle", prior=lambda place: 0.6 * 0.9**place),
    "mtp": Row(_mtp, needs="mtp", prior=lambda place: 0.7 * 0.8**place),
    "model": Row(_model, needs="draft", prior=lambda _: 0.7),
}


def select(
    wanted: str, *, has_draft: bool, has_heads: bool = False, has_eagle: bool = False, has_mtp: bool = False
) -> tuple[str, ...]:
    """Names in chain order for "auto" (all that can work), "none" or a comma-separated list.

    Raises BadRequestError for an unknown name, or one that needs what there is not.
    """
    has = {"": True, "draft": has_draft, "heads": has_heads, "eagle": has_eagle, "mtp": has_mtp}
    if wanted == "none":
        return ()
    if wanted == "auto":
        return tuple(name for name, row in DRAFTERS.items() if has[row.needs])
    names = [name.strip() for name in wanted.split(",")]
    for name in names:
        if name not in DRAFTERS:
            raise BadRequestError(
                f"drafter {name!r} is not known; choose auto, none, or a comma list of {', '.join(DRAFTERS)}"
            )
        if not has[needed := DRAFTERS[name].needs]:
            raise BadRequestError(_NEEDS[needed].format(name))
    return tuple(name for name in DRAFTERS if name in names)


def build(names: Sequence[str], resources: Resources) -> Drafter | None:
    """One drafter for a request: the named one, a chain of several, or None."""
    made = [DRAFTERS[name].make(resources) for name in names]
    return made[0] if len(made) == 1 else ChainDrafter(made) if made else None


def planned(
    names: Sequence[str],
    resources: Resources,
    costs: Costs,
    *,
    draft_costs: Costs | None = None,
    remaining: int = 256,
    coupled: bool = False,
    knowledge: Knowledge | None = None,
    circumstance: str = "",
    ledger: Ledger | None = None,
) -> PlannedDrafter:
    """A drafter that plans each round over the named sources. See PlannedDrafter and planning.Planner.

    knowledge: what earlier requests under this circumstance taught; this one adds to it when it is closed.
    ledger: of all requests that may share its rounds.
    """
    made = {name: DRAFTERS[name].make(resources) for name in names}
    model = made.pop("model", None)
    heads = [
        drafter for name in _HEADS if isinstance(drafter := made.pop(name, None), MedusaDrafter | FollowingDrafter)
    ]
    priors = {name: DRAFTERS[name].prior for name in names} | {"confidence": _confidence}
    seen = {} if knowledge is None else knowledge.recall(circumstance, priors)
    planner = Planner(costs, priors, acceptance=seen, remaining=remaining, ledger=ledger)
    return PlannedDrafter(
        tuple(made.values()),
        planner,
        model=model if isinstance(model, ModelDrafter) else None,
        heads=heads,
        glimpse=_model(resources, latest=LATEST) if model is not None else None,
        model_costs=draft_costs,
        coupled=coupled,
        learn=None if knowledge is None else lambda: knowledge.learn(circumstance, seen),
    )


_HEADS = ("medusa", "eagle", "mtp")


def _confidence(twentieths: int) -> float:
    """Acceptance of a token of a draft model by the largest probability of its proposal, before any was seen."""
    return 0.3 + 0.033 * twentieths
