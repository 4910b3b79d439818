"""The whole of a training: collect, learn, judge, write and register; interrupted anywhere, it goes on where it was."""

from __future__ import annotations

import errno
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgespec.models.header import Header, read_header
from edgespec.models.identity import file_identity
from edgespec.models.quoting import quoted

from ..api import LLM
from ..errors import EdgeSpecError, NoSpaceError
from ..heads.medusa import Facts
from ..heads.registry import register
from ..heads.storage import SUFFIX, write_heads
from ..paths import home, write_whole
from .collect import collect_shard, encoded, group, require_states, shard_path
from .data import Text, pairs, read_arrays, vocabulary, write_arrays
from .fit import Score, Trainer
from .output import output_rows
from .prompts import divided, shipped
from .settings import Progress, TrainSettings

_COLLECTING = 0.5  # most of the time that it may take
_SPARE = 100e6  # bytes of disk that stay free
_COLLECTED, _CHECKPOINT = "collected.json", "checkpoint.npz"
_LEAST_GROUPS = 1  # to train on, however short the time is

Load = Callable[[Path, TrainSettings], LLM]


@dataclass(frozen=True, slots=True)
class Trained:
    """path: of the heads.  tokens: learned from.  vocabulary: tokens that can be guessed.  epochs: passes.
    score: on held-out text."""

    path: Path
    tokens: int
    vocabulary: int
    epochs: int
    score: Score
    seconds: float


