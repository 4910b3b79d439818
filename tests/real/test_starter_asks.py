"""What the starter model asks itself before a training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import edgespec
from edgespec.train import questions
from edgespec.train.prompts import abouts
from edgespec.train.settings import TrainSettings

pytestmark = pytest.mark.real

Record = Callable[..., None]
COUNT = 16


def test_the_starter_asks_questions_of_many_kinds(starter: Path, record: Record) -> None:
    settings = TrainSettings(at_once=8)
    with edgespec.load(
        starter, draft=None, drafter="none", heads=None, ctx_size=2048, parallel=8, threads=2, buffers="auto",
        flash_attn="off", tuned=False,
    ) as llm:  # fmt: skip
        asked = questions.ask(llm, abouts(COUNT), settings, 8)
    written = [question for question in asked if question]
    record(written=len(written), of=COUNT, characters=sum(map(len, written)))
    assert len(asked) == COUNT
    assert len(written) > COUNT // 4
    assert len(set(written)) == len(written)
    assert not any("<|im_" in question for question in written)
