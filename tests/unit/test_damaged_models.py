"""Damaged and hostile headers through `show`, `ls` and `pair`: an answer or one line, at once, in little memory."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner
from gguf_bytes import gguf, mutate

from edgespec.cli import ls, pair, show
from edgespec.errors import EdgeSpecError
from edgespec.models.header import read_header
from model_places import make_places

_LONGEST_S = 2.0
_MOST_BYTES = 500e6


@dataclass(frozen=True, slots=True)
class Outcome:
    """files: damaged ones that were tried.  paired: of these, could be paired all the same.  peak: bytes of memory."""

    files: int
    paired: int
    slowest_s: float
    peak: int


def hostile_runs(folder: Path, header: bytes, size: int, count: int, seed: int) -> Outcome:
    """Put `count` damaged files in a folder of models, one after the other, beside a whole one.

    header: of a model of `size` bytes; its data is zeros that take no disk.
    """
    rng = random.Random(seed)
    places = make_places(folder)
    good, bad = places.own / "good.gguf", places.own / "bad.gguf"
    write(good, header, size)
    runner = CliRunner(env=places.env)
    paired, slowest = 0, 0.0
    commands = ((show.show, str(bad)), (ls.ls,), (pair.pair, str(bad)), (pair.pair, str(good), "--json"))
    runner.invoke(pair.pair, [str(good)], catch_exceptions=False)  # what is imported once costs once
    for _ in range(count):
        damaged = mutate(header, rng)
        write(bad, damaged, size + len(damaged) - len(header))
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
            slowest = max(slowest, time.perf_counter() - began)
    return Outcome(count, paired, slowest, peak())


def write(path: Path, header: bytes, size: int) -> None:
    path.write_bytes(header)
    if size > len(header):
        os.truncate(path, size)


def peak() -> int:
    """The most memory that this process has taken so far, where the system tells; else what it takes now."""
    status = Path("/proc/self/status")
    most = re.search(r"VmHWM:\s+(\d+) kB", status.read_text("utf-8")) if status.exists() else None
    return psutil.Process().memory_info().rss if most is None else int(most[1]) * 1024


def check(outcome: Outcome) -> None:
    assert 0 < outcome.paired < outcome.files  # the damage neither all misses nor all hits
    assert outcome.slowest_s < _LONGEST_S
    assert outcome.peak < _MOST_BYTES


def test_damaged_headers_end_in_an_answer_or_one_line(child: Callable[..., Any], tmp_path: Path) -> None:
    whole = gguf()
    check(child(hostile_runs, tmp_path, whole, len(whole), 150, 11))


@pytest.mark.soak
@pytest.mark.parametrize("part", range(3))
def test_damaged_headers_full_count(child: Callable[..., Any], tmp_path: Path, record: Any, part: int) -> None:
    """With the next one 2,000 in all."""
    whole = gguf()
    outcome = child(hostile_runs, tmp_path, whole, len(whole), 600, 20 + part)
    record(files=outcome.files, paired=outcome.paired, slowest_s=outcome.slowest_s, peak_mb=outcome.peak / 1e6)
    check(outcome)


@pytest.mark.soak
@pytest.mark.real
def test_a_real_models_header_damaged(child: Callable[..., Any], tmp_path: Path, record: Any, starter: Path) -> None:
    header = read_header(starter)
    with starter.open("rb") as file:
        content = file.read(header.data_start)
    outcome = child(hostile_runs, tmp_path, content, header.file_size, 200, 30)
    record(files=outcome.files, paired=outcome.paired, slowest_s=outcome.slowest_s, peak_mb=outcome.peak / 1e6)
    check(outcome)
