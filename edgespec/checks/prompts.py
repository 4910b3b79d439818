"""Prompts to verify on: the built-in workloads, or a file of the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

from ..api import LLM
from ..bench.prompts import BenchPrompt, load_workloads
from ..errors import BadRequestError, ContextFullError


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """A prompt as the model reads it. name: workload and number, or the stem of a file and the line."""

    name: str
    ids: tuple[int, ...]


def built_in(llm: LLM, count: int) -> list[TokenPrompt]:
    """Up to `count` prompts of the workloads, all kinds in turn; those that leave no room in the context are passed.

    Raises ContextFullError where none fits.
    """
    found: list[TokenPrompt] = []
    kinds = [workload.prompts for workload in load_workloads(("all",), None)]
    for prompt in chain.from_iterable(zip_longest(*kinds)):
        if len(found) == count:
            break
        if prompt is not None and _fits(llm, ids := _encode(llm, prompt)):
            found.append(TokenPrompt(prompt.name, ids))
    if not found:
        raise ContextFullError(
            f"no built-in prompt fits a context of {llm.target.n_ctx} tokens; raise --ctx-size",
            needed=llm.target.n_ctx + 1,
            available=llm.target.n_ctx - 2,
        )
    return found


def encoded(llm: LLM, prompts: Sequence[BenchPrompt]) -> list[TokenPrompt]:
    """Prompts of the user's own (bench.prompts.read_file). Raises BadRequestError, ContextFullError with the name."""
    found = []
    for prompt in prompts:
        try:
            ids = _encode(llm, prompt)
        except BadRequestError as error:
            raise BadRequestError(f"prompt {prompt.name}: {error}") from error
        if not _fits(llm, ids):
            raise ContextFullError(
                f"prompt {prompt.name} has {len(ids)} tokens, too many for the context of {llm.target.n_ctx}; "
                "shorten it or raise --ctx-size",
                needed=len(ids),
                available=llm.target.n_ctx - 2,
            )
        found.append(TokenPrompt(prompt.name, ids))
    return found


def _encode(llm: LLM, prompt: BenchPrompt) -> tuple[int, ...]:
    """As `run` does: through the chat template, or the bare text where the model has none."""
    if llm.template is None and prompt.plain is not None:
        return llm.encode(prompt.plain)
    return llm.encode(prompt.messages)


def _fits(llm: LLM, ids: tuple[int, ...]) -> bool:
    """Two tokens of room at least: the first is never drafted."""
    return len(ids) <= llm.target.n_ctx - 2
