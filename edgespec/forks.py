"""Greedy or seed-exact text that differs from plain decoding: the model's own arithmetic, or a bug of ours?

llama.cpp's logits for a token differ slightly with the number of rows decoded together, so at a near
tie the winner can depend on that width with no drafter involved. A fork is explained only if
re-decoding the same prefix in a fresh context, once row by row and once at the width used, gives two
different winners by itself; in seed-exact mode a winner is what the row gives after adding the noise.

The difference is made in every decode since the prompt, not in the last one alone: keys and values carry
it on. So the width used is best given as all of them, round by round; no drafted token is decoded then,
and nothing that was rejected can be the cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from .errors import BadRequestError
from .llama import Context, Model
from .noise import Noise
from .sampling import Sampler, SamplingParams
from .scoring import Rows, ScoreRequest
from .stats import RoundEvent

Rounds = Sequence[tuple[int, int]]
"""For each round after the prompt pass: rows decoded together, and tokens that came of it."""

Choose = Callable[[Sequence[int], Rows], int]
"""The winner of a row of raw logits, shape (V,), that follows these tokens (prompt included)."""


@dataclass(frozen=True, slots=True)
class Fork:
    """The first difference of two texts.

    position: index in the completion.  width: rows decoded together there.  plain, other: the two tokens.
    gap_at_one, gap_at_width: logit(plain) - logit(other) after the common prefix, re-decoded at width 1 and at
    the width used; raw, so in seed-exact mode the noise decides on top of it.  explained: the two widths
    disagree on the winner.
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


def greedy_choice(tokens: Sequence[int], row: Rows) -> int:
    """The winner at temperature 0 without bias, penalties or grammar."""
    return int(np.argmax(row))


def seed_choice(params: SamplingParams, vocab_size: int, prompt_len: int) -> Choose:
    """The winner in seed-exact mode (no grammar) after a prompt of `prompt_len` tokens.

    Raises BadRequestError for params without a seed.
    """
    if params.seed is None:
        raise BadRequestError("a seed-exact choice needs a seed; take the one that the reply reports")
    noise = Noise(params.seed, prompt_len)
    sampler = Sampler(params, vocab_size)

    def choose(tokens: Sequence[int], row: Rows) -> int:
        return noise.choose(sampler.walk(tokens).distribution(row), len(tokens))

    return choose


def explain_fork(
    model: Model,
    prompt: Sequence[int],
    plain: Sequence[int],
    other: Sequence[int],
    width: int | Rounds,
    choose: Choose = greedy_choice,
) -> Fork | None:
    """The first fork of two completions of `prompt`, re-decoded at width 1 and at `width`; None: no fork.

    width: rows decoded together, the same throughout, or the rounds of `other` (`rounds_of`). Rounds assume
    that both texts found all of the prompt but its last token in the cache, as after a first reading of it.
    """
    position = first_difference(plain, other)
    if position is None:
        return None
    completion = plain[:position]
    if isinstance(width, int):
        at_one, _ = _row_after(model, prompt, completion, 1)
        at_width, rows = _row_after(model, prompt, completion, width)
    else:
        at_one, _ = _row_in_rounds(model, prompt, plain, position, [(1, 1)] * position)
        at_width, rows = _row_in_rounds(model, prompt, other, position, width)
    before = [*prompt, *completion]
    a, b = plain[position], other[position]
    return Fork(
        position=position,
        width=rows,
        plain=a,
        other=b,
        gap_at_one=float(at_one[a] - at_one[b]),
        gap_at_width=float(at_width[a] - at_width[b]),
        explained=choose(before, at_one) == a and choose(before, at_width) == b,
    )


def rounds_of(events: Iterable[object]) -> list[tuple[int, int]]:
    """The rounds among a generation's events, as `explain_fork` takes them."""
    return [(e.k + 1, e.produced) for e in events if isinstance(e, RoundEvent)]


def _row_after(model: Model, prompt: Sequence[int], completion: Sequence[int], width: int) -> tuple[Rows, int]:
    """Logits after prompt + completion in a fresh context, the completion decoded `width` at a time; and `width`.

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
        return last.copy(), width


def _row_in_rounds(
    model: Model, prompt: Sequence[int], text: Sequence[int], position: int, rounds: Rounds
) -> tuple[Rows, int]:
    """Logits behind token `position` of `text` in a fresh context, decoded in these rounds; and the rows of the last.

    Where a round had more rows than it gave tokens, the text's own next tokens stand for the rejected ones.
    Raises BadRequestError where the rounds do not reach the token.
    """
    with Context(model) as context:
        sequence = context.sequence()
        context.sync(sequence, prompt[:-1])
        last = context.score([ScoreRequest(sequence, prompt)])[0]
        if not position:
            return last[0].copy(), 1
        known = 1
        for rows, produced in rounds:
            rest = list(text[known : known + rows - 1])
            rest += [text[-1]] * (rows - 1 - len(rest))
            last = context.score([ScoreRequest(sequence, [*prompt, *text[:known]], tuple(rest))])[0]
            if position < known + produced:
                return last[position - known].copy(), rows
            known += produced
    raise BadRequestError(f"the rounds give {known} tokens; token {position} is not among them")
