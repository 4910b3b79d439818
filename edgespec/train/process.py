"""The whole of a training: collect, learn, measure, write, register; interrupted anywhere, it goes on where it was."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgespec.models.header import Header, read_header
from edgespec.models.identity import file_identity

from ..api import LLM
from ..errors import EdgeSpecError
from ..heads.medusa import Facts
from ..heads.registry import register
from ..paths import home, write_whole
from .collect import Prompt, best_width, collect_shard, encoded, group, require_states, shard_path
from .data import TOP, Text, read_arrays, vocabulary, write_arrays
from .fit import Score, Trainer
from .form import Form, Material
from .forms import FORMS
from .measure import Measured, measure
from .output import output_rows
from .prompts import MEASURED, abouts, divided, mixed, shipped
from .questions import ask
from .room import on_disk, require_memory, require_space
from .settings import Progress, TrainSettings

_COLLECTING, _ASKING = 0.55, 0.12  # most of the time that it may take; of that, to ask questions
_MEASURING = 0.06  # of the time, for the end
_COLLECTED, _WIDTH, _QUESTIONS = "collected.json", "width.json", "questions.json"
_CHECKPOINT, _UNMEASURED = "checkpoint.npz", "unmeasured"
_JUDGING = 1.4  # times of a pass that a pass takes with all that comes with it
_LEAST_GROUPS = 1  # to train on, however short the time is
_ROUNDS = 3  # texts of a group that follow each other in one place
_JUDGED = 2  # the same of the group that passes are judged by
_MEASURED = 96  # tokens of a text that the result is measured on
_TEMPERATURES = (0.0, 0.8)  # that the result is measured at

Load = Callable[[Path, TrainSettings], LLM]


@dataclass(frozen=True, slots=True)
class Trained:
    """path: of the heads.  source: what they are called as a source of guesses.  tokens: learned from.  vocabulary:
    tokens that can be guessed.  epochs: passes.  score: of the pass that was kept, on held-out text.  measured: in real
    rounds on other held-out prompts, at temperature 0 and at 0.8.
    """

    path: Path
    source: str
    tokens: int
    vocabulary: int
    epochs: int
    score: Score
    measured: tuple[Measured, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class _Time:
    """When it began, what it may take, and what the clock says."""

    minutes: float
    clock: Callable[[], float]
    begin: float

    def until(self, share: float) -> float:
        return self.begin + 60 * self.minutes * share

    @property
    def spent(self) -> float:
        return (self.clock() - self.begin) / (60 * self.minutes)


def train(
    path: Path,
    settings: TrainSettings,
    load: Load,
    progress: Progress,
    *,
    own: Sequence[Prompt] = (),
    out: Path | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Trained:
    """Train heads for a model file, and register them for it.

    load: opens the file for writing `at_once` texts.  own: prompts beside those that are shipped.  out: where the heads
    go; None: our own folder. Interrupted and called again with the same arguments, it goes on: what was collected and
    every whole pass are on disk. With fixed tokens, epochs and threads, and minutes enough, the result is the same.
    Raises as load() does, EdgeSpecError, and NoSpaceError where the disk is full.
    """
    header, form = read_header(path), FORMS[settings.form]
    identity = file_identity(header)
    folder = work_folder(header, settings, own)
    out = home() / "heads" / f"{identity[:32]}-{form.source}{form.suffix}" if out is None else out
    watch = _Time(settings.minutes, clock, clock())
    n_embd = header.embedding_length or 0
    require_space(folder, n_embd, settings, form.weights(n_embd, settings.heads))
    with on_disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with _opened(path, load, settings) as llm:
            width = _width(llm, settings, folder)
            asked = _asked(llm, settings, progress, folder, watch, width)
            prompts = _Prompts.of(llm, settings, own, asked)
            texts, held = _collected(llm, prompts, settings, progress, folder, watch, width)
            size = llm.target.vocab.size
        trainer, score = _fitted(form, header, texts, held, settings, progress, folder, watch)
        tokens = sum(len(text.tokens) for text in texts)
        recipe = {"form": settings.form, "tokens": tokens, "passes": trainer.epoch, "seed": settings.seed}
        facts = Facts(
            size,
            held[0].states.shape[1],
            identity,
            header.path.name,
            recipe=json.dumps(recipe | {"own": len(own), "asked": sum(map(bool, asked))}),
        )
        unmeasured = folder / f"{_UNMEASURED}{form.suffix}"
        trainer.write(facts, unmeasured)
        progress.step("drafting on prompts that were not learned from")
        with _opened(path, load, settings) as llm, form.drafters(llm, unmeasured) as make:
            measured = tuple(
                measure(
                    llm,
                    make,
                    settings.heads,
                    prompts.measured,
                    temperature=t,
                    reply=min(settings.reply, _MEASURED),
                    seed=settings.seed,
                )
                for t in _TEMPERATURES
            )
        scores = {"measured": [_shown(m) for m in measured], "coverage": round(score.coverage, 3)}
        trainer.write(replace(facts, scores=json.dumps(scores)), out)
        register(identity, out, form.source)
    shutil.rmtree(folder, ignore_errors=True)
    return Trained(out, form.source, tokens, len(trainer.ids), trainer.epoch, score, measured, clock() - watch.begin)


def _shown(measured: Measured) -> dict[str, float | list[float]]:
    return {
        "temperature": measured.temperature,
        "tau": round(measured.tau, 3),
        "acceptance": [round(share, 3) for share in measured.acceptance],
    }


def work_folder(header: Header, settings: TrainSettings, own: Sequence[Prompt]) -> Path:
    """Where what is collected lies until the training is over."""
    return home() / "train" / f"{file_identity(header)[:16]}-{settings.digest(*map(repr, own))}"


@contextmanager
def _opened(path: Path, load: Load, settings: TrainSettings) -> Iterator[LLM]:
    with load(path, settings) as llm:
        require_states(llm)
        yield llm


@dataclass(frozen=True, slots=True)
class _Prompts:
    """As the model reads them, in the order in which they are used. judged: no subject of learned, the same forms, and
    questions that the model asked itself. measured: other forms, and held-out prompts of the user's."""

    learned: list[tuple[int, ...]]
    judged: list[tuple[int, ...]]
    measured: list[tuple[int, ...]]

    @classmethod
    def of(cls, llm: LLM, settings: TrainSettings, own: Sequence[Prompt], asked: Sequence[str]) -> _Prompts:
        """asked: questions of the model's, every other prompt as long as there are some. One asked twice counts
        once, and is then learned from, not judged by.
        """
        parts: list[list[tuple[int, ...]]] = []
        known = {""}
        for i, (ours, theirs, its) in enumerate(zip(shipped(), divided(own), divided(asked), strict=True)):
            ids = encoded(llm, [*ours, *theirs])
            order = np.random.default_rng((settings.seed, i)).permutation(len(ids)).tolist()
            questions = [question for question in dict.fromkeys(its) if question not in known]
            known.update(questions)
            parts.append(mixed(encoded(llm, questions) if questions else [], [ids[j] for j in order]))
        learned, judged = parts
        return cls(learned, judged, encoded(llm, [*MEASURED, *divided(own)[1][: len(MEASURED)]]))


