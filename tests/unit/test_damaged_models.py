"""Damaged and hostile headers through `show`, `ls` and `pair`: an answer or one line, at once, in little memory."""

from __future__ import annotations

import random
import time
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner
from gguf_bytes import gguf, mutate

from edgespec.cli import ls, pair, show
from edgespec.errors import EdgeSpecError
from model_places import make_places

_LONGEST_S = 2.0
_MOST_BYTES = 500e6


def hostile_runs(folder: Path, count: int, seed: int) -> int:
    """Put `count` damaged files in a folder of models, one after the other. Returns how many could be paired."""
    rng = random.Random(seed)
    whole = gguf()
    places = make_places(folder)
    good, bad = places.own / "good.gguf", places.own / "bad.gguf"
    good.write_bytes(whole)
    runner = CliRunner(env=places.env)
    paired = 0
    commands = ((show.show, str(bad)), (ls.ls,), (pair.pair, str(bad)), (pair.pair, str(good), "--json"))
    runner.invoke(pair.pair, [str(good)], catch_exceptions=False)  # what is imported once costs once
    for _ in range(count):
        bad.write_bytes(mutate(whole, rng))
        for command, *arguments in commands:
            began, message = time.perf_counter(), ""
            try:
                result = runner.invoke(command, arguments, catch_exceptions=False)
                assert result.exit_code == 0, result.output
                paired += command is pair.pair and arguments == [str(bad)]
            except EdgeSpecError as error:
                message = str(error)
            assert message.isprintable()
            assert not (message and command is ls.ls)  # a list tells what is damaged
            assert time.perf_counter() - began < _LONGEST_S
    assert psutil.Process().memory_info().rss < _MOST_BYTES
    return paired


def test_damaged_headers_end_in_an_answer_or_one_line(tmp_path: Path) -> None:
    assert 0 < hostile_runs(tmp_path, 150, seed=11) < 150


@pytest.mark.soak
def test_damaged_headers_full_count(tmp_path: Path) -> None:
    assert 0 < hostile_runs(tmp_path, 2_000, seed=12) < 2_000
