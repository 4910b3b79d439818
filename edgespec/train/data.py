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

_LARGEST = 60_000.0  # what float16 holds, about; states are far smaller


@dataclass(frozen=True, slots=True)
class Text:
    """tokens: (m,) int32, as written.  states: (m, n_embd) float16, each the one that chose the token beside it."""

    tokens: NDArray[np.int32]
    states: NDArray[np.float16]


@dataclass(frozen=True, slots=True)
class Pairs:
    """states: (N, n_embd) float16.  wanted: (N, K) int64: what head k should guess, or -1: the text ended before.

    Where wanted[i, k] is a token, states[i + 1 + k] is the state that chose it.
    """

    states: NDArray[np.float16]
    wanted: NDArray[np.int64]


def halved(state: NDArray[np.float32]) -> NDArray[np.float16]:
    """A state in float16, which never overflows."""
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


def write_shard(path: Path, texts: Sequence[Text]) -> None:
    """Keep the texts of one group."""
    write_arrays(
        path,
        tokens=np.concatenate([text.tokens for text in texts]),
        states=np.concatenate([text.states for text in texts]),
        lengths=np.array([len(text.tokens) for text in texts]),
    )


def read_shard(path: Path) -> list[Text] | None:
    """The texts of one group; None where it is missing or damaged."""
    arrays = read_arrays(path)
    if arrays is None or not {"tokens", "states", "lengths"} <= set(arrays):
        return None
    ends = np.cumsum(arrays["lengths"])
    if not len(ends) or ends[-1] != len(arrays["tokens"]) or len(arrays["states"]) != len(arrays["tokens"]):
        return None
    cuts = ends[:-1]
    return [
        Text(tokens, states)
        for tokens, states in zip(np.split(arrays["tokens"], cuts), np.split(arrays["states"], cuts), strict=True)
    ]


def vocabulary(texts: Sequence[Text], most: int) -> NDArray[np.int64]:
    """The `most` tokens that the model used most, ascending; the lower id among equals."""
    ids, counts = np.unique(np.concatenate([text.tokens for text in texts]), return_counts=True)
    order = np.lexsort((ids, -counts))[:most]
    return np.sort(ids[order]).astype(np.int64)


def pairs(texts: Sequence[Text], heads: int) -> Pairs:
    """All positions of all texts. The state that chose token j is to guess tokens j + 1, j + 2, ... with its heads."""
    wanted = []
    for text in texts:
        padded = np.concatenate([text.tokens, np.full(heads, -1, np.int32)])
        wanted.append(np.stack([padded[k + 1 : k + 1 + len(text.tokens)] for k in range(heads)], axis=1))
    return Pairs(np.concatenate([text.states for text in texts]), np.concatenate(wanted).astype(np.int64))
