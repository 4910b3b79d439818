"""Trainings of tiny models: with what settings, what they say, and how one is interrupted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import edgespec
from edgespec.train import process
from edgespec.train.forms import FORMS
from edgespec.train.settings import TrainSettings

FEW = ("--threads", "1", "--tokens", "300", "--epochs", "2", "--at-once", "4", "--vocabulary", "64")
SETTINGS = TrainSettings(tokens=300, epochs=3, reply=24, at_once=4, vocabulary=64, minutes=60)


class Silent:
    """Keeps what was said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def step(self, text: str) -> None:
        self.lines.append(text)

    def part(self, fraction: float) -> None:
        assert 0 <= fraction <= 1

    def note(self, line: str) -> None:
        self.lines.append(line)


def load(path: Path, settings: TrainSettings) -> edgespec.LLM:
    return edgespec.load(
        path,
        draft=None,
        drafter="none",
        heads=None,
        ctx_size=1024,
        threads=1,
        buffers="none",
        parallel=settings.at_once,
    )


def trained(path: Path, out: Path, settings: TrainSettings = SETTINGS, **more: Any) -> process.Trained:
    return process.train(path, settings, load, more.pop("progress", Silent()), out=out, **more)


def after(calls: int, function: Callable[..., Any], error: BaseException) -> Callable[..., Any]:
    """`function`, which fails from its call number `calls` on."""
    made = 0

    def run(*arguments: Any, **more: Any) -> Any:
        nonlocal made
        made += 1
        if made > calls:
            raise error
        return function(*arguments, **more)

    return run


def stopped_anywhere(
    path: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: TrainSettings,
    read: Callable[[Path], object],
    *places: tuple[Any, str, int],
) -> None:
    """A training that is interrupted in one of these calls, by its number, and given again, leaves what a whole one
    does. read: what is compared of the file.
    """
    suffix = FORMS[settings.form].suffix
    out = folder / f"again{suffix}"
    trained(path, folder / f"whole{suffix}", settings)
    for place, name, calls in places:
        with monkeypatch.context() as patch:
            patch.setattr(place, name, after(calls, getattr(place, name), KeyboardInterrupt()))
            with pytest.raises(KeyboardInterrupt):
                trained(path, out, settings)
        assert not out.exists()
        trained(path, out, settings)
        assert read(out) == read(folder / f"whole{suffix}"), (name, calls)
        out.unlink()
