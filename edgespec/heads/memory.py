"""The memory that draft heads take beside their model, from the headers of their files."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from pathlib import Path

from edgespec.models.header import Header, read_header
from edgespec.models.memory import estimate

from ..errors import EdgeSpecError
from .registry import EAGLE, is_shipped, registered


@dataclass(frozen=True, slots=True)
class HeadMemory:
    """A models.memory.Heads. arrays: bytes of Medusa or sequential heads.  eagle: header of an EAGLE head's file.

    mtp: header of a model whose MTP layers are loaded: their weights and cache are counted with it.
    """

    arrays: int = 0
    eagle: Header | None = None
    mtp: Header | None = None

    def __call__(self, n_ctx: int, kv_type: str, flash: bool) -> int:
        """All bytes, with a cache of n_ctx tokens for heads that have one."""
        return self.arrays + self.following(n_ctx, kv_type, flash)

    def following(self, n_ctx: int, kv_type: str, flash: bool) -> int:
        """Bytes of heads that llama.cpp runs, where the model's layers are."""
        own = 0 if self.eagle is None else estimate(self.eagle, n_ctx, kv_type=kv_type, flash=flash).beside
        return own + (0 if self.mtp is None else estimate(self.mtp, n_ctx, kv_type=kv_type, flash=flash).compute)


def head_memory(medusa: Path | None, eagle: Path | None, mtp: Header | None = None) -> HeadMemory:
    """Of these files. One that cannot be read counts as nothing: loading says what is wrong with it."""
    arrays, head = 0, None
    with contextlib.suppress(EdgeSpecError):
        arrays = 0 if medusa is None else array_bytes(medusa)
    with contextlib.suppress(EdgeSpecError):
        head = None if eagle is None else read_header(eagle)
    return HeadMemory(arrays, head, mtp)


NO_HEADS = HeadMemory()


def usual_memory(header: Header) -> HeadMemory:
    """Of the heads that a model is loaded with where nobody says otherwise."""
    medusa, eagle = registered(header), registered(header, EAGLE)
    mtp = header if header.mtp_layers and eagle is None else None
    return head_memory(None if medusa is None or is_shipped(medusa) else medusa, eagle, mtp)


def array_bytes(path: Path) -> int:
    """Bytes that the heads in a safetensors file take once they have drafted. Raises as storage.read_heads."""
    from .sequential import table_bytes  # numpy, which a model without heads need not wait for
    from .storage import opened

    taken = 0
    with opened(path) as file:
        shapes: dict[str, tuple[int, ...]] = {
            name: tuple(file.get_slice(name).get_shape())
            for name in file.keys()  # noqa: SIM118  # no mapping
        }
    for name, shape in shapes.items():
        # As they are read: ids of 8 bytes, the output rows of sequential heads in 8 bits, all else float32.
        taken += math.prod(shape) * (8 if name == "vocabulary" else 1 if name == "rows" else 4)
    rows, basis = shapes.get("rows", ()), shapes.get("basis", ())
    if len(rows) == len(basis) == 2:
        taken += table_bytes(rows[0], rows[1], basis[1])
    return taken
