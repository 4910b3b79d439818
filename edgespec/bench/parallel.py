"""Several greedy requests at once: ours in shared rounds of the engine that the server has, against others' A B B A.

The prompts of a group are read on both sides before the clock starts. It runs from the requests to the last answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from ..api import LLM
from ..engine.local import LocalEngine
from ..engine.protocol import Finished, GenerateSpec, LoadSpec
from ..errors import EdgeSpecError
from ..sampling import SamplingParams
from .conversations import Ids, check, encoded
from .modes import AUTO, PLAIN, Mode
from .prompts import Workload
from .runner import Settings
from .statistics import Cell, Pair, Run

T = TypeVar("T")

MOST = 32
GREEDY = SamplingParams(temperature=0)
_READ = 1  # tokens of a run that only reads the prompts
_WARM_UP = 8


class Together(Protocol):
    """Something that answers several prompts at once."""

    @property
    def name(self) -> str: ...

    def together(self, prompts: Sequence[Ids], max_tokens: int) -> Run:
        """Greedy answers to all of them. Run.tokens: of all, the first ones included.  Raises EdgeSpecError."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """cells: for each workload and whom we are compared with (their `mode`); the pairs are groups of prompts.
    mode: ours.  stopped: what ended it before all was measured."""

    cells: tuple[Cell, ...]
    mode: Mode
    stopped: KeyboardInterrupt | EdgeSpecError | None = None


class Ours:
    """The engine over a loaded model, which stays the caller's."""

    def __init__(self, engine: LocalEngine, mode: Mode) -> None:
        self.name = mode.name
        self._engine = engine
        self._draft_max = {} if mode.draft_max is None else {"draft_max": mode.draft_max}

    def together(self, prompts: Sequence[Ids], max_tokens: int) -> Run:
        options = {"temperature": 0, "max_tokens": max_tokens, **self._draft_max}
        specs = [GenerateSpec(prompt=ids, options=options) for ids in prompts]
        begin = time.perf_counter()
        asked = [self._engine.generate(spec) for spec in specs]
        try:
            replies = [one.result(Finished).reply for one in asked]
        finally:
            for one in asked:
                one.close()
        seconds = time.perf_counter() - begin
        stats = [reply.stats for reply in replies]
        return Run(
            tokens=sum(s.completion_tokens for s in stats),
            seconds=seconds,
            rounds=sum(s.rounds for s in stats),
            produced=sum(s.produced for s in stats),
            drafted=sum(s.drafted for s in stats),
            accepted=sum(s.accepted for s in stats),
        )


def groups(prompts: Sequence[tuple[str, Ids]], count: int) -> list[list[tuple[str, Ids]]]:
    """`count` prompts each; the last group is filled up from the first prompts."""
    return [[prompts[(at + i) % len(prompts)] for i in range(count)] for at in range(0, len(prompts), count)]


def group_count(workloads: Sequence[Workload], count: int) -> int:
    return sum(-(-len(workload.prompts) // count) for workload in workloads)


def run_parallel(
    llm: LLM,
    workloads: Sequence[Workload],
    mode: Mode,
    settings: Settings,
    count: int,
    others: Sequence[Together] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Measure every workload, `count` requests at once, against the others; without any: against plain decoding.

    The model is closed at the end. progress: told the workload after each timed run. Raises ContextFullError before
    anything is timed if a prompt does not fit.
    """
    first = check(llm, workloads, raw=settings.raw)
    prompts = in_a_thread_that_ends(lambda: _prepared(llm, workloads, settings))
    found: dict[tuple[str, str], list[Pair]] = {}
    stopped: KeyboardInterrupt | EdgeSpecError | None = None
    with closing(LocalEngine(lambda spec, progress: llm)) as engine:
        engine.load(LoadSpec(model=llm.name, at_once=count, parallel=count))
        ours = Ours(engine, mode)
        against: Sequence[Together] = others or (Ours(engine, PLAIN),)
        ours.together([first] * count, _WARM_UP)
        try:
            for workload in workloads:
                done = partial(progress, workload.name)
                for group in groups(prompts[workload.name], count):
                    for other, pair in _pairs(ours, against, group, settings.max_tokens, done):
                        found.setdefault((workload.name, other), []).append(pair)
        except (KeyboardInterrupt, EdgeSpecError) as error:
            stopped = error
    cells = tuple(Cell(workload, other, 0.0, tuple(pairs)) for (workload, other), pairs in found.items())
    return Outcome(cells, mode, stopped)


def _prepared(llm: LLM, workloads: Sequence[Workload], settings: Settings) -> dict[str, list[tuple[str, Ids]]]:
    """The prompts of each workload, once decode times are known."""
    if llm.sources and llm.target.can_roll_back:
        llm.measured()
    return {
        workload.name: [
            (prompt.name, ids)
            for prompt, ids in encoded(llm, workload, raw=settings.raw, max_tokens=settings.max_tokens)
        ]
        for workload in workloads
    }


def in_a_thread_that_ends(work: Callable[[], T]) -> T:
    """Decode apart from the thread that is timed and from the one that goes on.

    GNU's OpenMP keeps a team of threads for each thread that has decoded, until it ends. Once all of them are more
    than the cores, it sleeps at every barrier in place of spinning: decodes then take twice as long.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="edgespec-bench") as pool:
        return pool.submit(work).result()


def _pairs(
    ours: Together,
    others: Sequence[Together],
    group: Sequence[tuple[str, Ids]],
    max_tokens: int,
    done: Callable[[], None],
) -> Iterator[tuple[str, Pair]]:
    name, ids = "+".join(name for name, _ in group), [ids for _, ids in group]
    ours.together(ids, _READ)

    def timed(one: Together) -> Run:
        run = one.together(ids, max_tokens)
        done()
        return run

    for other in others:
        other.together(ids, _READ)
        before = timed(other)
        runs = (timed(ours), timed(ours))
        yield other.name, Pair(name, (before, timed(other)), runs)


def parallel_mode(given: Sequence[str]) -> Mode | None:
    """Ours, of what --mode says; None where that is not one of two."""
    names = {"auto": AUTO, "plain": PLAIN}
    return AUTO if not given else names.get(given[0]) if len(given) == 1 else None
