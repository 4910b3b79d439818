"""What is compared with plain decoding: auto, plain itself, or a source with a fixed K."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..drafters import DRAFTERS, select
from ..errors import BadRequestError

SWEEP = (1, 2, 3, 5, 7, 11, 15)  # K, of --sweep
DEFAULT_K = 3
MAX_K = 31  # rows of one decode, less the one that needs no draft

_FORMS = "use auto, plain or SOURCE:K, such as lookup:3"


@dataclass(frozen=True, slots=True)
class Mode:
    """name: as typed.  sources: in chain order; none for plain; of the loaded model for auto.  draft_max: K; 0 is
    plain decoding, None leaves source and K to the program (auto)."""

    name: str
    sources: tuple[str, ...] = ()
    draft_max: int | None = 0


AUTO, PLAIN = Mode("auto", draft_max=None), Mode("plain")


def parse_mode(text: str, *, has_draft: bool, **has: bool) -> Mode:
    """A mode of --mode. has: as for drafters.select.

    Raises BadRequestError, also for a source that needs a draft model or heads without them.
    """
    if text in ("auto", "plain"):
        return AUTO if text == "auto" else PLAIN
    source, colon, k = text.rpartition(":")
    if not colon or not source:
        raise BadRequestError(f"mode {text!r} is not known; {_FORMS}")
    if source in ("auto", "none"):
        raise BadRequestError(f"mode {text!r} names no source; {_FORMS}, with one of {', '.join(DRAFTERS)}")
    if not re.fullmatch(r"[0-9]{1,9}", k) or not 1 <= int(k) <= MAX_K:
        raise BadRequestError(f"mode {text!r} has K = {k!r}; K is a whole number from 1 to {MAX_K}")
    return Mode(f"{source}:{int(k)}", select(source, has_draft=has_draft, **has), int(k))


def chosen_modes(
    given: Sequence[str], *, sweep: bool, sources: Sequence[str], has_draft: bool, **has: bool
) -> list[Mode]:
    """The modes to run, each once: those given, else auto and every source at K = 3; then the sweep's."""
    modes = [parse_mode(text, has_draft=has_draft, **has) for text in given]
    if not modes:
        modes = [AUTO]
        if not sweep:
            modes += [Mode(f"{name}:{DEFAULT_K}", (name,), DEFAULT_K) for name in sources]
    if sweep:
        modes += [Mode(f"{name}:{k}", (name,), k) for name in sources for k in SWEEP]
    return list({mode.name: mode for mode in modes}.values())