def train(
    path: Path,
    settings: TrainSettings,
    load: Load,
    progress: Progress,
    *,
    own: Sequence[str] = (),
    out: Path | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Trained:
    """Train heads for a model file, and register them for it.

    load: opens the file for writing `at_once` texts.  own: prompts beside those that are shipped.  out: where the heads
    go; None: our own folder. Interrupted and called again with the same arguments, it goes on: what was collected and
    every whole pass are on disk. With fixed tokens, epochs and threads, and minutes enough, the result is the same.
    Raises as load() does, EdgeSpecError, and NoSpaceError where the disk is full.
    """
    header = read_header(path)
    identity = file_identity(header)
    folder = work_folder(header, settings, own)
    out = home() / "heads" / f"{identity[:32]}-medusa{SUFFIX}" if out is None else out
    begin = clock()
    _require_space(folder, header, settings)
    with _on_disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
        texts, held = _collected(path, settings, load, progress, own, folder, begin, clock)
        trainer, score = _fitted(header, texts, held, settings, progress, folder, begin, clock)
        tokens = sum(len(text.tokens) for text in texts)
        facts = Facts(
            json.loads((folder / _COLLECTED).read_text("utf-8"))["vocab_size"],
            held[0].states.shape[1],
            identity,
            header.path.name,
            recipe=json.dumps({"tokens": tokens, "passes": trainer.epoch, "seed": settings.seed, "own": len(own)}),
            scores=json.dumps({"tau": round(score.tau, 3), "acceptance": [round(a, 3) for a in score.acceptance]}),
        )
        write_heads(trainer.heads(facts), out)
        register(identity, out)
    shutil.rmtree(folder, ignore_errors=True)
    return Trained(out, tokens, len(trainer.ids), trainer.epoch, score, clock() - begin)


def work_folder(header: Header, settings: TrainSettings, own: Sequence[str]) -> Path:
    """Where what is collected lies until the training is over."""
    return home() / "train" / f"{file_identity(header)[:16]}-{settings.digest(*own)}"


def _collected(
    path: Path,
    settings: TrainSettings,
    load: Load,
    progress: Progress,
    own: Sequence[str],
    folder: Path,
    begin: float,
    clock: Callable[[], float],
) -> tuple[list[Text], list[Text]]:
    """(texts to learn from, texts to judge by): groups from disk, and written now until there are enough of them."""
    train_texts, held_texts = (a + b for a, b in zip(shipped(), divided(list(own)), strict=True))
    with load(path, settings) as llm:
        require_states(llm)
        train_ids, held_ids = encoded(llm, train_texts), encoded(llm, held_texts)
        orders = [
            np.random.default_rng((settings.seed, i)).permutation(len(ids)).tolist()
            for i, ids in enumerate((train_ids, held_ids))
        ]
        size, mark = settings.at_once, folder / _COLLECTED
        wanted = json.loads(mark.read_text("utf-8"))["groups"] if mark.exists() else None
        progress.step(f"the model writes texts to learn from, {size} at a time")
        held = collect_shard(llm, group(held_ids, orders[1], 1, size), 0, folder, settings)
        texts: list[Text] = []
        number, tokens, told = 0, 0, False
        end = begin + 60 * settings.minutes * _COLLECTING
        while number < wanted if wanted is not None else _more(number, tokens, settings, clock() < end):
            number += 1
            since, here = clock(), shard_path(folder, number).exists()
            texts += collect_shard(llm, group(train_ids, orders[0], number, size), number, folder, settings)
            before, tokens = tokens, sum(len(text.tokens) for text in texts)
            if not told and not here:
                told = True
                _estimate(progress, (tokens - before) / max(clock() - since, 1e-6), settings, llm.target.state_size)
            spent = (clock() - begin) / max(end - begin, 1e-9)
            progress.part(min(1.0, max(tokens / settings.tokens, 0.0 if wanted else spent)))
        write_whole(mark, json.dumps({"groups": number, "vocab_size": llm.target.vocab.size}))
    if not tokens or not any(len(text.tokens) for text in held):
        raise EdgeSpecError(f"{path.name} ends every text at once; there is nothing to learn from")
    return texts, held


def _more(number: int, tokens: int, settings: TrainSettings, in_time: bool) -> bool:
    return number < _LEAST_GROUPS or (tokens < settings.tokens and in_time)


def _estimate(progress: Progress, speed: float, settings: TrainSettings, n_embd: int) -> None:
    minutes = min(settings.tokens / max(speed, 1e-6) / 60, settings.minutes * _COLLECTING)
    tokens = min(settings.tokens, int(60 * minutes * speed))
    progress.note(
        f"about {tokens:,} tokens in {minutes:.0f} min, {tokens * 2 * n_embd / 1e6:.0f} MB on disk until it is done; "
        "an interrupted training goes on when the same command is given again"
    )


def _fitted(
    header: Header,
    texts: list[Text],
    held: list[Text],
    settings: TrainSettings,
    progress: Progress,
    folder: Path,
    begin: float,
    clock: Callable[[], float],
) -> tuple[Trainer, Score]:
    """The trainer at the end, with the score of its best weights."""
    ids = vocabulary(texts, settings.vocabulary)
    judged = pairs(held, settings.heads)
    trainer = Trainer(pairs(texts, settings.heads), ids, settings.heads, output_rows(header, ids), settings.seed)
    saved = read_arrays(folder / _CHECKPOINT)
    if saved is not None and trainer.restore(saved):
        progress.note(f"going on after pass {trainer.epoch}")
    progress.step(f"learning from {sum(len(t.tokens) for t in texts):,} tokens, {len(ids):,} of them different")
    deadline, longest = begin + 60 * settings.minutes, 0.0
    while trainer.epoch < settings.epochs and not trainer.done:
        since = clock()
        if trainer.epoch and since + longest > deadline:
            progress.note(f"time is up after pass {trainer.epoch}")
            break
        loss = trainer.run_epoch(settings.batch)
        score = trainer.score(judged)
        better = trainer.judge(score)
        write_arrays(folder / _CHECKPOINT, **trainer.arrays())
        longest = max(longest, clock() - since)
        guesses = ", ".join(f"{share:.0%}" for share in score.acceptance)
        progress.note(
            f"pass {trainer.epoch}: loss {loss:.3f}; held out: {score.tau:.2f} tokens a round, guesses right {guesses}"
            f"{'' if better else ' (no better)'}"
        )
        spent = (clock() - begin) / max(deadline - begin, 1e-9)
        progress.part(min(1.0, max(trainer.epoch / settings.epochs, spent)))
    trainer.params = trainer.best
    return trainer, trainer.score(judged)


def _require_space(folder: Path, header: Header, settings: TrainSettings) -> None:
    """States in float16, and the weights of a checkpoint: now, twice their averages, the best."""
    n = header.embedding_length or 0
    size = min(settings.vocabulary, settings.tokens)
    needed = 2 * n * settings.tokens + 2 * 4 * 4 * (n * size + settings.heads * n * n) + _SPARE
    place = next(place for place in (folder, *folder.parents) if place.exists())
    free = shutil.disk_usage(place).free
    if free < needed:
        raise NoSpaceError(
            f"training needs {needed / 1e6:.0f} MB free in {quoted(place)}, which has {free / 1e6:.0f} MB; free some "
            "space, give fewer --tokens, or point EDGESPEC_HOME at another disk"
        )


@contextmanager
def _on_disk(folder: Path) -> Iterator[None]:
    """A disk that fills up loses nothing that is on it."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise NoSpaceError(
            f"the disk of {quoted(folder)} is full; free some space and give the same command again: it goes on where "
            "it was"
        ) from error
