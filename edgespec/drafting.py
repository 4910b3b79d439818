"""What a drafter is: it proposes tokens, with the distribution each was drawn from.

See docs/add-a-drafter.md. Drafters live in edgespec/drafters, one file each, and are listed in
edgespec/drafters/__init__.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from .beside import Beside
from .distribution import Distribution
from .proposing import Drafting
from .sampling import Sampler
from .scoring import Rows
from .sharing import Prospect
from .stats import RoundEvent


@dataclass(frozen=True, slots=True)
class Draft:
    """A linear draft of K tokens. K = 0 means: decode one token plainly.

    tokens: (K,) ids.  proposals: (K,) the distribution q_i that token i was drawn from, after all
    processing.  source: the drafter's name, shown to people.  features: (K,) or empty: how sure the drafter
    is of each token, in its own small whole numbers; the planner learns what each is worth.
    """

    tokens: tuple[int, ...] = ()
    proposals: tuple[Distribution, ...] = ()
    source: str = "target"
    features: tuple[int, ...] = ()

    def cut(self, k: int) -> Draft:
        """The first k tokens. Safe only if k was not chosen by looking at sampled values."""
        if k >= len(self.tokens):
            return self
        return Draft(self.tokens[:k], self.proposals[:k], self.source, self.features[:k])


NO_DRAFT = Draft()


class Drafter(Protocol):
    """Proposes tokens for one conversation. One instance per running request."""

    @property
    def name(self) -> str:
        """The source name: "model", "lookup", ..."""
        ...

    def draft(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Draft:
        """Up to `k` tokens that may follow `tokens` (prompt and all committed tokens), or NO_DRAFT.

        A token once sampled is kept: dropping it because of its own value (a low q, say) biases the
        output. To stop after a token that is kept, or before sampling one, is free; so is to cut one-hot
        proposals anywhere (docs/exactness.md).
        """
        ...

    def observe(self, event: RoundEvent) -> None:
        """Told after each round what became of a draft (of any source)."""
        ...

    def close(self) -> None:
        """Release what the drafter holds. It is not used afterwards."""
        ...


class States(Protocol):
    """Where a request keeps the target's hidden state that its next draft may start from."""

    def put(self, length: int, state: NDArray[np.float32]) -> None:
        """state, shape (n_embd,), is that of the last of the first `length` tokens of the text. It is copied."""
        ...

    def before(self, tokens: Sequence[int]) -> NDArray[np.float32] | None:
        """The state of the token before the last of `tokens`, which chose that one; None where it is not known."""
        ...


class LatestState:
    """Keeps the state that was put last. Implements States."""

    def __init__(self) -> None:
        self._length, self._state = 0, np.empty(0, np.float32)

    def put(self, length: int, state: NDArray[np.float32]) -> None:
        self._length, self._state = length, state.copy()

    def before(self, tokens: Sequence[int]) -> NDArray[np.float32] | None:
        return self._state if self._length and self._length == len(tokens) - 1 else None


@runtime_checkable
class ReadsStates(Protocol):
    """A drafter that may draft from the target's hidden states: the loop then scores with them."""

    @property
    def states(self) -> States | None:
        """Where the loop puts one after every round, the one of the prompt included; None: not needed."""
        ...


FEATURES_KEPT = 128  # latest tokens of a text whose features are at hand


class Features:
    """What the target computed at the latest tokens of one text: a row for each, in the text's order.

    The target's decodes put them. A decode that verified a draft puts the rows of rejected tokens as well: whoever
    reads says how long the text is, and the next decode begins where it ends.
    """

    def __init__(self) -> None:
        self.start = 0  # token that the first row belongs to
        self._rows: list[NDArray[np.float32]] = []

    @property
    def end(self) -> int:
        """The token after the last one that has a row."""
        return self.start + len(self._rows)

    def put(self, first: int, rows: Rows) -> None:
        """rows, shape (n, width), are those of the tokens from `first` on. They are copied; later ones are dropped."""
        if not self.start <= first <= self.end:
            self.start, self._rows = first, []
        del self._rows[first - self.start :]
        self._rows += [row.copy() for row in rows]
        excess = max(0, len(self._rows) - FEATURES_KEPT)
        del self._rows[:excess]
        self.start += excess

    def rows(self, first: int, end: int) -> NDArray[np.float32]:
        """Those of the tokens from `first` to before `end`, which must be known: shape (end - first, width)."""
        return np.stack(self._rows[first - self.start : end - self.start])


@runtime_checkable
class ReadsFeatures(Protocol):
    """A drafter that may read what the target computes at each token: its sequence then tells it."""

    @property
    def features(self) -> Features | None:
        """Where the rows go; None: not needed."""
        ...


class HeadSequence(Protocol):
    """One text's share of a head's cache.

    Pair P of a text is token P + 1 with the feature of token P: from it the head guesses token P + 2.
    """

    def feed(self, first: int, tokens: Sequence[int], features: Rows) -> tuple[Rows, Rows]:
        """Decode the pairs from `first` on. They follow those in the cache, or it is empty.

        tokens: n ids.  features: shape (n, width), as encode() makes them. Returns (logits, feature) of the last pair:
        shape (vocabulary,), overwritten by the next call, and (width,), which stands for the target's own at the token
        that is guessed next but one. Raises ContextFullError, DecodeError; the cache then holds none of them.
        """
        ...

    def cut(self, first: int) -> None:
        """Forget the pairs from `first` on."""
        ...

    def close(self) -> None:
        """Give the share back."""
        ...


class Head(Protocol):
    """A layer that guesses tokens one by one from pairs of a token and a feature."""

    @property
    def vocab_size(self) -> int:
        """Ids that it can read run from 0 to below this."""
        ...

    @property
    def turn(self) -> AbstractContextManager[Any]:
        """A re-entrant lock: hold it from feed() until its logits are read."""
        ...

    @property
    def step_ms(self) -> float:
        """Milliseconds for one drafted token, measured: for planning."""
        ...

    def open(self) -> HeadSequence | None:
        """A share of the cache; None: all are taken."""
        ...

    def encode(self, rows: Rows) -> Rows:
        """Features out of what the target gave, a row each."""
        ...


@runtime_checkable
class Explains(Protocol):
    """A drafter that decides whether to draft, and says why it does not: empty where that is no decision."""

    @property
    def why(self) -> str:
        """One sentence, or nothing where it drafts."""
        ...


@runtime_checkable
class Steps(Protocol):
    """A drafter whose draft may take decodes of a draft model: requests that share a round share those, too."""

    def steps(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Drafting:
        """As draft(), but for the decodes: each is yielded, and the row of it sent back. One draft at a time."""
        ...


@runtime_checkable
class Shares(Protocol):
    """A drafter that minds what else is in the decode that verifies its draft."""

    @property
    def expects(self) -> float:
        """Tokens that its latest draft was expected to give beyond the one of a plain round."""
        ...

    def share(self, beside: Beside) -> None:
        """Told before each draft what other requests put, or are planned to put, into the same decode, and before
        observe() what they did put into it."""
        ...

    def prospect(
        self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator, beside: Beside
    ) -> Prospect | None:
        """What a draft of up to `k` tokens would give, asked before it where requests share a decode. beside: what the
        others have in it if nobody drafts.
        """
        ...
