"""Heads for a model that is being loaded: which there are, and the ones that are wanted put to use."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgespec.models.header import Header
from edgespec.models.identity import file_identity

from .api import LLM
from .errors import BadRequestError, EdgeSpecError, ModelLoadError
from .heads.eagle_file import read_eagle
from .heads.memory import HeadMemory, head_memory
from .heads.registry import AUTO, eagle_file, heads_file, is_shipped
from .heads.storage import Heads, read_heads
from .llama import Context
from .llama.context import NO_STATES
from .llama.following import open_eagle, open_mtp
from .llama.unstable import runs_mtp
from .text import sanitize

_BOTH = "eagle and mtp both follow the model token by token, and it feeds one of them; choose one as the drafter"


@dataclass(frozen=True, slots=True)
class Found:
    """Files with heads for a model, and whether its own has MTP layers that can draft."""

    medusa: Path | None = None
    eagle: Path | None = None
    mtp: bool = False

    @property
    def has(self) -> dict[str, bool]:
        """Arguments for drafters.select."""
        return {"has_heads": self.medusa is not None, "has_eagle": self.eagle is not None, "has_mtp": self.mtp}

    def memory(self, sources: tuple[str, ...], header: Header) -> HeadMemory:
        """What those take that these sources want, beside the model of this header."""
        medusa = self.medusa if "medusa" in sources else None
        eagle = self.eagle if "eagle" in sources else None
        return head_memory(medusa, eagle, header if wants_mtp(self, sources) else None)

    def left_out(self, sources: tuple[str, ...], *, mtp: bool) -> dict[str, bool]:
        """As `has`: what is not loaded, since none of these sources wants it. mtp: are the MTP layers loaded?"""
        return {
            "has_heads": self.medusa is not None and "medusa" not in sources,
            "has_eagle": self.eagle is not None and "eagle" not in sources,
            "has_mtp": self.mtp and not mtp,
        }


def find_heads(wanted: str, header: Header) -> Found:
    """What "auto", "none" or a path means for a model. Raises ModelNotFoundError."""
    return Found(heads_file(wanted, header), eagle_file(wanted, header), runs_mtp(header))


def spared(found: Found, heads: str) -> dict[str, bool]:
    """As found.has: what the drafters "auto" leave alone. Heads that come with EdgeSpec, where no file was named: on so
    small a model they have nothing to win, and the first chunk of each prompt is a decode more.
    """
    return {"has_heads": False} if heads == AUTO and found.medusa is not None and is_shipped(found.medusa) else {}


def wants_mtp(found: Found, sources: tuple[str, ...]) -> bool:
    """Are MTP layers to be loaded? A model feeds one follower, and a head that somebody made for it goes first."""
    return found.mtp and "mtp" in sources and not (found.eagle is not None and "eagle" in sources)


def check_together(sources: tuple[str, ...], drafter: str) -> None:
    """Raise BadRequestError where the named sources cannot be used together."""
    if drafter != AUTO and {"eagle", "mtp"} <= set(sources):
        raise BadRequestError(_BOTH)


def attach(llm: LLM, found: Found, sources: tuple[str, ...], original: Header, *, heads: str, drafter: str) -> None:
    """Give a model the heads among its sources. What keeps those from use that were asked for by name is raised; what
    keeps others is a line in its notes. original: of the file that was named, of which a tuned copy may be loaded.
    """
    target, required = llm.target, heads != AUTO or drafter != AUTO
    identities = (file_identity(original), file_identity(target.model.header))

    def without(error: EdgeSpecError, *, asked: bool) -> str:
        if asked:
            raise error
        return " ".join(sanitize(f"going on without heads: {error}").split())

    if found.medusa is not None and "medusa" in sources:
        try:
            llm.heads = _medusa(found.medusa, target, original, identities)
            if not is_shipped(found.medusa):  # what comes with the program is no news
                llm.notes += (f"using the draft heads in {sanitize(found.medusa.name)} (--heads none: without)",)
        except EdgeSpecError as error:
            llm.notes += (without(error, asked=required),)
    if found.eagle is not None and "eagle" in sources:
        try:
            llm.eagle = open_eagle(read_eagle(found.eagle), target, identities=identities)
            note = f"using the EAGLE head in {sanitize(found.eagle.name)} (--heads none: without)"
        except EdgeSpecError as error:
            note = without(error, asked=required)
        llm.notes += (note,)
    if target.model.settings.mtp:
        try:
            llm.mtp = open_mtp(target)
        except EdgeSpecError as error:
            llm.notes += (without(error, asked=drafter != AUTO),)
    used = Found(found.medusa if llm.heads else None, found.eagle if llm.eagle else None, llm.mtp is not None)
    llm.head_memory = used.memory(sources, original)


def _medusa(path: Path, target: Context, original: Header, identities: tuple[str, ...]) -> Heads:
    heads = read_heads(path)
    if not target.gives_states:
        raise ModelLoadError(f"{target.model.path.name}: {NO_STATES}; leave the heads out with --heads none")
    heads.check_target(
        vocab_size=target.vocab.size, n_embd=target.state_size, identities=identities, name=original.path.name
    )
    return heads
