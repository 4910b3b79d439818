"""Rows of numbers that a head reads from the target: one for each token that the target decodes.

A tap is switched on once for a context; from then on every decode leaves its rows. A sequence that has an `ear`
(Sequence.ear) is told those of its own tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from ..drafting import FEATURES_KEPT
from ..scoring import Rows
from . import binding
from .unstable import unstable
from .views import RowsView

Ear = Callable[[int, Rows], None]


class Listener(Protocol):
    """What is told: a Sequence."""

    ear: Ear | None


class Tap(Protocol):
    """Where rows of a decode are.

    stated: only decodes that give hidden states have them, and every token of such a decode is an output.
    """

    @property
    def stated(self) -> bool: ...

    def open(self, context: Any) -> None:
        """Switch it on for a llama_context*, before its next decode. Raises ModelLoadError."""
        ...

    def rows(self, context: Any, start: int, end: int) -> Rows:
        """Of the tokens from `start` to before `end` of the latest decode; overwritten by the next one."""
        ...


class LayerInputs:
    """What goes into some layers, side by side: what an EAGLE-3 head is made for. Checked by check_layer_inputs."""

    stated = False

    def __init__(self, layers: Sequence[int], n_embd: int) -> None:
        self._layers = tuple(layers)
        self._views = [RowsView(n_embd, f"input of layer {layer}") for layer in layers]

    def open(self, context: Any) -> None:
        for layer in self._layers:
            unstable().set_layer_input(context, layer, True)

    def rows(self, context: Any, start: int, end: int) -> Rows:
        get = unstable().layer_input
        parts = (v.rows(get(context, layer), end)[start:] for layer, v in zip(self._layers, self._views, strict=True))
        return np.concatenate(list(parts), axis=1)


class NextnRows:
    """What the model's own MTP layers read."""

    stated = False

    def __init__(self, size: int) -> None:
        self._view = RowsView(size, "rows for MTP layers")

    def open(self, context: Any) -> None:
        unstable().set_nextn(context, True, False)

    def rows(self, context: Any, start: int, end: int) -> Rows:
        return self._view.rows(unstable().nextn(context), end)[start:]


class FinalStates:
    """Hidden states after the final norm, on every architecture: of rows that are asked for with states alone."""

    stated = True

    def __init__(self, size: int) -> None:
        self._view = RowsView(size, "hidden states")

    def open(self, context: Any) -> None:
        """Nothing: each decode says whether it wants them."""

    def rows(self, context: Any, start: int, end: int) -> Rows:
        return self._view.rows(binding.lib().llama_get_embeddings(context), end)[start:]


class Listening:
    """The tap of one llama_context, if any, and who is told of it."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._tap: Tap | None = None

    def open(self, tap: Tap) -> None:
        """Raises ModelLoadError."""
        tap.open(self._context)
        self._tap = tap

    def stated(self, sequence: Listener) -> bool:
        """Does this sequence listen to what only decodes with hidden states have?"""
        return self._tap is not None and self._tap.stated and sequence.ear is not None

    def tell(self, sequence: Listener, first: int, start: int, end: int, *, stated: bool) -> None:
        """Tell a sequence's ear of the tokens `start` to `end` of the latest decode; the first is number `first`.

        stated: that decode gave hidden states.
        """
        if self._tap is None or sequence.ear is None or (self._tap.stated and not stated):
            return
        skipped = max(0, end - start - FEATURES_KEPT)
        sequence.ear(first + skipped, self._tap.rows(self._context, start + skipped, end))
