"""The engine itself: one thread that owns the model, works through the queue, and runs rounds for what it took.

Front ends of this process use it through LocalEngine, those of others through worker.py.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable

import psutil

from ..api import LLM
from ..errors import Cancelled, DeadlineError, EngineError
from ..options import check_options
from ..reply import Reply
from ..stats import GenerationStats
from .embedding import embedded
from .jobs import Job, JobQueue
from .loaded import Loader, description, redrafted, same_weights
from .protocol import (
    Done,
    EmbedSpec,
    EngineState,
    Event,
    Failed,
    Finished,
    GenerateSpec,
    Loaded,
    Loading,
    LoadSpec,
    Texts,
    Totals,
    failure,
)
from .states import Kept, States
from .together import Running, Together

log = logging.getLogger(__name__)

_KEEP_AFTER_S = 2.0  # without a request: then the state of the latest conversation is written to disk
_TOLD_STEP = 0.01  # of a file's reading

Tell = Callable[[Event], None]


class Core:
    """Owns a model, and runs jobs on it in a thread of its own.

    LoadSpec.at_once requests share the model's rounds; everything else has it alone.
    """

    def __init__(self, load: Loader, states: States, *, idle_s: float | None = None) -> None:
        """idle_s: seconds without a request after which the model is freed; None: never."""
        self._load, self._states, self._idle_s = load, states, idle_s
        self._queue = JobQueue()
        self._together = Together(states)
        self._llm: LLM | None = None
        self._spec: LoadSpec | None = None  # that the model serves now
        self._loaded_with: LoadSpec | None = None  # its drafter may be another one
        self._kept: Kept | None = None  # what of the latest request may be written to disk
        self._loaded: Loaded | None = None
        self._loading: str | None = None
        self._totals = Totals()
        self._sign = time.monotonic()  # when the model's thread last showed that it moves
        self._process = psutil.Process()
        self._thread = threading.Thread(target=self._work, name="edgespec-model", daemon=True)
        self._thread.start()

    # From any thread -------------------------------------------------------------------------------------------

    def load(self, spec: LoadSpec, tell: Tell) -> Job:
        """Have a model loaded; Loaded or Failed is told last."""
        return self._put(Job(self._run_load, tell, load=spec))

    def generate(self, load: LoadSpec, spec: GenerateSpec, tell: Tell) -> Job:
        """Run a request on a model; Finished or Failed is told last."""
        return self._put(Job(self._run_generate, tell, load=load, spec=spec))

    def translate(self, load: LoadSpec, spec: GenerateSpec, tell: Tell) -> Job:
        """Texts or Failed is told last."""
        return self._put(Job(self._run_translate, tell, load=load, spec=spec))

    def embed(self, load: LoadSpec, spec: EmbedSpec, tell: Tell) -> Job:
        """Embedded or Failed is told last."""
        return self._put(Job(self._run_embed, tell, load=load, embed=spec))

    def unload(self, tell: Tell) -> Job:
        """Free the model after the jobs before; Done is told."""
        return self._put(Job(self._run_unload, tell))

    def forget(self, conversation: str, tell: Tell) -> Job:
        """Delete the saved states of a conversation now, and what running jobs make of it; Done is told then."""
        self._states.forget(conversation)

        return self._put(Job(self._run_forget, tell, forgotten=conversation))

    def cancel(self, job: Job) -> None:
        """End a job soon; its last event tells so."""
        job.cancelled.set()
        if self._queue.remove(job):
            job.tell(_cancelled(job))

    def state(self, clients: int = 1) -> EngineState:
        """What it does now; waits for nothing."""
        return EngineState(
            pid=os.getpid(),
            loaded=self._loaded,
            loading=self._loading,
            queued=len(self._queue),
            busy=bool(self._queue.running),
            running=len(self._queue.running),
            clients=clients,
            rss_bytes=int(self._process.memory_info().rss),
            totals=self._totals,
        )

    def stuck_s(self) -> tuple[float, bool]:
        """(Seconds since the running jobs last moved, whether one is loading); 0 where none runs."""
        if not self._queue.running:
            return 0.0, False
        return time.monotonic() - self._sign, self._loading is not None

    def close(self, timeout_s: float | None = None) -> bool:
        """End all jobs, keep states, free the model. False where the model's thread did not end in time."""
        for job in self._queue.close():
            job.tell(failure(EngineError("the engine was closed before this request began")))
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # In the model's thread -------------------------------------------------------------------------------------

    def _put(self, job: Job) -> Job:
        self._queue.put(job)
        return job

    def _work(self) -> None:
        idle_since = time.monotonic()
        while self._together or not self._queue.closed:
            self._sign = time.monotonic()
            patience = 0.0 if self._together else self._patience(idle_since)
            job = self._queue.next(patience, self._fits)
            if job is not None:
                self._start(job)
            elif self._together:
                self._turn()
            else:
                self._idle(time.monotonic() - idle_since)
                continue
            idle_since = time.monotonic()
        self._drop()

    def _fits(self, job: Job) -> bool:
        """May it begin beside what runs?"""
        if not self._together:
            return True
        if job.forgotten is not None:
            return all(r.job.spec is None or r.job.spec.conversation != job.forgotten for r in self._together)
        if job.load is None or job.load != self._spec:  # the model is to be another one, or is to be freed
            return False
        return job.run != self._run_generate or len(self._together) < job.load.at_once

    def _start(self, job: Job) -> None:
        self._sign = time.monotonic()
        try:
            last = job.run(job)
        except BaseException as error:
            self._queue.done(job)
            self._failed(job, error)
            return
        if last is not None:
            self._queue.done(job)
            job.tell(last)

    def _turn(self) -> None:
        """A round for all requests that run, and the end of those that are finished."""
        assert self._llm is not None
        try:
            self._together.turn(self._llm.target, self._llm.target.n_batch)
        except BaseException as error:
            for running in self._together:
                self._end(running, error)
            return
        for running in self._together:
            if running.generation.finish_reason is not None:
                self._end(running, running.generation.error)

    def _end(self, running: Running, error: BaseException | None) -> None:
        job = running.job
        self._together.remove(running)
        self._queue.done(job)
        try:
            running.stream.close()
            if error is not None:
                raise error
            self._finish(running)
        except BaseException as failed:
            self._failed(job, failed)

    def _failed(self, job: Job, error: BaseException) -> None:
        if isinstance(error, Cancelled) and not job.expired:
            job.tell(_cancelled(job))
            return
        if not isinstance(error, (DeadlineError, Cancelled)):
            self._count(failures=1)
            log.info("a request failed", exc_info=error)
        job.tell(failure(error))

    def _patience(self, idle_since: float) -> float | None:
        """Seconds until there is something to do without a job."""
        idle = time.monotonic() - idle_since
        times = [_KEEP_AFTER_S] if self._kept is not None else []
        times += [self._idle_s] if self._idle_s is not None and self._llm is not None else []
        return max(0.0, min(times) - idle) if times else None

    def _idle(self, seconds: float) -> None:
        if self._kept is not None and seconds >= _KEEP_AFTER_S:
            self._keep()
        if self._idle_s is not None and self._llm is not None and seconds >= self._idle_s:
            log.info("the model is freed after %.0f s without a request", seconds)
            self._drop()

    def _run_load(self, job: Job) -> Event:
        self._ready(job)
        assert self._loaded is not None
        return self._loaded

    def _run_unload(self, _: Job) -> Event:
        self._drop()
        return Done()

    def _run_translate(self, job: Job) -> Event:
        assert job.spec is not None
        llm = self._ready(job)
        ids = llm.encode(job.spec.input)
        return Texts(ids, llm.detokenize(ids))

    def _run_forget(self, job: Job) -> Event:
        """Once more: jobs before it may have saved the conversation again."""
        assert job.forgotten is not None
        if self._kept is not None and self._kept.conversation == job.forgotten:
            self._kept = None
        self._states.forget(job.forgotten)
        return Done()

    def _run_embed(self, job: Job) -> Event:
        def moved() -> None:
            self._sign = time.monotonic()

        return embedded(self._ready(job), job, moved)

    def _run_generate(self, job: Job) -> None:
        """Begin; rounds do the rest."""
        assert job.spec is not None
        llm = self._ready(job)
        if self._kept is not None and self._kept.conversation != job.spec.conversation and not self._together:
            self._keep()  # its cache may be lost to this one
        check_options(**job.spec.options)
        self._together.add(job, llm.stream(job.spec.input, cancelled=job.cancelled, **job.spec.options))

    def _finish(self, running: Running) -> None:
        """Tell the whole reply, once it is counted and its cache is known to be worth keeping."""
        job, reply = running.job, running.stream.reply
        assert job.spec is not None
        self._count(
            requests=1,
            prompt_tokens=reply.stats.prompt_tokens,
            reused_tokens=running.reused or 0,
            completion_tokens=reply.stats.completion_tokens,
        )
        if job.spec.conversation is not None and reply.stats.rounds:
            self._kept = Kept(job.spec.conversation, tuple(running.generation.tokens[:-1]))
        if job.expired:
            job.check()
        job.tell(Finished(reply))

    def _ready(self, job: Job) -> LLM:
        """The model that a job wants, loaded now where it is not."""
        job.check()
        assert job.load is not None
        llm = self._llm
        if llm is not None and (job.load == self._spec or self._redraft(llm, job.load)):
            return llm
        self._drop()
        self._loading = "loading"
        try:
            self._llm = self._load(job.load, self._progress(job))
            self._spec, self._loaded_with, self._loaded = job.load, job.load, description(self._llm)
            self._states.use(self._llm.target)
            self._queue.at_once = job.load.at_once
        except BaseException:
            self._drop()
            raise
        finally:
            self._loading = None
        job.check()
        return self._llm

    def _redraft(self, llm: LLM, spec: LoadSpec) -> bool:
        """Use other sources of the model that is loaded; False where it is another one, or lacks a draft."""
        assert self._loaded_with is not None
        if not same_weights(spec, self._loaded_with) or not redrafted(llm, spec.drafter):
            return False
        self._spec, self._loaded = spec, description(llm)
        return True

    def _progress(self, job: Job) -> Callable[[str, float | None], None]:
        told = ("", -1.0)

        def progress(line: str, fraction: float | None) -> None:
            nonlocal told
            self._sign = time.monotonic()
            job.check()
            now = (line, -1.0 if fraction is None else fraction)
            if now[0] != told[0] or abs(now[1] - told[1]) >= _TOLD_STEP or fraction == 1:
                told, self._loading = now, line
                job.tell(Loading(line, fraction))

        return progress

    def _keep(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None and self._llm is not None:
            try:
                self._states.keep(kept)
            except Exception:  # a full disk, a failed save: the state is a convenience
                log.warning("the state of a conversation was not kept", exc_info=True)

    def _drop(self) -> None:
        """Keep what is worth it, and free the model."""
        self._keep()
        llm, self._llm, self._spec, self._loaded = self._llm, None, None, None
        self._states.use(None)
        if llm is not None:
            with contextlib.suppress(Exception):
                llm.close()

    def _count(self, **more: int) -> None:
        now = self._totals
        self._totals = Totals(**{name: getattr(now, name) + more.get(name, 0) for name in Totals.__struct_fields__})


def _cancelled(job: Job) -> Event:
    """The last event of a job that was cancelled before the model began it."""
    if job.spec is None:
        return Failed("Cancelled", "cancelled")
    return Finished(Reply("", (), (), "cancelled", "", "none", GenerationStats()))
