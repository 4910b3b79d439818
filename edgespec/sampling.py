"""From logits to the distribution a token is drawn from: parameters, and the state of one request.

The order of the stages: logit bias, penalties, grammar mask, temperature, top-k, typical, top-p,
min-p, renormalise. Temperature 0 takes the most probable token after the grammar mask. The same
code makes the target's p and the drafter's q, for every drafted prefix, which is what keeps
speculation exact; edgespec/stages.py has the arithmetic and says how ties are broken.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .distribution import Distribution, Uniforms
from .errors import BadRequestError, DecodeError, EdgeSpecError
from .noise import Noise
from .stages import all_ids, largest, penalise, truncate

LogitBias = Mapping[int, float] | Iterable[tuple[int, float]]

_INF = math.inf
# name: (least, whether least itself is allowed, most, the range in words)
_RANGES: dict[str, tuple[float, bool, float, str]] = {
    "temperature": (0, True, _INF, "0 or more"),
    "top_p": (0, False, 1, "above 0 and at most 1 (1 = off)"),
    "min_p": (0, True, 1, "from 0 (off) to 1"),
    "typical": (0, False, 1, "above 0 and at most 1 (1 = off)"),
    "repeat_penalty": (0.01, True, 100, "from 0.01 to 100 (1 = off)"),
    "frequency_penalty": (-100, True, 100, "from -100 to 100 (0 = off)"),
    "presence_penalty": (-100, True, 100, "from -100 to 100 (0 = off)"),
}
_INTEGERS: dict[str, tuple[int, int, str]] = {
    "top_k": (0, 2**31 - 1, "0 (off) or more"),
    "penalty_last_n": (-1, 2**31 - 1, "-1 (all tokens), 0 (none) or more"),
    "seed": (0, 2**64 - 1, "from 0 to 2**64 - 1"),
}
_BIAS_LIMIT = 1e9

_FIRST_POOL, _SECOND_POOL = 64, 1024  # candidates a grammar is asked about before the whole vocabulary
_SURELY = 1 - 1e-9  # keeps a bound clear of rounding


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingParams:
    """How tokens are drawn. The defaults are llama.cpp's; every value is checked on construction.

    temperature: 0 is greedy.  top_k: 0 = off.  top_p, typical: 1 = off.  min_p: 0 = off.
    penalty_last_n: tokens (prompt included) the penalties look back at; -1 = all, 0 = none.
    logit_bias: token id -> added to its logit; -inf bans the token. Stored as a tuple of pairs in
    ascending id order.  seed: None = a fresh one per request.
    Raises BadRequestError naming the field and its range.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical: float = 1.0
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    penalty_last_n: int = 64
    logit_bias: LogitBias = ()
    seed: int | None = None

    def __post_init__(self) -> None:
        for name in _RANGES:
            object.__setattr__(self, name, _number(name, getattr(self, name)))
        for name in _INTEGERS:
            if name != "seed" or self.seed is not None:
                object.__setattr__(self, name, _integer(name, getattr(self, name)))
        object.__setattr__(self, "logit_bias", _bias_pairs(self.logit_bias))

    def replace(self, **changes: Any) -> SamplingParams:
        """A copy with some fields changed; raises BadRequestError for an unknown field."""
        known = [field.name for field in dataclasses.fields(self)]
        for name in changes:
            if name not in known:
                raise BadRequestError(f"unknown sampling parameter {name!r}; known are {', '.join(known)}")
        return dataclasses.replace(self, **changes)

    @property
    def penalises(self) -> bool:
        """True where a penalty can change a logit."""
        off = self.repeat_penalty == 1 and self.frequency_penalty == 0 and self.presence_penalty == 0
        return not off and self.penalty_last_n != 0


