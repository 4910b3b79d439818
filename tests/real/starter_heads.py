"""What tests of heads on the starter model share: states of a text, and that its text is the plain one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from edgespec import LLM
from edgespec.checks import TokenPrompt, built_in
from edgespec.checks.identity import check_greedy, check_seed
from edgespec.reply import Reply
from edgespec.scoring import ScoreRequest

_ROWS = 24  # of one decode


def states_of(llm: LLM, tokens: Sequence[int]) -> NDArray[np.float64]:
    """(len(tokens) - 1, n_embd): row i is that of the text up to token i, inclusive."""
    sequence, states = llm.target.sequence(), []
    for start, end in pairwise([*range(1, len(tokens), _ROWS), len(tokens)]):
        with llm.target.turn:
            llm.target.score([ScoreRequest(sequence, tokens[:start], tokens[start : end - 1], states=True)])
            states.append(llm.target.states(sequence).copy())
    sequence.close()
    return np.concatenate(states).astype(np.float64)


def guessed_exactly(llm: LLM, source: str, text: str, *, draft_max: int) -> Reply:
    """A reply to `text`, after checks that text with this source is the plain text or the model's own fork."""
    own = TokenPrompt(source, llm.tokenize(text))
    prompts = [own, *built_in(llm, 1)]
    for check in (
        check_greedy(llm, prompts, 24, 3, lambda _: None),
        check_seed(llm, prompts, 24, 3, 1, lambda _: None),
    ):
        assert check.ok
        assert check.drafted[source] > 30
    return llm.complete(own.ids, max_tokens=40, temperature=0, draft_max=draft_max)
