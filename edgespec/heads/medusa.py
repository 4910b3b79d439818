"""Medusa heads: each guesses one further token from the same hidden state (arXiv 2401.10774)."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import BadRequestError, ModelLoadError
from .one_thread import one_thread

Floats = NDArray[np.float32]

MAX_HEADS = 16
_TIMED = 3  # runs of which the fastest counts


@dataclass(frozen=True, slots=True)
class Facts:
    """What heads were made for and how.

    target: identity of the model's file (models.identity), or empty where any file of these sizes may use them.
    target_name: for people.  vocab_size, n_embd: of the model.  recipe, scores: how they were trained and how well
    they guess, for people; may be empty.
    """

    vocab_size: int
    n_embd: int
    target: str = ""
    target_name: str = ""
    recipe: str = ""
    scores: str = ""

    def check_target(self, *, vocab_size: int, n_embd: int, identities: tuple[str, ...], name: str) -> None:
        """Raise ModelLoadError unless heads with these facts fit a model. identities: of its files."""
        made = self.target_name or "another model"
        for what, theirs, its in (
            ("hidden states of {} numbers", self.n_embd, n_embd),
            ("a vocabulary of {} tokens", self.vocab_size, vocab_size),
        ):
            if theirs != its:
                raise ModelLoadError(
                    f"these heads were made for {what.format(theirs)} and {name} has {what.format(its)}; "
                    "give heads that were made for it"
                )
        if self.target and self.target not in identities:
            raise ModelLoadError(
                f"these heads were made for another file ({made}) than {name}; give heads that were made for it"
            )


@dataclass(frozen=True, eq=False, slots=True)
class Block:
    """A residual block, h + SiLU(W h + b). weight: (n_embd, n_embd) float32.  bias: (n_embd,) float32."""

    weight: Floats
    bias: Floats

    def __call__(self, state: Floats) -> Floats:
        inner = self.weight @ state + self.bias
        # x * sigmoid(x), written so that no exponential overflows.
        activated: Floats = state + inner * (0.5 * (1 + np.tanh(0.5 * inner)))
        return activated


@dataclass(frozen=True, eq=False)
class MedusaHeads:
    """K heads over a draft vocabulary.

    ids: (D,) token ids that can be guessed, ascending; all others are never drafted.  blocks: of each head, in order.
    projections: (D, n_embd) float32 for each head, or one that all share: it is then read once for all of them.
    Head k, from 0, guesses the token k + 2 places behind the one whose state it is given: the model itself chooses the
    next one. Raises BadRequestError where the parts do not fit together.
    """

    facts: Facts
    ids: NDArray[np.int64]
    blocks: tuple[tuple[Block, ...], ...]
    projections: tuple[Floats, ...]

    def __post_init__(self) -> None:
        n, size = self.facts.n_embd, self.facts.vocab_size
        if not 1 <= len(self.blocks) <= MAX_HEADS:
            raise BadRequestError(f"there are {len(self.blocks)} heads; 1 to {MAX_HEADS} are supported")
        if len(self.projections) not in (1, len(self.blocks)):
            raise BadRequestError(
                f"{len(self.blocks)} heads have {len(self.projections)} projections; give one or each"
            )
        if not len(self.ids) or self.ids[0] < 0 or self.ids[-1] >= size or not (np.diff(self.ids) > 0).all():
            raise BadRequestError(f"the draft vocabulary must list ids from 0 to {size - 1}, ascending, each once")
        for projection in self.projections:
            check_array("a projection", projection, (len(self.ids), n))
        for block in (block for blocks in self.blocks for block in blocks):
            check_array("a block's weight", block.weight, (n, n))
            check_array("a block's bias", block.bias, (n,))

    @property
    def count(self) -> int:
        """K: the longest draft."""
        return len(self.blocks)

    def logits(self, state: Floats, count: int) -> Floats:
        """Of the first `count` heads over `ids`: shape (count, D), float32. state: (n_embd,) float32."""
        hidden = np.stack(
            [functools.reduce(lambda h, block: block(h), blocks, state) for blocks in self.blocks[:count]]
        )
        if len(self.projections) == 1:
            shared: Floats = hidden @ self.projections[0].T
            return shared
        return np.stack([p @ h for p, h in zip(self.projections[:count], hidden, strict=True)])

    def guesses(
        self, state: Floats, tokens: Sequence[int], count: int
    ) -> Generator[tuple[NDArray[np.int64], Floats], int, None]:
        """Of the first `count` heads in turn: (ids, logits). The drafted tokens that are sent change nothing."""
        for row in self.logits(state, count):
            yield self.ids, row

    @functools.cached_property
    def step_ms(self) -> float:
        """Milliseconds for each drafted token, measured here at first use: for planning, never for output."""
        state = np.full(self.facts.n_embd, 0.1, np.float32)
        return fastest_ms(lambda: self.logits(state, self.count)) / self.count

    def check_target(self, *, vocab_size: int, n_embd: int, identities: tuple[str, ...], name: str) -> None:
        """Raise ModelLoadError unless they were made for this model. identities: of its files (models.identity)."""
        self.facts.check_target(vocab_size=vocab_size, n_embd=n_embd, identities=identities, name=name)


def fastest_ms(run: Callable[[], object]) -> float:
    """Milliseconds that `run` takes in one thread, the fastest of a few times."""
    best = float("inf")
    with one_thread():
        for _ in range(_TIMED):
            start = time.perf_counter()
            run()
            best = min(best, time.perf_counter() - start)
    return 1000 * best


def check_array(what: str, array: Floats, shape: tuple[int, ...]) -> None:
    if array.shape != shape or array.dtype != np.float32:
        raise BadRequestError(f"{what} has shape {array.shape} and type {array.dtype}; {shape} and float32 are needed")
    if not np.isfinite(array).all():
        raise BadRequestError(f"{what} has a number that is not finite; the file is damaged, or training failed")
