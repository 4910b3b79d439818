"""Hidden states: what a model's output matrix is applied to, in the same decode as the logits.

The last layer's output after the final norm, on every architecture. llama.cpp keeps them where "embeddings" are
switched on, and then makes every token of a batch an output: whoever switches them on decodes nothing but rows that
are asked for, and chunks of a prompt are decoded with them off. Off, nothing is computed, copied or asked.
"""

from __future__ import annotations

from typing import Any

from ..errors import BadRequestError
from ..scoring import Rows
from .views import RowsView


class HiddenStates:
    """Of one llama_context: the switch, and where each sequence's rows of the latest decode lie."""

    def __init__(self, lib: Any, handle: Any, size: int) -> None:
        """size: numbers of one state."""
        self._lib, self._handle = lib, handle
        self._on = False
        self._spans: dict[int, tuple[int, int]] = {}
        self._view = RowsView(size, "hidden states")

    def switch(self, on: bool) -> None:
        """Whether the next decode gives states; those of the decodes before are gone."""
        self._spans.clear()
        if on != self._on:
            self._lib.llama_set_embeddings(self._handle, on)
            self._on = on

    def note(self, slot: int, start: int, rows: int) -> None:
        """The decode that has just run gave this slot so many rows, from row `start` on."""
        if self._on:
            self._spans[slot] = (start, rows)

    def rows(self, slot: int) -> Rows:
        """Shape (rows, size), float32, without a copy: overwritten by the next decode."""
        if slot not in self._spans:
            raise BadRequestError("no hidden states were asked for; score with ScoreRequest(states=True)")
        start, count = self._spans[slot]
        return self._view.rows(self._lib.llama_get_embeddings(self._handle), start + count)[start:]
