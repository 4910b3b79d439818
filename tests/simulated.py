"""Several requests over a model whose texts are given and whose decodes take simulated time, in real rounds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from edgespec.beside import passes
from edgespec.costs import Costs, CostTable
from edgespec.drafters import Resources, build, planned
from edgespec.drafters.planned import LATEST
from edgespec.generation import Generation, GenerationRequest, step
from edgespec.losses import Ledger
from edgespec.sampling import SamplingParams
from edgespec.scoring import Rows, ScoreRequest
from edgespec.table_model import TableModel

SOURCES = ("suffix", "lookup")
_VOCAB, _PASSAGE = 400, 120
_NOISE = 12  # tokens of a text in which every pair comes again, and nothing follows from it
_WARM_UP = 12  # rounds


class Clock:
    """What rounds take for the time of day. ms: since the beginning."""

    ms = 0.0

    def perf_counter(self) -> float:
        return self.ms / 1000

    @contextmanager
    def told(self) -> Iterator[None]:
        """Rounds read this clock."""
        time = SimpleNamespace(perf_counter=self.perf_counter)
        with ExitStack() as patches:
            for module in ("rounds", "proposing", "generation"):
                patches.enter_context(mock.patch(f"edgespec.{module}.time", time))
            yield


class TimedModel(TableModel):
    """Goes on as `texts` do, by the first token of a prompt; a decode takes `ms` of its rows by request."""

    def __init__(self, texts: dict[int, list[int]], ms: Callable[[Sequence[int]], float], *, splits: bool) -> None:
        super().__init__(_VOCAB, order=1 << 20, n_ctx=4096, max_width=32, n_seq_max=2 * len(texts))
        self.clock = Clock()
        self.splits = splits
        self.widths: list[tuple[int, ...]] = []
        self._texts, self._ms = texts, ms

    def logits(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        row = np.full(_VOCAB, -20.0, np.float32)
        row[self._texts[tokens[0]][len(tokens)]] = 0.0
        return row

    def score(self, requests: Sequence[ScoreRequest]) -> list[Rows]:
        rows = super().score(requests)
        self.widths.append(tuple(len(r) for r in rows))
        self.clock.ms += self._ms(self.widths[-1])
        return rows


def copying(name: int, seed: int = 0) -> list[int]:
    """A passage, over and over: all that is copied from it is right."""
    rng = random.Random(f"{seed} {name}")
    passage = [rng.randrange(100, _VOCAB) for _ in range(_PASSAGE)]
    return [name, *passage * 30]


def hostile(name: int, seed: int = 0) -> list[int]:
    """There is always something to copy, and hardly ever is it right."""
    rng = random.Random(f"{seed} {name} hostile")
    return [name, *(100 + rng.randrange(_NOISE) for _ in range(30 * _PASSAGE))]


class DraftModel(TimedModel):
    """Each of its tokens is right so often. It knows where it is by the latest tokens: it may have read no others."""

    def __init__(self, texts: dict[int, list[int]], ms: Callable[[Sequence[int]], float], right: float) -> None:
        super().__init__(texts, ms, splits=False)
        rng = random.Random(7)
        self._next = {
            tuple(text[i - LATEST : i]): text[i] if rng.random() < right else 0
            for text in texts.values()
            for i in range(LATEST, len(text))
        }

    def logits(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        row = np.full(_VOCAB, -20.0, np.float32)
        row[self._next.get(tuple(tokens[-LATEST:]), 0)] = 0.0
        return row


DRAFT = CostTable((1, 2, 4, 8, 16), (10.0, 16.0, 25.0, 42.0, 78.0))


def true_ms(table: CostTable, *, splits: bool) -> Callable[[Sequence[int]], float]:
    """Of a decode: one that is not divided is padded, where that is faster; passes are not."""
    padded, rng = table.padded(), random.Random(5)

    def ms(widths: Sequence[int]) -> float:
        if splits:
            taken = sum(table.at(rows) for rows in passes(widths))
        else:
            taken = padded.at(sum(widths))
        return taken * rng.uniform(0.97, 1.05)

    return ms


def speed(
    texts: Sequence[list[int]],
    table: CostTable,
    *,
    splits: bool = False,
    tokens: int = 256,
    whole: bool = False,
    right: float | None = None,
    draft_max: Sequence[int] | None = None,
    model: list[TimedModel] | None = None,
) -> float:
    """Tokens a second of all requests together, from some rounds after their prompts until they have `tokens` each.

    whole: from their prompts on, and each has so many at the end.  right: of the tokens of a draft model; None:
    there is none.  draft_max: fixed lengths of drafts, by request; None: planned.  model: takes the model, to look at
    its widths.
    """
    target = TimedModel({text[0]: text for text in texts}, true_ms(table, splits=splits), splits=splits)
    if model is not None:
        model.append(target)
    costs, ledger = Costs(table.padded()), Ledger()
    draft, sources, draft_costs = None, SOURCES, None
    if right is not None:
        draft = DraftModel({text[0]: text for text in texts}, true_ms(DRAFT, splits=False), right)
        draft.clock, sources, draft_costs = target.clock, (*SOURCES, "model"), Costs(DRAFT.padded())
    running = []
    for i, text in enumerate(texts):
        fixed = None if draft_max is None else draft_max[i]
        drafter: Any = (
            planned(
                sources,
                Resources(draft=draft),
                costs,
                draft_costs=draft_costs,
                remaining=tokens,
                coupled=True,
                ledger=ledger,
            )
            if fixed is None
            else build(sources[-1:] if draft else sources, Resources(draft=draft))
        )
        request = GenerationRequest(
            prompt=tuple(text[: _PASSAGE + 3]),
            params=SamplingParams(temperature=0),
            max_tokens=tokens if whole else 2000,
            draft_max=15 if fixed is None else fixed,
        )
        running.append(Generation(target, request, drafter))
    with target.clock.told():
        for _ in range(1 if whole else _WARM_UP):
            step(target, running)
        begun, ms, wanted = produced(running), target.clock.ms, tokens * len(texts)
        while produced(running) < wanted:
            step(target, running)
    return 1000 * (produced(running) - begun) / (target.clock.ms - ms)


def produced(running: Sequence[Generation]) -> int:
    return sum(len(g.completion) for g in running)
