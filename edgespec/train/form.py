"""What a form of heads is to a training: a row of forms.FORMS, which everything else goes by."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgespec.models.header import Header

from ..api import LLM
from ..drafting import Drafter
from .data import Text
from .fit import Trainer
from .network import Floats
from .settings import TrainSettings


@dataclass(frozen=True, slots=True)
class Material:
    """What heads are made of. texts: to learn from.  held: to judge by.  ids: the draft vocabulary.  rows: (D, n),
    the model's own output matrix for it.
    """

    header: Header
    texts: list[Text]
    held: list[Text]
    ids: NDArray[np.int64]
    rows: Floats


@dataclass(frozen=True, slots=True)
class Form:
    """source: what such heads are called as a source of guesses, and registered as.  suffix: of their file.

    weights: numbers that are learned, about, for (n_embd, heads).  working: bytes that learning takes beside texts and
    these, for (n_embd, tokens of the draft vocabulary, settings).  begin: the trainer, and what it is judged by; raises
    EdgeSpecError.  drafters: makes drafters for a loaded model from a file of heads, while it is entered.
    """

    source: str
    suffix: str
    weights: Callable[[int, int], int]
    working: Callable[[int, int, TrainSettings], int]
    begin: Callable[[Material, TrainSettings], tuple[Trainer[Any], Any]]
    drafters: Callable[[LLM, Path], AbstractContextManager[Callable[[], Drafter]]]