def _real(value: object) -> float:
    """A real number as a float; NaN for everything else."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _number(name: str, value: object) -> float:
    least, inclusive, most, words = _RANGES[name]
    number = _real(value)
    if not math.isfinite(number) or not (least < number <= most or (inclusive and number == least)):
        raise BadRequestError(f"{name} is {_shown(value)}; it must be a number {words}")
    return number


def _integer(name: str, value: object) -> int:
    least, most, words = _INTEGERS[name]
    if not isinstance(value, Integral) or isinstance(value, bool) or not least <= int(value) <= most:
        raise BadRequestError(f"{name} is {_shown(value)}; it must be a whole number {words}")
    return int(value)


def _bias_pairs(value: object) -> tuple[tuple[int, float], ...]:
    """logit_bias as checked pairs, ascending by id."""
    words = "it must map token ids (whole numbers from 0) to numbers from -1e9 to 1e9, or -inf to ban a token"
    items = value.items() if isinstance(value, Mapping) else value
    if isinstance(items, str) or not isinstance(items, Iterable):
        raise BadRequestError(f"logit_bias is {_shown(value)}; {words}")
    pairs: dict[int, float] = {}
    for item in items:
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise BadRequestError(f"logit_bias has the entry {_shown(item)}; {words}")
        token, bias = item
        if not isinstance(token, Integral) or isinstance(token, bool) or not 0 <= int(token) < 2**31:
            raise BadRequestError(f"logit_bias has the token id {_shown(token)}; {words}")
        number = _real(bias)
        if not (abs(number) <= _BIAS_LIMIT or number == -_INF):
            raise BadRequestError(f"logit_bias of token {int(token)} is {_shown(bias)}; {words}")
        if int(token) in pairs:
            raise BadRequestError(f"logit_bias names token {int(token)} twice; give one bias per token")
        pairs[int(token)] = number
    return tuple(sorted(pairs.items()))


def _shown(value: object) -> str:
    """A value as one short line of an error message."""
    text = repr(value) if isinstance(value, str) or not isinstance(value, Real) else str(value)
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "..."


class Grammar(Protocol):
    """A constraint on the next token that advances token by token (GBNF, JSON schema)."""

    def mask(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """For each of `ids` (n,): may it come next? Does not change the state."""
        ...

    def advance(self, token: int) -> None:
        """Move past `token`, which the mask must allow."""
        ...

    def clone(self) -> Grammar:
        """An independent copy of the state."""
        ...


class Sampler:
    """The sampling state of one running request: its parameters and its committed grammar state.

    noise: what seed-exact mode draws with; None: draws come from a generator.
    Raises BadRequestError where logit_bias names an id that `vocab_size` does not have.
    """

    def __init__(
        self, params: SamplingParams, vocab_size: int, grammar: Grammar | None = None, noise: Noise | None = None
    ) -> None:
        pairs = _bias_pairs(params.logit_bias)
        if pairs and pairs[-1][0] >= vocab_size:
            raise BadRequestError(
                f"logit_bias names token {pairs[-1][0]}; this model's token ids end at {vocab_size - 1}"
            )
        self.params = params
        self.vocab_size = vocab_size
        self.bias_ids = np.array([token for token, _ in pairs], dtype=np.int64)
        self.bias = np.array([bias for _, bias in pairs], dtype=np.float32)
        self._grammar = grammar
        self._noise = noise

    @property
    def greedy(self) -> bool:
        """True at temperature 0."""
        return self.params.temperature == 0

    def walk(self, tokens: Sequence[int], temperature: float | None = None) -> Walk:
        """Start one round after `tokens` (prompt and all committed tokens).

        temperature: the draft model's own, where it has one; the rest of the parameters stay.
        """
        own = self.params.temperature if temperature is None else _number("temperature", temperature)
        return Walk(self, tokens, own, None if self._grammar is None else self._grammar.clone())

    def choose(self, distribution: Distribution, index: int, rng: Uniforms) -> int:
        """Draw the token at place `index` of the text (tokens before it, prompt included).

        In seed-exact mode a function of seed, place and distribution alone; `rng` is not touched then.
        """
        return distribution.sample(rng) if self._noise is None else self._noise.choose(distribution, index)

    def commit(self, token: int) -> None:
        """Move the committed grammar state past an emitted token. End tokens are not committed."""
        if self._grammar is not None:
            _advance(self._grammar, token)


def _advance(grammar: Grammar, token: int) -> None:
    if not grammar.mask(np.array([token], dtype=np.int64))[0]:
        raise EdgeSpecError(f"the grammar does not allow token {token} here; ask Walk.allows before advancing")
    grammar.advance(token)


class Walk:
    """The rewindable view of one round: committed state plus the drafted tokens advanced so far."""

    def __init__(self, sampler: Sampler, tokens: Sequence[int], temperature: float, grammar: Grammar | None) -> None:
        params = sampler.params
        self._sampler = sampler
        self._temperature = temperature
        self._grammar = grammar
        self._counts: Counter[int] | None = None
        if params.penalises:
            last_n = params.penalty_last_n
            self._window = deque(tokens if last_n < 0 else tokens[-last_n:])
            self._counts = Counter(self._window)

    def distribution(self, logits: NDArray[np.float32]) -> Distribution:
        """The distribution of the next token. One-hot at temperature 0.

        logits: (n,) raw; n may differ from vocab_size (padding): ids past either end have probability 0.
        The result shares no memory with `logits`.
        Raises DecodeError for NaN or +inf logits, BadRequestError where no token is left.
        """
        if self._temperature == 0:
            return Distribution.one_hot(self.winner(logits))
        row = self._adjusted(logits)
        self._check(row.max())
        top_k = self._sampler.params.top_k
        if self._grammar is not None:
            return self._constrained(self._grammar, row, top_k or len(row))
        ids = largest(row, top_k or len(row))
        return self._truncated(ids, row)

    def winner(self, logits: NDArray[np.float32]) -> int:
        """The most probable token that is allowed; the lowest id among equals. Raises as `distribution`."""
        row = self._adjusted(logits)
        best = int(row.argmax())  # the first NaN where there is one
        self._check(row[best])
        if self._grammar is None or self.allows(best):
            return best
        for m in (_FIRST_POOL, _SECOND_POOL, len(row)):
            ids = _permitted(self._grammar, row, largest(row, m))
            if len(ids):
                return int(ids[row[ids].argmax()])
        raise _no_token()

    def allows(self, token: int) -> bool:
        """True where `token` is in the vocabulary and the grammar permits it now."""
        if not 0 <= token < self._sampler.vocab_size:
            return False
        return self._grammar is None or bool(self._grammar.mask(np.array([token], dtype=np.int64))[0])

    def advance(self, token: int) -> None:
        """Move past one drafted token: penalties count it, the grammar state moves.

        Raises EdgeSpecError where the grammar does not allow it: its successors have no distribution.
        """
        if self._grammar is not None:
            _advance(self._grammar, token)
        if self._counts is None:
            return
        self._window.append(token)
        self._counts[token] += 1
        last_n = self._sampler.params.penalty_last_n
        if 0 <= last_n < len(self._window):
            oldest = self._window.popleft()
            self._counts[oldest] -= 1
            if not self._counts[oldest]:
                del self._counts[oldest]

    def _adjusted(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Logits after bias and penalties; the input itself where neither applies."""
        sampler = self._sampler
        row = logits[: sampler.vocab_size]
        if not len(sampler.bias_ids) and not self._counts:
            return row
        row = row.astype(np.float32)  # a copy
        if len(sampler.bias_ids):
            end = np.searchsorted(sampler.bias_ids, len(row))
            row[sampler.bias_ids[:end]] += sampler.bias[:end]
        if self._counts:
            ids = np.fromiter(self._counts.keys(), np.int64, len(self._counts))
            counts = np.fromiter(self._counts.values(), np.int64, len(self._counts))
            inside = np.flatnonzero(ids < len(row))
            params = sampler.params
            repeat, frequency, presence = params.repeat_penalty, params.frequency_penalty, params.presence_penalty
            penalise(row, ids[inside], counts[inside], repeat, frequency, presence)
        return row

    def _check(self, top: np.float32) -> None:
        """`top`: the row's maximum, NaN where the row has one."""
        if not top < _INF:
            raise DecodeError(f"the model returned a logit of {top}; check the file, or try another KV type")
        if top == -_INF:
            raise _no_token()

    def _truncated(self, ids: NDArray[np.int64], row: NDArray[np.float32], unseen: float = 0.0) -> Distribution:
        params = self._sampler.params
        logits = row if len(ids) == len(row) else row[ids]
        return truncate(ids, logits, self._temperature, params.typical, params.top_p, params.min_p, unseen)

    def _constrained(self, grammar: Grammar, row: NDArray[np.float32], k: int) -> Distribution:
        """Top-k and what follows over the tokens the grammar permits.

        A mask over the vocabulary costs milliseconds, so the grammar is first asked about the best m
        tokens. k permitted ones among them are the k best permitted. Fewer are enough where min-p
        is sure to drop all others and their mass, at most, would not move the cut of top-p.
        """
        params = self._sampler.params
        for m in (max(_FIRST_POOL, k), max(_SECOND_POOL, k)):
            if m >= len(row):
                break
            pool = largest(row, m)
            ids = _permitted(grammar, row, pool)
            if len(ids) >= k:
                return self._truncated(ids[largest(row[ids], k)], row)
            if len(ids) and params.min_p > 0 and params.typical == 1:
                best_unseen = math.exp((float(row[pool].min()) - float(row[ids].max())) / self._temperature)
                if best_unseen < params.min_p * _SURELY:
                    least = self._truncated(ids, row)
                    most = self._truncated(ids, row, (k - len(ids)) * best_unseen)
                    if len(least.ids) == len(most.ids):
                        return least
        ids = _permitted(grammar, row, all_ids(len(row)))
        if not len(ids):
            raise _no_token()
        return self._truncated(ids[largest(row[ids], k)], row)


def _permitted(grammar: Grammar, row: NDArray[np.float32], ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Those of `ids` that the grammar permits and that are not banned."""
    ids = ids[row[ids] > -_INF]
    return ids[grammar.mask(ids)] if len(ids) else ids


def _no_token() -> BadRequestError:
    return BadRequestError("logit bias / grammar leave no token; loosen one of them")
