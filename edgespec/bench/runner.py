"""Runs a benchmark: every prompt A B B A on one loaded model, prompt read before the clock starts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..api import LLM
from ..drafters import Resources, build
from ..errors import BadRequestError, ContextFullError
from ..generation import Event, Generation, GenerationRequest
from ..planning import CostTable
from ..sampling import SamplingParams
from ..stats import GenerationStats
from . import costs
from .modes import AUTO, PLAIN, Mode
from .peers import Peer
from .prompts import BenchPrompt, Workload
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
    """

    costs: CostTable
    draft_step_ms: float | None
    cells: tuple[Cell, ...]
    peers: tuple[Cell, ...]
    peer_mode: Mode


@dataclass(frozen=True, slots=True)
class _Case:
    workload: Workload
    prompt: BenchPrompt
    ids: tuple[int, ...]


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
    timed if a prompt does not fit.
    """
    cases = _encode(llm, workloads, settings)
    table = costs.measure(llm.target, cases[0].ids)
    draft_step = None if llm.draft is None else costs.measure(llm.draft, cases[0].ids, (1,)).at(1)
    for mode in (PLAIN, *modes):  # whatever is made at first use is made before the clock starts
        run_once(llm, cases[0].ids, mode, settings.params(cases[0].workload), _WARM_UP)
    peer_mode = AUTO if AUTO in modes else modes[0]
    found: dict[tuple[str, str], list[Pair]] = {}
    against: dict[tuple[str, str], list[Pair]] = {}
    for case in cases:
        params = settings.params(case.workload)

        def timed(mode: Mode, case: _Case = case, params: SamplingParams = params) -> Run:
            run = run_once(llm, case.ids, mode, params, settings.max_tokens)
            progress(case.workload.name)
            return run

        _read_prompt(llm, case.ids, params)
        before = timed(PLAIN)
        for mode in modes:
            runs = (timed(mode), timed(mode))
            after = timed(PLAIN)
            pair = Pair(case.prompt.name, (before, after), runs)
            found.setdefault((case.workload.name, mode.name), []).append(pair)
            before = after
        for peer in peers:
            peer.run(case.ids, params, 1)
            theirs = [peer.run(case.ids, params, settings.max_tokens)]
            ours = (timed(peer_mode), timed(peer_mode))
            theirs.append(peer.run(case.ids, params, settings.max_tokens))
            for _ in theirs:
                progress(case.workload.name)
            pair = Pair(case.prompt.name, tuple(theirs), ours)
            against.setdefault((case.workload.name, peer.name), []).append(pair)
    return Outcome(
        table, draft_step, _cells(found, workloads, settings), _cells(against, workloads, settings), peer_mode
    )


def run_once(llm: LLM, ids: tuple[int, ...], mode: Mode, params: SamplingParams, max_tokens: int) -> Run:
    """One generation, timed from its first token to its end."""
    if mode.draft_max is None:
        options = {name: getattr(params, name) for name in ("temperature", "seed")}
        with llm.stream(ids, max_tokens=max_tokens, verify=VERIFY, **options) as stream:
            seconds = _seconds(stream.events())
            return _as_run(stream.reply.stats, seconds)
    request = GenerationRequest(
        prompt=ids, params=params, max_tokens=max_tokens, draft_max=mode.draft_max, verify=VERIFY
    )
    drafter = build(mode.sources, Resources(llm.draft)) if mode.sources else None
    generation = Generation(llm.target, request, drafter)
    seconds = _seconds(generation)
    return _as_run(generation.stats, seconds)


def _seconds(events: Iterable[Event]) -> float:
    """Wall time from the first event, which is the first token's, to the end."""
    start = None
    for _ in events:
        if start is None:
            start = time.perf_counter()
    return 0.0 if start is None else time.perf_counter() - start


def _as_run(stats: GenerationStats, seconds: float) -> Run:
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
    )


def _read_prompt(llm: LLM, ids: tuple[int, ...], params: SamplingParams) -> None:
    """Leave the prompt in the caches of target and draft: only decoding is timed."""
    run_once(llm, ids, PLAIN, params, 2)
    if llm.draft is not None:
        run_once(llm, ids, Mode("model:1", ("model",), 1), params, 4)


def _encode(llm: LLM, workloads: Sequence[Workload], settings: Settings) -> list[_Case]:
    """Token ids of every prompt, refused before anything is timed if one does not fit."""
    bare = settings.raw or llm.template is None
    cases = []
    for workload in workloads:
        for prompt in workload.prompts:
            if bare and prompt.plain is None:
                why = "--raw takes" if settings.raw else f"{llm.name} has no chat template and takes"
                raise BadRequestError(f'prompt {prompt.name} is a conversation; {why} {{"prompt"}} lines only')
            ids = llm.encode(prompt.plain if bare and prompt.plain is not None else prompt.messages)
            if len(ids) + 2 > llm.target.n_ctx:
                raise ContextFullError(
                    f"prompt {prompt.name} has {len(ids)} tokens and the context holds {llm.target.n_ctx}; "
                    "raise --ctx-size, or leave that workload out",
                    needed=len(ids),
                    available=llm.target.n_ctx - 2,
                )
            cases.append(_Case(workload, prompt, ids))
    return cases


def _cells(
    found: dict[tuple[str, str], list[Pair]], workloads: Sequence[Workload], settings: Settings
) -> tuple[Cell, ...]:
    heat = {w.name: settings.params(w).temperature for w in workloads}
    return tuple(Cell(workload, mode, heat[workload], tuple(pairs)) for (workload, mode), pairs in found.items())
