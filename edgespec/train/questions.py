"""Questions that the model asks itself: texts of more kinds than anybody lists (Magpie, arXiv 2406.08464).

A model that was taught to answer has seen what people ask. Given the beginning of a user's turn and nothing else, it
writes one. Heads that learn only from listed prompts guess the texts of those well, and others badly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..api import LLM
from ..errors import BadRequestError
from ..scoring import common_prefix
from .collect import Writing, write
from .settings import TrainSettings

LONGEST = 96  # tokens of a question; one that goes on is left out
_SHORTEST = 8  # characters
_TEMPERATURE = 1.0
_PLACE = 1 << 30  # in the seed, where a group of texts has its number


def opening(llm: LLM, about: str) -> tuple[int, ...]:
    """What the model reads before the first word of a user, after a system message `about` what, if its template has
    such. Empty where it has nothing there, or the model has no template.
    """
    if llm.template is None:
        return ()
    for system in ([{"role": "system", "content": about}], []):
        try:
            one, other = (llm.encode([*system, {"role": "user", "content": word}]) for word in ("one", "Two"))
        except BadRequestError:
            continue
        return tuple(one[: common_prefix(one, other)])
    return ()


def ask(
    llm: LLM, abouts: Sequence[str], settings: TrainSettings, width: int, over: Callable[[], bool] = lambda: False
) -> list[str]:
    """A question for each of these system messages; empty where the model writes none, or there is no more time.

    width: how many at once.
    """
    known = {about: opening(llm, about) for about in dict.fromkeys(abouts)}
    begins = [known[about] for about in abouts]
    texts = [
        Writing(begin, np.random.default_rng((settings.seed, _PLACE, i)), _TEMPERATURE)
        for i, begin in enumerate(begins)
    ]
    write(llm, [text for text in texts if text.tokens], LONGEST, width, over)
    found = [_question(llm, text.tokens[len(begin) :]) for text, begin in zip(texts, begins, strict=True)]
    return [question if len(question) >= _SHORTEST else "" for question in found]


def _question(llm: LLM, tokens: list[int]) -> str:
    """Empty where it has not ended."""
    ended = bool(tokens) and llm.target.vocab.is_eog(tokens[-1])
    return llm.detokenize(tokens[:-1]).strip() if ended else ""
