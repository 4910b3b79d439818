"""Runs a benchmark: every prompt A B B A on one loaded model, prompt read before the clock starts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from ..api import LLM
from ..costs import CostTable
from ..drafters import build
from ..errors import EdgeSpecError
from ..generation import Event, Generation, GenerationRequest
from ..sampling import SamplingParams
from ..stats import GenerationStats
from . import costs
from .conversations import check, encoded
from .modes import AUTO, PLAIN, Mode
from .peers import Peer
from .prompts import Workload
from .statistics import Cell, Pair, Run

VERIFY = "block"  # what `run` does without a seed: here the seed is for repeating a benchmark
_WARM_UP = 8  # tokens of a run that is not timed


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """temperature: None: the workload's own.  seed: of sampling and of the intervals.  raw: no chat template."""

    max_tokens: int = 128
    temperature: float | None = None
    seed: int = 0
    raw: bool = False

    def params(self, workload: Workload) -> SamplingParams:
        """Sampling of one workload's runs: our defaults, but for the temperature."""
        own = workload.temperature if self.temperature is None else self.temperature
        return SamplingParams(temperature=own, seed=self.seed)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a benchmark measured.

    costs: the target's decodes by width.  draft_step_ms: one decode of the draft model.  cells: per workload and
    mode, against plain.  peers: per workload and peer; `mode` of these cells is the peer's name.  peer_mode: ours.
    stopped: what ended it before all was measured, Ctrl+C or an error.
    """

    costs: CostTable
    draft_step_ms: float | None
    cells: tuple[Cell, ...]
    peers: tuple[Cell, ...]
    peer_mode: Mode
    stopped: KeyboardInterrupt | EdgeSpecError | None = None


def run_count(workloads: Sequence[Workload], modes: int, peers: int) -> int:
    """Timed generations of a benchmark, for a progress bar."""
    return sum(len(w.prompts) for w in workloads) * (1 + 3 * modes + 4 * peers)


def run_bench(
    llm: LLM,
    workloads: Sequence[Workload],
    modes: Sequence[Mode],
    settings: Settings,
    peers: Sequence[Peer] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Measure the cost curve, then every workload in every mode. progress: told the workload after each timed run.

    Modes share their plain runs: A B B A C C A is A B B A and A C C A. Raises ContextFullError before anything is
    timed if a prompt does not fit. What ends it later is in the outcome, beside all that was measured before.
    """
    first = check(llm, workloads, raw=settings.raw)
    if llm.sources and llm.target.can_roll_back:
        llm.measured()  # from here on decodes are padded, in every mode alike
    depth = len(first) + settings.max_tokens // 2  # where the middle of a reply to such a prompt is
    table = costs.measure(llm.target, first, depth=depth)
    draft_step = None if llm.draft is None else costs.measure(llm.draft, first, (1,), depth=depth).at(1)
    for mode in (PLAIN, *modes):  # whatever is made at first use is made before the clock starts
        run_once(llm, first, mode, settings.params(workloads[0]), _WARM_UP)
    peer_mode = AUTO if AUTO in modes else modes[0]
    found: dict[tuple[str, str], list[Pair]] = {}
    against: dict[tuple[str, str], list[Pair]] = {}
    stopped: KeyboardInterrupt | EdgeSpecError | None = None
    try:
        for workload in workloads:
            for prompt, ids in encoded(llm, workload, raw=settings.raw, max_tokens=settings.max_tokens):
                done = partial(progress, workload.name)
                case = _Case(llm, prompt.name, ids, settings.params(workload), settings.max_tokens, done)
                case.read_prompt()
                for mode, pair in case.against_plain(modes):
                    found.setdefault((workload.name, mode.name), []).append(pair)
                for peer, pair in case.against_peers(peers, peer_mode):
                    against.setdefault((workload.name, peer.name), []).append(pair)
    except (KeyboardInterrupt, EdgeSpecError) as error:
        stopped = error
    return Outcome(
        table, draft_step, _cells(found, workloads, settings), _cells(against, workloads, settings), peer_mode, stopped
    )


