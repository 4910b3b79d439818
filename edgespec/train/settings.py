"""What a training is asked for, and what it says while it runs."""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass
from typing import Protocol

from ..errors import BadRequestError

FORMS = ("sequential", "eagle")  # of heads; forms.py has what each is

_WHOLE = {  # field: (least, most)
    "heads": (1, 8),
    "tokens": (200, 10_000_000),
    "epochs": (1, 1000),
    "reply": (16, 1024),
    "questions": (0, 100_000),
    "vocabulary": (16, 1 << 18),
    "at_once": (1, 32),
    "batch": (16, 4096),
    "seed": (0, 2**31),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainSettings:
    """form: one of FORMS.  heads: K, tokens that are guessed in a round.  minutes: of collecting and training together.
    tokens: to collect, at most.  epochs: passes over them, at most.  reply: tokens of one text.  questions: that the
    model asks itself, at most.  vocabulary: tokens that can be guessed, at most.  at_once: texts written together.
    batch: positions of one step.  seed: of all that is drawn.  Raises BadRequestError.
    """

    form: str = "sequential"
    heads: int = 3
    minutes: float = 20.0
    tokens: int = 250_000
    epochs: int = 12
    reply: int = 160
    questions: int = 600
    vocabulary: int = 8192
    at_once: int = 16
    batch: int = 256
    seed: int = 0

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise BadRequestError(f"form is {self.form!r}; it must be one of {', '.join(FORMS)}")
        for name, (least, most) in _WHOLE.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise BadRequestError(f"{name} is {value!r}; it must be a whole number from {least} to {most}")
        if isinstance(self.minutes, bool) or not 0 < self.minutes < math.inf:
            raise BadRequestError(f"minutes is {self.minutes!r}; it must be a number above 0")

    def digest(self, *more: str) -> str:
        """Names what is collected and trained under these settings. The time it may take is no part of it."""
        kept = {name: value for name, value in asdict(self).items() if name != "minutes"}
        return hashlib.sha256(repr((sorted(kept.items()), more)).encode()).hexdigest()[:16]


class Progress(Protocol):
    """Told what is going on: a step that begins, how much of it is done (0.0 to 1.0), a line that should be seen."""

    def step(self, text: str) -> None: ...
    def part(self, fraction: float) -> None: ...
    def note(self, line: str) -> None: ...
