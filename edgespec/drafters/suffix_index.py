"""Where did the latest tokens stand before? Indexes of n-grams, of a growing text and of a fixed one.

Both answer the question a suffix tree answers (arXiv 2411.04975): the places whose past agrees longest with
the present. A place is found by the hash of the 8 or 2 tokens before it, then compared token by token. So
neither time nor memory grows with how repetitive a text is: a token costs two entries of two integers.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

SIZES = (8, 2)  # n-grams indexed, longest first: more sizes found hardly more
LONGEST = 32  # tokens compared: a longer match says little more
_BASE = 0x9E3779B97F4A7C15  # odd, with bits all over: hashes are polynomials in it, modulo 2^64
_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Match:
    """A place whose past is the present's: text[next] followed it. length: tokens that agree, LONGEST at most."""

    text: Sequence[int]
    next: int
    length: int


class Index(Protocol):
    """Finds matches of the end of a text."""

    def matches(self, present: Sequence[int], limit: int) -> list[Match]:
        """Up to `limit` places, by the longest of the index's n-grams that agrees, the latest first among equals."""
        ...


class GrowingIndex:
    """An index of one text that grows by a token at a time. Its matches are of its own end.

    sizes: lengths of n-grams, descending.  capacity: tokens held; at that many the older half is forgotten.
    operations: n-grams entered and places compared so far, a count that tests bound.
    """

    def __init__(self, *, sizes: Sequence[int] = SIZES, capacity: int = 1 << 15) -> None:
        self._sizes = tuple(sizes)
        self._capacity = max(capacity, 2)
        self.operations = 0
        self._clear()

    def _clear(self) -> None:
        self.tokens: list[int] = []
        # Per size: n-gram hash -> the latest place after one, and place -> the one before it with that hash.
        self._latest: list[dict[int, int]] = [{} for _ in self._sizes]
        self._earlier = [array("i") for _ in self._sizes]

    def append(self, token: int) -> None:
        """Add one token: every n-gram that ended before it now has a continuation."""
        if len(self.tokens) >= self._capacity:
            kept = self.tokens[-(self._capacity // 2) :]
            self._clear()
            for old in kept:
                self._enter(old)
        self._enter(token)

    def _enter(self, token: int) -> None:
        tokens, end = self.tokens, len(self.tokens)
        self.operations += len(self._sizes)
        for size, latest, earlier in zip(self._sizes, self._latest, self._earlier, strict=True):
            if size > end:
                earlier.append(-1)
                continue
            key = hash(tuple(tokens[end - size :]))
            earlier.append(latest.get(key, -1))
            latest[key] = end
        tokens.append(token)

    def matches(self, present: Sequence[int], limit: int) -> list[Match]:
        """See Index. present: this text itself, or its end."""
        tokens = self.tokens
        found: list[Match] = []
        seen: set[int] = set()
        for size, latest, earlier in zip(self._sizes, self._latest, self._earlier, strict=True):
            if size > len(tokens):
                continue
            place = latest.get(hash(tuple(tokens[len(tokens) - size :])), -1)
            visits = 2 * limit  # places of a longer match come by again, those of an equal hash hardly ever
            while place >= 0 and visits and len(found) < limit:
                visits -= 1
                if place not in seen:
                    self.operations += 1
                    length = common_suffix(tokens, place, tokens, len(tokens))
                    if length >= size:
                        seen.add(place)
                        found.append(Match(tokens, place, length))
                place = earlier[place]
            if len(found) == limit:
                break
        return found


class FixedIndex:
    """An index of a text that stays as it is, in arrays: 12 bytes a token and size.

    tokens: (n,) int32; a negative one separates texts: no match reaches across it.  sizes: as in GrowingIndex.
    """

    def __init__(self, tokens: NDArray[np.int32], *, sizes: Sequence[int] = SIZES) -> None:
        self._tokens = array("i", tokens.astype(np.intc).tobytes())
        self._tokens.append(-1)  # the last text ends as well: what follows it is not known
        self._sizes = tuple(sizes)
        self._hashes: list[NDArray[np.uint64]] = []
        self._places: list[NDArray[np.int32]] = []
        for size in self._sizes:
            hashes, places = _hashed(tokens, size)
            order = np.argsort(hashes, kind="stable")  # equal hashes stay in the order of their places
            self._hashes.append(hashes[order])
            self._places.append(places[order])

    def matches(self, present: Sequence[int], limit: int) -> list[Match]:
        """See Index."""
        found: list[Match] = []
        seen: set[int] = set()
        for level, size in enumerate(self._sizes):
            for place in self._candidates(level, present, 2 * limit):
                if len(found) == limit:
                    return found
                if place not in seen:
                    length = common_suffix(self._tokens, place, present, len(present))
                    if length >= size:
                        seen.add(place)
                        found.append(Match(self._tokens, place, length))
        return found

    def _candidates(self, level: int, present: Sequence[int], limit: int) -> Iterator[int]:
        """The latest places after an n-gram with the hash of the present's."""
        size = self._sizes[level]
        if size > len(present):
            return
        key = 0
        for token in present[len(present) - size :]:
            key = (key * _BASE + token + 1) & _MASK
        hashes = self._hashes[level]
        first, last = (int(np.searchsorted(hashes, np.uint64(key), side)) for side in ("left", "right"))
        for i in range(last - 1, max(first, last - limit) - 1, -1):
            yield int(self._places[level][i])


def _hashed(tokens: NDArray[np.int32], size: int) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
    """Hashes of the n-grams that a token follows, and the places of those tokens."""
    count = max(0, len(tokens) - size)
    hashes = np.zeros(count, dtype=np.uint64)
    clean = tokens[size : size + count] >= 0
    with np.errstate(over="ignore"):
        for i in range(size):
            part = tokens[i : i + count]
            clean &= part >= 0
            hashes = hashes * np.uint64(_BASE) + (part.astype(np.uint64) + np.uint64(1))
    places = np.flatnonzero(clean).astype(np.int32)
    return hashes[places], places + np.int32(size)


def common_suffix(a: Sequence[int], a_end: int, b: Sequence[int], b_end: int) -> int:
    """How many tokens before a[a_end] and b[b_end] agree, LONGEST at most; a negative token never does."""
    n = 0
    while n < LONGEST and n < a_end and n < b_end and a[a_end - 1 - n] == b[b_end - 1 - n] >= 0:
        n += 1
    return n
