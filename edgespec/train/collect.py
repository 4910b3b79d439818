"""Has the model write texts, several in one decode, and keeps the hidden states that chose their tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..api import LLM
from ..errors import BadRequestError, DecodeError, EdgeSpecError
from ..generation import NO_ROLLBACK
from ..llama.context import NO_STATES
from ..scoring import Rows, ScoreRequest
from ..stages import largest
from .data import BEFORE, TOP, Text, halved, read_shard, write_shard
from .settings import TrainSettings

LONGEST_PROMPT = 256  # tokens
Prompt = str | tuple[tuple[str, str], ...]  # what a user says, or (role, text) of a conversation that ends so

_TEMPERATURE = 0.8  # of the texts that are drawn; heads meet both kinds


def require_states(llm: LLM) -> None:
    """Raise EdgeSpecError where heads could not draft for this model."""
    if not llm.generates:
        raise EdgeSpecError(f"{llm.name} makes embeddings and generates no text; there is nothing to draft")
    if not llm.target.can_roll_back:
        raise EdgeSpecError(f"{llm.name} can have no heads: {NO_ROLLBACK}")
    if not llm.target.gives_states:
        raise EdgeSpecError(f"{llm.name}: {NO_STATES}")


def encoded(llm: LLM, prompts: Sequence[Prompt]) -> list[tuple[int, ...]]:
    """Prompts as the model reads them, through its chat template if it has one; those too long are left out.

    Raises EdgeSpecError where none is left.
    """
    wrapped = [_encoded(llm, prompt) for prompt in prompts]
    fitting = [ids for ids in wrapped if ids and len(ids) <= LONGEST_PROMPT]
    if not fitting:
        raise EdgeSpecError(f"no prompt has {LONGEST_PROMPT} tokens or fewer; give shorter ones")
    return fitting


def _encoded(llm: LLM, prompt: Prompt) -> tuple[int, ...]:
    """Empty for a conversation that the model's template refuses: one with a system message, say."""
    turns = (("user", prompt),) if isinstance(prompt, str) else prompt
    if llm.template is None:
        return tuple(llm.encode(turns[-1][1]))
    try:
        return tuple(llm.encode([{"role": role, "content": text} for role, text in turns]))
    except BadRequestError:
        if isinstance(prompt, str):
            raise
        return ()


def shard_path(folder: Path, number: int) -> Path:
    return folder / f"shard-{number:05}.npz"


def best_width(llm: LLM, most: int) -> int:
    """How many texts of one decode are written fastest here, at most so many: a kernel may have no use for more."""
    most = min(most, llm.target.max_width)
    widths = [n for n in (4, 8, 12, 16, 24, 32) if n < most] + [most]
    if len(widths) == 1:
        return most
    costs = llm.measured()
    return max(widths, key=lambda n: (n / costs.at(n), n))


def collect_shard(
    llm: LLM,
    prompts: Sequence[tuple[int, ...]],
    number: int,
    folder: Path,
    settings: TrainSettings,
    width: int,
    over: Callable[[], bool] = lambda: False,
) -> list[Text]:
    """Texts of group `number`: from disk, or written now and kept there. width: how many at once.  over: is there no
    more time? What is written by then is kept.

    A function of model, prompts, number, settings and width. Group 0 is for validation: the model's likeliest tokens.
    In the others half of the texts are drawn, since heads meet both: two, then two that are not, for prompts of two
    kinds take turns.
    """
    path = shard_path(folder, number)
    if (kept := read_shard(path)) is not None:
        return kept
    texts = write_texts(llm, prompts, number, settings, width, over)
    write_shard(path, texts)
    return texts


class Writing:
    """A text that is being written. rng: what draws it; None: the likeliest token each time."""

    def __init__(
        self, prompt: tuple[int, ...], rng: np.random.Generator | None, temperature: float = _TEMPERATURE
    ) -> None:
        self.tokens, self._prompt, self._rng, self._temperature = list(prompt), prompt, rng, np.float32(temperature)
        self._states: list[NDArray[np.float16]] = []
        self._top: list[NDArray[np.int32]] = []
        self._chances: list[NDArray[np.float16]] = []

    def __len__(self) -> int:
        return len(self._states)

    def take(self, row: Rows, state: Rows) -> int:
        """Choose the next token by raw logits `row`, and keep what it was chosen by."""
        top = largest(row, min(TOP, len(row)))
        chances = _softmax(row[top])
        if not np.isfinite(chances).all():
            raise DecodeError("the model returned logits that are no numbers; check the file, or try another KV type")
        if self._rng is None:
            token = int(top[row[top].argmax()])
        else:
            drawn = np.searchsorted(np.cumsum(_softmax(row[top] / self._temperature)), self._rng.random())
            token = int(top[min(int(drawn), len(top) - 1)])
        missing = TOP - len(top)
        self._states.append(halved(state))
        self._top.append(np.pad(top.astype(np.int32), (0, missing), constant_values=-1))
        self._chances.append(np.pad(chances.astype(np.float16), (0, missing)))
        self.tokens.append(token)
        return token

    def text(self) -> Text:
        before = np.full(BEFORE, -1, np.int32)
        end = self._prompt[-BEFORE:]
        before[BEFORE - len(end) :] = end
        tokens = np.array(self.tokens[len(self._prompt) :], np.int32)
        return Text(tokens, np.stack(self._states), np.stack(self._top), np.stack(self._chances), before)


def write_texts(
    llm: LLM,
    prompts: Sequence[tuple[int, ...]],
    number: int,
    settings: TrainSettings,
    width: int,
    over: Callable[[], bool] = lambda: False,
) -> list[Text]:
    """One text for each prompt, in their order. Where one ends, the next begins in its place. over: as above."""
    texts = [
        Writing(prompt, None if number == 0 or i // 2 % 2 else np.random.default_rng((settings.seed, number, i)))
        for i, prompt in enumerate(prompts)
    ]
    write(llm, texts, settings.reply, width, over)
    return [text.text() for text in texts if len(text)]


def write(llm: LLM, texts: Sequence[Writing], longest: int, width: int, over: Callable[[], bool]) -> None:
    """Go on with each of them to an end token, or for `longest` tokens."""
    target = llm.target
    waiting = iter(texts)
    sequences = [target.sequence() for _ in range(min(width, len(texts)))]
    try:
        running = [(sequence, text) for sequence, text in zip(sequences, waiting, strict=False)]
        while running:
            with target.turn:
                scored = target.score([ScoreRequest(s, text.tokens, (), states=True) for s, text in running])
                going = []
                for (sequence, text), rows in zip(running, scored, strict=True):
                    token = text.take(rows[0][: target.vocab.size], target.states(sequence)[0])
                    ended = target.vocab.is_eog(token) or len(text) == longest
                    going.append((sequence, next(waiting, None) if ended else text))
            running = [(sequence, text) for sequence, text in going if text is not None]
            if over():
                break
    finally:
        for sequence in sequences:
            # Where a text lies in the cache changes sums by a rounding: a group begins as in a fresh process.
            sequence.truncate(0)
            sequence.close()


def _softmax(logits: Rows) -> Rows:
    chances: Rows = np.exp(logits - logits.max())
    chances /= chances.sum()
    return chances


def group(prompts: Sequence[tuple[int, ...]], number: int, size: int) -> list[tuple[int, ...]]:
    """Prompts of group `number` (from 1): all of them in turn, again and again."""
    first = (number - 1) * size
    return [prompts[i % len(prompts)] for i in range(first, first + size)]
