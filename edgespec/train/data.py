"""Texts that the model wrote, with its hidden states: kept on disk in shards, and made into pairs to learn from."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

TOP = 32  # tokens of a distribution that are kept, the likeliest ones
BEFORE = 8  # tokens of the prompt that are kept, the latest ones
_LARGEST = 60_000.0  # what float16 holds, about; states are far smaller
_NO_TOKEN = -1


@dataclass(frozen=True, slots=True)
class Text:
    """One text as it was written, its end token included.

    tokens: (m,) int32.  states: (m, n_embd) float16, each the one that chose the token beside it.  top: (m, TOP) int32,
    the likeliest tokens there, and chances: (m, TOP) float16, how likely they were; -1 and 0 where there are fewer.
    before: (BEFORE,) int32, the end of the prompt, -1 where it is shorter.
    """

    tokens: NDArray[np.int32]
    states: NDArray[np.float16]
    top: NDArray[np.int32]
    chances: NDArray[np.float16]
    before: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Pairs:
    """All positions of some texts, and what heads should guess there.

    states: (N, n_embd) float16.  seen: (N, window + K - 1) int64, places in the draft vocabulary of the tokens around:
    head k sees columns k to k + window - 1, the last of which is the token drafted just before; D for tokens that it
    has not.  wanted: (N, K) int64, the place of the token k + 1 places on; -1: it has none, or the text ended before.
    known: (N, K) bool, false where the text ended before.  Where known[i, k] holds, position i + 1 + k is the one that
    chose the wanted token: top, (N, TOP) int32 places or -1, and chances, (N, TOP) float32, are its distribution.
    """

    states: NDArray[np.float16]
    seen: NDArray[np.int64]
    wanted: NDArray[np.int64]
    known: NDArray[np.bool_]
    top: NDArray[np.int32]
    chances: NDArray[np.float32]


def halved(state: NDArray[np.float32]) -> NDArray[np.float16]:
    """States in float16, which never overflows."""
    return np.clip(state, -_LARGEST, _LARGEST).astype(np.float16)


def write_arrays(path: Path, **arrays: NDArray[Any]) -> None:
    """Write an .npz file whole or not at all. Raises OSError."""
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            cast(Any, np.savez)(file, **arrays)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_arrays(path: Path) -> dict[str, NDArray[Any]] | None:
    """What write_arrays() wrote; None where there is no such file, or it is damaged: it is then made again."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
        return None


_PARTS = ("tokens", "states", "top", "chances")  # of a text, one row a token


def write_shard(path: Path, texts: Sequence[Text]) -> None:
    """Keep the texts of one group."""
    write_arrays(
        path,
        lengths=np.array([len(text.tokens) for text in texts]),
        before=np.stack([text.before for text in texts]),
        **{part: np.concatenate([getattr(text, part) for text in texts]) for part in _PARTS},
    )


def read_shard(path: Path) -> list[Text] | None:
    """The texts of one group; None where it is missing or damaged."""
    arrays = read_arrays(path)
    if arrays is None or not {*_PARTS, "lengths", "before"} <= set(arrays):
        return None
    ends = np.cumsum(arrays["lengths"])
    if not len(ends) or len(arrays["before"]) != len(ends) or any(len(arrays[p]) != ends[-1] for p in _PARTS):
        return None
    tokens, states, top, chances = (np.split(arrays[part], ends[:-1]) for part in _PARTS)
    return [Text(*of_one) for of_one in zip(tokens, states, top, chances, list(arrays["before"]), strict=True)]


def vocabulary(texts: Sequence[Text], most: int) -> NDArray[np.int64]:
    """The `most` tokens that the model is likeliest to use, ascending; the lower id among equals.

    Counted by the chances that they had: a text says more about them than the one token that was chosen each time.
    """
    tokens = np.concatenate([text.tokens for text in texts])
    top = np.concatenate([text.top for text in texts]).ravel()
    chances = np.concatenate([text.chances for text in texts]).ravel().astype(np.float64)
    inside = top >= 0
    uses = np.bincount(top[inside], weights=chances[inside], minlength=int(tokens.max(initial=0)) + 1)
    uses[: int(tokens.max(initial=0)) + 1] += np.bincount(tokens, minlength=int(tokens.max(initial=0)) + 1)
    ids = np.flatnonzero(uses)
    order = np.lexsort((ids, -uses[ids]))[:most]
    return np.sort(ids[order]).astype(np.int64)


def places(tokens: NDArray[Any], ids: NDArray[np.int64], absent: int = -1) -> NDArray[np.int64]:
    """Where each token stands in the vocabulary; `absent`: nowhere."""
    found = np.minimum(np.searchsorted(ids, tokens), len(ids) - 1)
    return np.where((tokens >= 0) & (ids[found] == tokens), found, absent)


def pairs(texts: Sequence[Text], ids: NDArray[np.int64], heads: int, window: int) -> Pairs:
    """All positions. The state that chose token j is to guess tokens j + 1, j + 2, ... with its heads."""
    seen, wanted, known = [], [], []
    for text in texts:
        m = len(text.tokens)
        line = np.concatenate([text.before, text.tokens, np.full(heads, _NO_TOKEN, np.int32)])
        here = np.arange(m)[:, None] + len(text.before)
        seen.append(line[here + np.arange(1 - window, heads)])
        wanted.append(line[here + np.arange(1, heads + 1)])
        known.append(np.arange(m)[:, None] + np.arange(1, heads + 1) < m)
    chances = np.concatenate([text.chances for text in texts]).astype(np.float32)
    top = places(np.concatenate([text.top for text in texts]), ids)
    chances[top < 0] = 0
    return Pairs(
        np.concatenate([text.states for text in texts]),
        places(np.concatenate(seen), ids, absent=len(ids)),
        places(np.concatenate(wanted), ids),
        np.concatenate(known),
        top.astype(np.int32),
        chances,
    )
