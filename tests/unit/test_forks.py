"""Explaining forks: by the model's own rows at two widths, and by nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from edgespec.errors import BadRequestError
from edgespec.forks import explain_fork, seed_choice
from edgespec.generation import GenerationRequest, generate
from edgespec.llama import Context
from edgespec.sampling import SamplingParams
from edgespec.scoring import Rows, ScoreRequest

Tiny = Callable[..., Path]
Open = Callable[..., Context]

PROMPT = (81, 300, 301, 17)
PARAMS = SamplingParams(temperature=1.0, seed=5, repeat_penalty=1.2)


def text(context: Context, params: SamplingParams = PARAMS) -> list[int]:
    request = GenerationRequest(prompt=PROMPT, params=params, max_tokens=20, verify="seed")
    generation = generate(context, request)
    list(generation)
    return generation.completion


@pytest.mark.parametrize("params", [PARAMS, PARAMS.replace(temperature=0)], ids=["sampled", "greedy"])
def test_the_choice_for_a_fork_is_the_loops_own(tiny: Tiny, open_context: Open, params: SamplingParams) -> None:
    context = open_context(tiny())
    completion = text(context, params)
    choose = seed_choice(params, context.vocab.size, len(PROMPT))
    sequence = context.sequence()
    for i, token in enumerate(completion):
        tokens = [*PROMPT, *completion[:i]]
        assert choose(tokens, context.score([ScoreRequest(sequence, tokens)])[0][0]) == token


def test_a_choice_needs_a_seed() -> None:
    with pytest.raises(BadRequestError, match="needs a seed"):
        seed_choice(SamplingParams(), 512, 4)


def test_equal_texts_have_no_fork(tiny: Tiny, open_context: Open) -> None:
    context = open_context(tiny())
    assert explain_fork(context.model, PROMPT, [1, 2, 3], [1, 2, 3], 4) is None


def test_a_fork_that_the_rows_do_not_show_is_not_explained(tiny: Tiny, open_context: Open) -> None:
    """The widths agree on the winner, so a token other than it was somebody's mistake."""
    context = open_context(tiny())
    plain = text(context)
    other = [*plain[:7], (plain[7] + 1) % 512, *plain[8:]]
    choose = seed_choice(PARAMS, context.vocab.size, len(PROMPT))
    fork = explain_fork(context.model, PROMPT, plain, other, 4, choose)
    assert fork is not None
    assert (fork.position, fork.plain, fork.other, fork.width, fork.explained) == (7, plain[7], other[7], 4, False)
    assert fork.gap_at_one == pytest.approx(fork.gap_at_width, abs=1e-3)


def test_a_fork_is_explained_where_the_widths_disagree(tiny: Tiny, open_context: Open) -> None:
    """The choice sees the tokens before the fork, and each width's row once: width 1 first."""
    context = open_context(tiny())
    seen: list[tuple[list[int], Rows]] = []

    def disagreeing(tokens: Sequence[int], row: Rows) -> int:
        seen.append((list(tokens), row.copy()))
        return (30, 40)[len(seen) - 1]

    fork = explain_fork(context.model, PROMPT, [10, 20, 30], [10, 20, 40], 3, disagreeing)
    assert fork is not None
    assert fork.explained
    assert [tokens for tokens, _ in seen] == [[*PROMPT, 10, 20]] * 2
    assert np.allclose(seen[0][1], seen[1][1], atol=1e-3)
    assert fork.gap_at_one == pytest.approx(float(seen[0][1][30] - seen[0][1][40]))
