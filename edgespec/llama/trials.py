"""What only a try tells of a context: whether it forgets single tokens, and gives hidden states beside logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .decodes import Decodes
from .slots import Slots


def rolls_back(lib: Any, memory: Any, decodes: Decodes, slots: Slots) -> bool:
    """Recurrent and hybrid models may refuse to forget single tokens."""
    slot = slots.least_used()
    _decode(decodes, slot.id, [0, 0, 0])
    able = bool(lib.llama_memory_seq_rm(memory, slot.id, 1, -1))
    lib.llama_memory_seq_rm(memory, slot.id, -1, -1)
    return able


def states_beside_logits(
    lib: Any, memory: Any, decodes: Decodes, slots: Slots, switch: Callable[[bool], None], vocab_size: int
) -> bool:
    """Are the logits of a token the same with hidden states, and not what an earlier decode left there?

    switch: turns hidden states on or off.
    """
    slot, rows = slots.least_used(), []
    slots.cut(slot, 0)
    for token, on in ((0, False), (min(1, vocab_size - 1), False), (0, True)):
        switch(on)
        _decode(decodes, slot.id, [token])
        rows.append(decodes.rows()[0].copy())
        lib.llama_memory_seq_rm(memory, slot.id, -1, -1)
    return bool(np.allclose(rows[0], rows[2], rtol=1e-3, atol=1e-3))


def _decode(decodes: Decodes, slot: int, tokens: list[int]) -> None:
    decodes.batch.clear()
    decodes.batch.add(slot, 0, tokens, outputs=1)
    decodes.run([], lambda code: False)
