"""Greedy text that differs from plain decoding: is the model's own arithmetic the cause, or a bug of ours?

llama.cpp's logits for a token differ slightly with the number of rows decoded together, so at a near
tie the winner can depend on that width with no drafter involved. A fork is explained only if
re-decoding the same prefix in a fresh context, once row by row and once at the width used, gives two
different winners by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .llama import Context, Model
from .scoring import Rows, ScoreRequest


@dataclass(frozen=True, slots=True)
class Fork:
    """The first difference of two greedy texts.

    position: index in the completion.  plain, other: the two tokens.  gap_at_one, gap_at_width:
    logit(plain) - logit(other) after the common prefix, re-decoded at width 1 and at `width`.
    explained: the two widths disagree on the winner.
    """

    position: int
    width: int
    plain: int
    other: int
    gap_at_one: float
    gap_at_width: float
    explained: bool


def first_difference(plain: Sequence[int], other: Sequence[int]) -> int | None:
    """Index of the first differing token, or None where one text is a prefix of the other."""
    for i, (a, b) in enumerate(zip(plain, other, strict=False)):
        if a != b:
            return i
    return None


def explain_fork(
    model: Model, prompt: Sequence[int], plain: Sequence[int], other: Sequence[int], width: int
) -> Fork | None:
    """The first fork of two greedy completions of `prompt`, re-decoded at width 1 and at `width`; None: no fork."""
    position = first_difference(plain, other)
    if position is None:
        return None
    completion = plain[:position]
    at_one = _row_after(model, prompt, completion, 1)
    at_width = _row_after(model, prompt, completion, width)
    a, b = plain[position], other[position]
    return Fork(
        position=position,
        width=width,
        plain=a,
        other=b,
        gap_at_one=float(at_one[a] - at_one[b]),
        gap_at_width=float(at_width[a] - at_width[b]),
        explained=int(np.argmax(at_one)) == a and int(np.argmax(at_width)) == b,
    )


def _row_after(model: Model, prompt: Sequence[int], completion: Sequence[int], width: int) -> Rows:
    """Logits after prompt + completion in a fresh context, the completion decoded `width` tokens at a time.

    Groups are laid from the end, so that the row asked for is the last of `width` rows.
    """
    tokens = [*prompt, *completion]
    groups: list[tuple[int, int]] = []
    end = len(tokens)
    while end > len(prompt) or not groups:
        begin = max(0 if not groups else len(prompt), end - width)
        groups.append((begin, end))
        end = begin
    with Context(model) as context:
        sequence = context.sequence()
        sequence.sync(tokens[:end])
        for begin, end in reversed(groups):
            request = ScoreRequest(sequence, tokens[: begin + 1], tuple(tokens[begin + 1 : end]))
            last = context.score([request])[0][-1]
        copy: Rows = last.copy()
        return copy
