"""Heads over the fake hidden states of a TableModel, and those states without a loop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgespec.heads.medusa import Block, Facts, MedusaHeads
from edgespec.heads.quantized import Quantized
from edgespec.heads.sequential import SequentialHeads, Step
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


def random_sequential(
    vocab_size: int = 3,
    n_embd: int = 6,
    *,
    count: int = 3,
    window: int = 2,
    seen: int = 4,
    hidden: int = 8,
    gain: float = 1.0,
    ids: Sequence[int] | None = None,
    seed: int = 5,
    target: str = "",
) -> SequentialHeads:
    """Sequential heads with random weights.

    seen: numbers of a token.  hidden: of a head.  gain: how much its guess differs with the tokens before it.
    """
    rng = np.random.default_rng(seed)
    chosen = np.array(range(vocab_size) if ids is None else ids, dtype=np.int64)

    def normal(*shape: int) -> NDArray[np.float32]:
        values: NDArray[np.float32] = rng.standard_normal(shape, dtype=np.float32) / np.float32(shape[-1] ** 0.5)
        return values

    basis = np.linalg.qr(rng.standard_normal((n_embd, seen)))[0].astype(np.float16).astype(np.float32)
    steps = tuple(
        Step(
            np.hstack((normal(n_embd, n_embd), np.float32(gain) * normal(n_embd, window * seen))),
            normal(n_embd),
            normal(hidden, n_embd),
            normal(hidden),
            2 * normal(n_embd, hidden),
        )
        for _ in range(count)
    )
    rows = Quantized.of(2 * normal(len(chosen), n_embd))
    centre, unit, bias = normal(n_embd), (0.5 + rng.random(n_embd)).astype(np.float32), normal(len(chosen))
    facts = Facts(vocab_size, n_embd, target, "table")
    return SequentialHeads(facts, chosen, centre, unit, rows, bias, basis, window, steps)


def equal(a: MedusaHeads, b: MedusaHeads, tolerance: float = 0.0) -> bool:
    """The same Medusa heads? tolerance: of their weights."""
    ours = [*a.projections, *(part for blocks in a.blocks for block in blocks for part in (block.weight, block.bias))]
    theirs = [*b.projections, *(part for blocks in b.blocks for block in blocks for part in (block.weight, block.bias))]
    return (
        a.facts == b.facts
        and np.array_equal(a.ids, b.ids)
        and len(ours) == len(theirs)
        and all(np.allclose(x, y, rtol=tolerance, atol=tolerance) for x, y in zip(ours, theirs, strict=True))
    )


class TableStates:
    """The states of a TableModel for any text, as a loop would leave them."""

    def __init__(self, target: TableModel) -> None:
        self._target = target

    def put(self, length: int, state: NDArray[np.float32]) -> None:
        """Known without being told."""

    def before(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        return self._target.state(tokens[:-1])