def _asked(llm: LLM, settings: TrainSettings, progress: Progress, folder: Path, watch: _Time, width: int) -> list[str]:
    """Questions that the model asks itself, for half of the texts; some are empty. Every HELD_OUTth is held out."""
    kept = folder / _QUESTIONS
    if kept.exists():
        found: list[str] = json.loads(kept.read_text("utf-8"))
        return found
    progress.step("the model asks itself questions")
    end = watch.until(_COLLECTING * _ASKING)
    count = min(settings.questions, settings.tokens // (2 * settings.reply))
    asked = ask(llm, abouts(count), settings, width, lambda: watch.clock() >= end)
    write_whole(kept, json.dumps(asked))
    return asked


def _collected(
    llm: LLM, prompts: _Prompts, settings: TrainSettings, progress: Progress, folder: Path, watch: _Time, width: int
) -> tuple[list[Text], list[Text]]:
    """(texts to learn from, texts to judge by): groups from disk, and written now until there are enough of them."""
    size, mark = settings.at_once, folder / _COLLECTED
    wanted = json.loads(mark.read_text("utf-8"))["groups"] if mark.exists() else None
    progress.step(f"the model writes texts to learn from, {width} at a time")
    held = collect_shard(llm, group(prompts.judged, 1, _JUDGED * size), 0, folder, settings, width)
    texts: list[Text] = []
    number, tokens, told = 0, 0, False
    end = watch.until(_COLLECTING)

    def over() -> bool:
        return wanted is None and number > _LEAST_GROUPS and watch.clock() >= end

    while number < wanted if wanted is not None else _more(number, tokens, settings, watch.clock() < end):
        number += 1
        since, here = watch.clock(), shard_path(folder, number).exists()
        texts += collect_shard(
            llm, group(prompts.learned, number, _ROUNDS * size), number, folder, settings, width, over
        )
        before, tokens = tokens, sum(len(text.tokens) for text in texts)
        if not told and not here:
            told = True
            speed = (tokens - before) / max(watch.clock() - since, 1e-6)
            _estimate(progress, speed, settings, llm.target.state_size)
        progress.part(min(1.0, max(tokens / settings.tokens, 0.0 if wanted else watch.spent / _COLLECTING)))
    write_whole(mark, json.dumps({"groups": number}))
    if not all(any(len(text.tokens) > settings.heads for text in some) for some in (texts, held)):
        raise EdgeSpecError(f"{llm.name} ends every text at once; there is nothing to learn from")
    return texts, held


def _width(llm: LLM, settings: TrainSettings, folder: Path) -> int:
    """Measured once for a training: with another width, texts could differ by a rounding."""
    kept = folder / _WIDTH
    if kept.exists():
        return int(json.loads(kept.read_text("utf-8")))
    width = best_width(llm, settings.at_once)
    write_whole(kept, json.dumps(width))
    return width


def _more(number: int, tokens: int, settings: TrainSettings, in_time: bool) -> bool:
    return number < _LEAST_GROUPS or (tokens < settings.tokens and in_time)


def _estimate(progress: Progress, speed: float, settings: TrainSettings, n_embd: int) -> None:
    minutes = min(settings.tokens / max(speed, 1e-6) / 60, settings.minutes * _COLLECTING)
    tokens = min(settings.tokens, int(60 * minutes * speed))
    progress.note(
        f"{speed:.0f} tokens a second: about {tokens:,} in {minutes:.0f} min, "
        f"{tokens * (2 * n_embd + 6 * TOP) / 1e6:.0f} MB on disk until it is done; an interrupted training goes on "
        "when the same command is given again"
    )


def _fitted(
    form: Form,
    header: Header,
    texts: list[Text],
    held: list[Text],
    settings: TrainSettings,
    progress: Progress,
    folder: Path,
    watch: _Time,
) -> tuple[Trainer[Any], Score]:
    """The trainer at the end, with the score of its best weights."""
    ids = vocabulary(texts, settings.vocabulary)
    rows = output_rows(header, ids)
    if rows is None:
        raise EdgeSpecError(f"{header.path.name} keeps its output matrix in a form that cannot be read here")
    learned = form.weights(rows.shape[1], settings.heads)
    working = form.working(rows.shape[1], len(ids), settings)
    require_memory(sum(len(text.tokens) for text in texts), rows.shape[1], learned, working)
    trainer, judged = form.begin(Material(header, texts, held, ids, rows), settings)
    deadline, longest = watch.until(1 - _MEASURING), 0.0
    saved = read_arrays(folder / _CHECKPOINT)
    if saved is not None and trainer.restore(saved):
        progress.note(f"going on after pass {trainer.epoch}")
    else:
        trainer.passes = _affordable(trainer, settings, deadline, watch)
    progress.step(
        f"learning from {sum(len(t.tokens) for t in texts):,} tokens, {len(ids):,} of them different, "
        f"in {trainer.passes} passes"
    )
    while trainer.epoch < trainer.passes and not trainer.done:
        since = watch.clock()
        if trainer.epoch and since + longest > deadline:
            progress.note(f"time is up after pass {trainer.epoch}")
            break
        loss = trainer.run_epoch(settings.batch)
        score = trainer.score(judged)
        better = trainer.judge(score)
        write_arrays(folder / _CHECKPOINT, **trainer.arrays())
        longest = max(longest, watch.clock() - since)
        guesses = ", ".join(f"{share:.0%}" for share in score.acceptance)
        progress.note(
            f"pass {trainer.epoch}: loss {loss:.3f}; held out: {score.tau:.2f} tokens a round, guesses right {guesses}"
            f"{'' if better else ' (no better)'}"
        )
        progress.part(min(1.0, max(trainer.epoch / trainer.passes, watch.spent)))
    trainer.params = trainer.best
    return trainer, trainer.score(judged)


def _affordable(trainer: Trainer[Any], settings: TrainSettings, deadline: float, watch: _Time) -> int:
    """Passes that there is time for, at least 1: the rate of learning is to have fallen when the last of them ends."""
    since = watch.clock()
    steps = trainer.try_steps(settings.batch)
    took = (watch.clock() - since) * trainer.steps_of_a_pass(settings.batch) / max(1, steps)
    left = deadline - watch.clock()
    return max(1, min(settings.epochs, int(left / max(_JUDGING * took, 1e-6))))
