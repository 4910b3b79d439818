"""Heads over the fake hidden states of a TableModel, and those states without a loop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgespec.heads.medusa import Block, Facts, MedusaHeads
from edgespec.testing import TableModel


def random_heads(
    vocab_size: int = 3,
    n_embd: int = 6,
    *,
    count: int = 3,
    depth: int = 1,
    ids: Sequence[int] | None = None,
    shared: bool = False,
    seed: int = 5,
    target: str = "",
) -> MedusaHeads:
    """Heads with random weights, whose guesses differ from state to state. depth: blocks of each."""
    rng = np.random.default_rng(seed)
    chosen = np.array(range(vocab_size) if ids is None else ids, dtype=np.int64)

    def normal(*shape: int) -> NDArray[np.float32]:
        values: NDArray[np.float32] = rng.standard_normal(shape, dtype=np.float32) / np.float32(n_embd**0.5)
        return values

    blocks = tuple(tuple(Block(normal(n_embd, n_embd), normal(n_embd)) for _ in range(depth)) for _ in range(count))
    projections = tuple(2 * normal(len(chosen), n_embd) for _ in range(1 if shared else count))
    return MedusaHeads(Facts(vocab_size, n_embd, target, "table"), chosen, blocks, projections)


class TableStates:
    """The states of a TableModel for any text, as a loop would leave them."""

    def __init__(self, target: TableModel) -> None:
        self._target = target

    def put(self, length: int, state: NDArray[np.float32]) -> None:
        """Known without being told."""

    def before(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        return self._target.state(tokens[:-1])
