"""Evidence for the two roles: a target's perplexity, a draft's agreement with its target."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from .. import workloads
from ..api import LLM
from ..costs import CostTable
from ..tuned import Trial
from .agreement import Reference, Text, agreement, reference
from .choice import best_draft, best_target
from .perplexity import perplexity, surprise
from .sweep import Evidence

_MOST_TOKENS = 800  # of the fixed text; real tokenizers need fewer
_PROMPTS = ("code", "chat", "prose")  # the first of each is continued by the target
_CONTINUED = 64  # tokens


class TargetJudge:
    """Perplexity on the fixed text, against that of the original."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens = tokens
        self._original: NDArray[np.float64] | None = None

    def evidence(self, llm: LLM) -> Evidence:
        own = surprise(llm.target, self._tokens)
        if self._original is None:
            self._original = own
        return Evidence(perplexity=perplexity(own, self._original))

    def keep(self, trials: Sequence[Trial]) -> set[str]:
        return {best_target(trials).type}


class UnchangedTarget:
    """For a target that stays as it is: only its speed counts."""

    def evidence(self, llm: LLM) -> Evidence:
        return Evidence()

    def keep(self, trials: Sequence[Trial]) -> set[str]:
        return set()


class DraftJudge:
    """Agreement with the target. targets: decode times of the forms that the target may get."""

    def __init__(self, known: Reference, targets: Sequence[CostTable]) -> None:
        self._known, self._targets = known, targets

    def evidence(self, llm: LLM) -> Evidence:
        return Evidence(agreement=agreement(llm.target, self._known))

    def keep(self, trials: Sequence[Trial]) -> set[str]:
        return {best_draft(trials, costs).type for costs in self._targets}


def fixed_text(llm: LLM) -> tuple[int, ...]:
    """The text that all forms are compared on, as tokens; as much of it as the context holds."""
    text = (files(__package__) / "text.txt").read_text("utf-8")
    return llm.tokenize(text)[: min(_MOST_TOKENS, llm.target.n_ctx)]


def target_reference(llm: LLM) -> Reference:
    """What a target expects along the fixed text, and along its own greedy answers to some prompts."""
    texts = [Text(fixed_text(llm), 1)]
    for name in _PROMPTS:
        prompt = workloads.prompts(name)[0]
        ids = llm.encode(prompt.text if llm.template is None else prompt.messages)
        if len(ids) + _CONTINUED > llm.target.n_ctx:
            continue
        answer = llm.complete(ids, max_tokens=_CONTINUED, temperature=0, draft_max=0).tokens
        texts.append(Text((*ids, *answer), len(ids)))
    return reference(llm.target, texts)
