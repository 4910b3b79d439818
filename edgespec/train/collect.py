"""Has the model write texts, several in one decode, and keeps the hidden states that chose their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..api import LLM
from ..drafting import NO_DRAFT, Draft
from ..errors import EdgeSpecError
from ..generation import NO_ROLLBACK, Generation, GenerationRequest, step
from ..llama.context import NO_STATES
from ..sampling import Sampler, SamplingParams
from ..stats import RoundEvent
from .data import Text, halved, read_shard, write_shard
from .settings import TrainSettings

GREEDY = SamplingParams(temperature=0.0)
SAMPLED = SamplingParams(temperature=0.8)
LONGEST_PROMPT = 256  # tokens


class _Keeper:
    """A drafter that drafts nothing and keeps the states it is shown."""

    name = "none"

    def __init__(self) -> None:
        self.kept: list[NDArray[np.float16]] = []

    @property
    def states(self) -> _Keeper:
        return self

    def put(self, length: int, state: NDArray[np.float32]) -> None:
        self.kept.append(halved(state))

    def before(self, tokens: Sequence[int]) -> None:
        return None

    def draft(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Draft:
        return NO_DRAFT

    def observe(self, event: RoundEvent) -> None:
        """Nothing to learn."""

    def close(self) -> None:
        """Nothing to give back."""


def require_states(llm: LLM) -> None:
    """Raise EdgeSpecError where heads could not draft for this model."""
    if not llm.generates:
        raise EdgeSpecError(f"{llm.name} makes embeddings and generates no text; there is nothing to draft")
    if not llm.target.can_roll_back:
        raise EdgeSpecError(f"{llm.name} can have no heads: {NO_ROLLBACK}")
    if not llm.target.gives_states:
        raise EdgeSpecError(f"{llm.name}: {NO_STATES}")


def encoded(llm: LLM, texts: Sequence[str]) -> list[tuple[int, ...]]:
    """Prompts as the model reads them, through its chat template if it has one; those too long are left out.

    Raises EdgeSpecError where none is left.
    """
    wrapped = [llm.encode(t if llm.template is None else [{"role": "user", "content": t}]) for t in texts]
    fitting = [ids for ids in wrapped if len(ids) <= LONGEST_PROMPT]
    if not fitting:
        raise EdgeSpecError(f"no prompt has {LONGEST_PROMPT} tokens or fewer; give shorter ones")
    return fitting


def shard_path(folder: Path, number: int) -> Path:
    return folder / f"shard-{number:05}.npz"


def collect_shard(
    llm: LLM, prompts: Sequence[tuple[int, ...]], number: int, folder: Path, settings: TrainSettings
) -> list[Text]:
    """Texts of group `number`: from disk, or written now and kept there.

    A function of model, prompts, number and settings. Group 0 is for validation: the model's likeliest tokens. In the
    others half of the texts are drawn, since heads meet both.
    """
    path = shard_path(folder, number)
    if (kept := read_shard(path)) is not None:
        return kept
    texts = _written(llm, prompts, number, settings)
    write_shard(path, texts)
    return texts


def _written(llm: LLM, prompts: Sequence[tuple[int, ...]], number: int, settings: TrainSettings) -> list[Text]:
    keepers = [_Keeper() for _ in prompts]
    running = []
    for i, (prompt, keeper) in enumerate(zip(prompts, keepers, strict=True)):
        seed = settings.seed + 1000 * number + i
        params = (GREEDY if number == 0 or i % 2 else SAMPLED).replace(seed=seed)
        request = GenerationRequest(prompt=prompt, params=params, max_tokens=settings.reply, draft_max=1)
        running.append(Generation(llm.target, request, keeper))
    try:
        while any(g.finish_reason is None for g in running):
            step(llm.target, running)
    finally:
        for generation in running:
            # Where a text lies in the cache changes sums by a rounding: a group begins as in a fresh process.
            generation.sequence.truncate(0)
            generation.close()
    for generation in running:
        if generation.error is not None:
            raise generation.error
    texts = []
    for generation, keeper in zip(running, keepers, strict=True):
        tokens = np.array(generation.completion, dtype=np.int32)
        states = np.array(keeper.kept[: len(tokens)], dtype=np.float16).reshape(len(tokens), llm.target.state_size)
        texts.append(Text(tokens, states))
    return texts


def group(prompts: Sequence[tuple[int, ...]], order: Sequence[int], number: int, size: int) -> list[tuple[int, ...]]:
    """Prompts of group `number` (from 1): all of them in turn, again and again."""
    first = (number - 1) * size
    return [prompts[order[i % len(order)]] for i in range(first, first + size)]
