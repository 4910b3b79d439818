"""Is the text of every drafter the plain one, token for token? Greedy, and with the noise of a seed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..api import LLM
from ..forks import Choose, Fork, explain_fork, first_difference, greedy_choice, rounds_of, seed_choice
from ..llama import Context
from ..sampling import SamplingParams
from ..scoring import ScoreRequest
from .prompts import TokenPrompt
from .report import IdentityResult, PromptFork

AUTO = "auto"
"""All sources together, planned as `run` plans them."""

Tell = Callable[[int], None]
Rule = tuple[dict[str, Any], Choose]  # options of LLM.stream, and the winner of a row under them


@dataclass(frozen=True, slots=True)
class _Text:
    """A finished completion. tokens: no end token.  rounds: rows and tokens produced, for each (forks.rounds_of)."""

    tokens: tuple[int, ...]
    rounds: tuple[tuple[int, int], ...]
    drafted: int


def check_greedy(
    llm: LLM, prompts: Sequence[TokenPrompt], max_tokens: int, draft_max: int, tell: Tell
) -> IdentityResult:
    """At temperature 0.

    draft_max: tokens drafted per round by each source alone; together they draft as many as is planned.
    tell: called with the number of prompts done.
    """
    options = {"temperature": 0.0, "max_tokens": max_tokens}
    return _check(llm, prompts, draft_max, lambda *_: (options, greedy_choice), tell)


def check_seed(
    llm: LLM, prompts: Sequence[TokenPrompt], max_tokens: int, draft_max: int, seed: int, tell: Tell
) -> IdentityResult:
    """Seed-exact, at the default sampling parameters; each prompt has its own seed, from `seed` on."""

    def rule(number: int, prompt: TokenPrompt) -> Rule:
        params = SamplingParams(seed=seed + number)
        options = {"seed": params.seed, "verify": "seed", "max_tokens": max_tokens}
        return options, seed_choice(params, llm.target.vocab.size, len(prompt.ids))

    return _check(llm, prompts, draft_max, rule, tell)


def _check(
    llm: LLM, prompts: Sequence[TokenPrompt], draft_max: int, rule: Callable[[int, TokenPrompt], Rule], tell: Tell
) -> IdentityResult:
    llm.measured()  # now: it takes a cache that a prompt was read into, and a prompt read again is other numbers
    found: list[PromptFork] = []
    drafted = dict.fromkeys((*llm.sources, AUTO), 0)
    for number, prompt in enumerate(prompts):
        options, choose = rule(number, prompt)
        _read(llm.target, prompt.ids)
        plain = _complete(llm, prompt, draft_max=0, **options)
        forks: dict[_Text, Fork | None] = {}  # sources often give the same text in the same rounds
        for name in drafted:
            if name == AUTO:
                other = _complete(llm, prompt, **options)
            else:
                other = _complete(_only(llm, name), prompt, draft_max=draft_max, **options)
            drafted[name] += other.drafted
            if other not in forks:
                forks[other] = _first_fork(llm.target, prompt.ids, plain, other, choose)
            fork = forks[other]
            if fork is not None:
                found.append(PromptFork(prompt.name, name, fork))
        tell(number + 1)
    return IdentityResult(len(prompts), tuple(found), drafted)


def _only(llm: LLM, source: str) -> LLM:
    """The same models with one source."""
    alone = copy.copy(llm)
    alone.sources = (source,)
    return alone


def _read(target: Context, prompt: Sequence[int]) -> None:
    """Read a prompt into an empty cache, as a replay of a fork will: all texts then start from the same numbers."""
    sequence = target.sequence(prompt)
    target.sync(sequence, ())
    target.sync(sequence, prompt[:-1])
    sequence.close()


def _complete(llm: LLM, prompt: TokenPrompt, **options: Any) -> _Text:
    with llm.stream(prompt.ids, **options) as stream:
        rounds = rounds_of(stream.events())
    reply = stream.reply
    return _Text(reply.tokens, tuple(rounds), reply.stats.drafted)


def _first_fork(target: Context, prompt: Sequence[int], plain: _Text, other: _Text, choose: Choose) -> Fork | None:
    """Where two texts part, explained or not; an end counts as a token."""
    a, b = plain.tokens, other.tokens
    if a == b:
        return None
    if first_difference(a, b) is None:
        end = _end_token(target, (*prompt, *min(a, b, key=len)), choose)
        a, b = ((*text, end) if len(text) < max(len(a), len(b)) else text for text in (a, b))
    return explain_fork(target.model, prompt, a, b, other.rounds, choose)


def _end_token(target: Context, tokens: Sequence[int], choose: Choose) -> int:
    """The end token that a text ended with after `tokens`: a reply does not say which of them it was."""
    sequence = target.sequence(tokens)
    with target.turn:
        row = target.score([ScoreRequest(sequence, tokens)])[0][0].copy()
    sequence.close()
    winner = choose(tokens, row)
    if target.vocab.is_eog(winner):
        return winner
    return max((t for t in range(target.vocab.size) if target.vocab.is_eog(t)), key=lambda t: float(row[t]))