@dataclass(frozen=True, slots=True)
class _Case:
    """One prompt to continue. done: called after each timed run."""

    llm: LLM
    name: str
    ids: tuple[int, ...]
    params: SamplingParams
    max_tokens: int
    done: Callable[[], None]

    def read_prompt(self) -> None:
        """Leave the prompt in the caches of target and draft: only decoding is timed."""
        run_once(self.llm, self.ids, PLAIN, self.params, 2)
        if self.llm.draft is not None:
            run_once(self.llm, self.ids, Mode("model:1", ("model",), 1), self.params, 4)

    def against_plain(self, modes: Sequence[Mode]) -> Iterator[tuple[Mode, Pair]]:
        before = self._timed(PLAIN)
        for mode in modes:
            runs = (self._timed(mode), self._timed(mode))
            after = self._timed(PLAIN)
            yield mode, Pair(self.name, (before, after), runs)
            before = after

    def against_peers(self, peers: Sequence[Peer], mode: Mode) -> Iterator[tuple[Peer, Pair]]:
        for peer in peers:
            peer.run(self.ids, self.params, 1)
            before = self._theirs(peer)
            runs = (self._timed(mode), self._timed(mode))
            yield peer, Pair(self.name, (before, self._theirs(peer)), runs)

    def _timed(self, mode: Mode) -> Run:
        run = run_once(self.llm, self.ids, mode, self.params, self.max_tokens)
        self.done()
        return run

    def _theirs(self, peer: Peer) -> Run:
        run = peer.run(self.ids, self.params, self.max_tokens)
        self.done()
        return run


def run_once(llm: LLM, ids: tuple[int, ...], mode: Mode, params: SamplingParams, max_tokens: int) -> Run:
    """One generation, timed from its first token to its end."""
    if mode.draft_max is None:
        options = {name: getattr(params, name) for name in ("temperature", "seed")}
        with llm.stream(ids, max_tokens=max_tokens, verify=VERIFY, **options) as stream:
            seconds = _seconds(stream.events())
            return _as_run(llm, stream.reply.stats, seconds)
    request = GenerationRequest(
        prompt=ids, params=params, max_tokens=max_tokens, draft_max=mode.draft_max, verify=VERIFY
    )
    drafter = build(mode.sources, llm.resources()) if mode.sources else None
    generation = Generation(llm.target, request, drafter)
    seconds = _seconds(generation)
    return _as_run(llm, generation.stats, seconds)


def _seconds(events: Iterable[Event]) -> float:
    """Wall time from the first event, which is the first token's, to the end."""
    start = None
    for _ in events:
        if start is None:
            start = time.perf_counter()
    return 0.0 if start is None else time.perf_counter() - start


def _as_run(llm: LLM, stats: GenerationStats, seconds: float) -> Run:
    model = stats.sources.get("model")
    return Run(
        tokens=max(0, stats.completion_tokens - 1),
        seconds=seconds,
        rounds=stats.rounds,
        produced=stats.produced,
        drafted=stats.drafted,
        accepted=stats.accepted,
        drafted_at=tuple(stats.drafted_at),
        accepted_at=tuple(stats.accepted_at),
        widths=tuple(sorted(stats.widths.items())),
        draft_steps=model.drafted if model else 0,
        head_ms=sum(source.drafted * llm.head_ms(name) for name, source in stats.sources.items()),
    )


def _cells(
    found: dict[tuple[str, str], list[Pair]], workloads: Sequence[Workload], settings: Settings
) -> tuple[Cell, ...]:
    heat = {w.name: settings.params(w).temperature for w in workloads}
    return tuple(Cell(workload, mode, heat[workload], tuple(pairs)) for (workload, mode), pairs in found.items())
