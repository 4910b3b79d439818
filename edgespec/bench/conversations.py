"""Prompts as token ids: first turns ahead of time, later ones behind what the model itself answered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..api import LLM
from ..errors import BadRequestError, ContextFullError
from .prompts import BenchPrompt, Workload

Ids = tuple[int, ...]


def check(llm: LLM, workloads: Sequence[Workload], *, raw: bool) -> Ids:
    """Encode every prompt that needs no reply, before anything is timed; the ids of the first one.

    Raises BadRequestError and ContextFullError for one that the model cannot take.
    """
    encoded = [
        _encode(llm, prompt, prompt.messages, raw=raw)
        for workload in workloads
        for prompt in workload.prompts
        if not prompt.follows or _bare(llm, raw=raw)  # without a template: refused as a conversation
    ]
    return encoded[0]


def encoded(llm: LLM, workload: Workload, *, raw: bool, max_tokens: int) -> Iterator[tuple[BenchPrompt, Ids]]:
    """The prompts of a workload with their ids, one by one: a reply that a prompt follows is made when it is due.

    Such a reply is greedy and plain, so it is the same in every mode, and has at most max_tokens tokens.
    """
    messages: list[Mapping[str, Any]] = []
    for prompt in workload.prompts:
        if prompt.follows:
            reply = llm.chat(messages, max_tokens=max_tokens, temperature=0, draft_max=0)
            messages = [*messages, {"role": "assistant", "content": reply.text}, *prompt.messages]
        else:
            messages = list(prompt.messages)
        yield prompt, _encode(llm, prompt, messages, raw=raw)


def _encode(llm: LLM, prompt: BenchPrompt, messages: Sequence[Mapping[str, Any]], *, raw: bool) -> Ids:
    if _bare(llm, raw=raw):
        if prompt.plain is None:
            why = "--raw takes" if raw else f"{llm.name} has no chat template and takes"
            raise BadRequestError(f'prompt {prompt.name} is a conversation; {why} {{"prompt"}} lines only')
        ids = llm.encode(prompt.plain)
    else:
        try:
            ids = llm.encode(messages)
        except BadRequestError as error:  # what this model's template does not take
            raise BadRequestError(f"prompt {prompt.name}: {error}") from error
    if len(ids) + 2 > llm.target.n_ctx:
        raise ContextFullError(
            f"prompt {prompt.name} has {len(ids)} tokens and the context holds {llm.target.n_ctx}; "
            "raise --ctx-size, or leave that workload out",
            needed=len(ids),
            available=llm.target.n_ctx - 2,
        )
    return ids


def _bare(llm: LLM, *, raw: bool) -> bool:
    return raw or llm.template is None
