"""What is tried, in which order it is measured, and which copies stay."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from edgespec.costs import CostTable
from edgespec.errors import EdgeSpecError, ModelLoadError
from edgespec.llama import requantizing
from edgespec.models.header import read_header
from edgespec.models.layout import TensorInfo
from edgespec.tiny_gguf import write_tiny
from edgespec.tuned import AS_IS, Trial
from edgespec.tuning.candidates import Candidate, candidates, require_space
from edgespec.tuning.choice import speed
from edgespec.tuning.sweep import Evidence, Sweep, sweep

# ---- candidates ---------------------------------------------------------------------------------------------


def tried(path: Path, *, gpu: bool = False, repacks: bool = True) -> list[str]:
    return [c.name for c in candidates(read_header(path), gpu=gpu, repacks=repacks)]


@pytest.mark.parametrize(
    ("options", "kernels", "names"),
    [
        ({"quant": "f16"}, {}, ["q4_0", "q8_0", "iq4_nl"]),
        ({"quant": "f16", "tied": True}, {}, ["q4_0", "q4_0+q8_0", "q8_0", "iq4_nl"]),
        ({"quant": "f16", "n_embd": 256}, {}, ["q4_0", "q4_k", "q8_0", "iq4_nl"]),  # rows of whole Q4_K blocks
        ({"quant": "f16", "tied": True}, {"repacks": False}, ["q4_0", "q8_0"]),
        ({"quant": "f16", "n_embd": 256}, {"gpu": True}, ["q4_0", "q4_k_m", "q8_0"]),
        ({"quant": "q4_0"}, {}, ["q8_0", "iq4_nl"]),
        ({"quant": "q8_0"}, {}, ["q4_0", "iq4_nl"]),
        ({"quant": "q8_0", "arch": "mamba"}, {}, ["q4_0", "iq4_nl"]),
    ],
)
def test_what_is_tried(tiny: Any, options: dict[str, Any], kernels: dict[str, bool], names: list[str]) -> None:
    assert tried(tiny(**options), **kernels) == names


@pytest.mark.parametrize("arch", ["llama", "gemma3", "mamba", "jamba", "lfm2"])
def test_every_candidate_can_be_made_and_takes_what_was_told(tiny: Any, tmp_path: Path, arch: str) -> None:
    source = tiny(arch, quant="f16", n_embd=256, tied=arch == "llama")
    for c in candidates(read_header(source), gpu=False, repacks=True):
        made = requantizing.requantize(source, tmp_path / c.name, c.type, pure=c.pure, embeddings=c.embeddings)
        assert made.stat().st_size == pytest.approx(c.nbytes, rel=0.03), c.name
        assert c.name not in tried(made) or arch == "jamba", c.name  # it is of this type now


def test_parts_of_a_model_are_refused(tiny: Any) -> None:
    with pytest.raises(ModelLoadError, match="one of 3 parts; merge"):
        candidates(replace(read_header(tiny()), split_count=3), gpu=False, repacks=True)


def test_a_matrix_that_no_block_fits_stays_as_it_is(tiny: Any) -> None:
    header = read_header(tiny(quant="q8_0"))
    odd = TensorInfo("odd.weight", "F32", (20, 100), 0, 8000)
    assert [
        c.nbytes - plain.nbytes
        for c, plain in zip(
            candidates(replace(header, tensors=(*header.tensors, odd)), gpu=False, repacks=False),
            candidates(header, gpu=False, repacks=False),
            strict=True,
        )
    ] == [8000]


def disk(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(free))


def test_the_disk_must_hold_the_best_and_the_one_on_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, draft = [Candidate("q4_0", 400), Candidate("q8_0", 800)], [Candidate("q4_0", 100_000_000)]
    disk(monkeypatch, 10**12)
    require_space(tmp_path / "not" / "there" / "yet", target, draft)
    disk(monkeypatch, 50_001_000)
    require_space(tmp_path, [], [])
    with pytest.raises(EdgeSpecError, match=r"needs 50 MB free in .*, which has 50 MB; free some space or point"):
        require_space(tmp_path, target, [])
    with pytest.raises(EdgeSpecError, match="needs 152 MB"):
        require_space(tmp_path, target, draft)


# ---- making copies ------------------------------------------------------------------------------------------


def make(source: Path, to: Path, kind: str = "q4_0", **options: Any) -> Path:
    return requantizing.requantize_apart(source, to, kind, pure=True, embeddings=None, nbytes=10**6, **options)


def test_a_copy_is_made_in_another_process(tiny: Any, tmp_path: Path) -> None:
    source = tiny(quant="f16")
    copy = make(source, tmp_path / "copy.gguf", "iq4_nl")
    assert {u.type for u in read_header(copy).quantization} == {"IQ4_NL", "F32"}
    assert list(tmp_path.iterdir()) == [copy]


def test_why_a_copy_cannot_be_made(tiny: Any, tmp_path: Path) -> None:
    with pytest.raises(EdgeSpecError, match="file type is 'q9'; choose one of"):
        make(tiny(), tmp_path / "copy.gguf", "q9")
    with pytest.raises(EdgeSpecError, match="cannot requantize"):
        make(tiny(), tmp_path / "no folder" / "copy.gguf")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_copy_leaves_nothing(tmp_path: Path) -> None:
    source = write_tiny(tmp_path / "source.gguf", quant="f16", n_embd=512, n_layer=4)
    calls = threading.Event()

    def interrupt(_: float) -> None:
        calls.set()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(source, tmp_path / "copy.gguf", "iq4_nl", progress=interrupt)
    assert calls.is_set()
    assert list(tmp_path.iterdir()) == [source]


PARENT = """
import os, sys
from pathlib import Path
from edgespec.llama.requantizing import requantize_apart
source, to = map(Path, sys.argv[1:])
def die(_):
    if any(to.parent.glob("*.part")):
        os._exit(9)  # as if killed: nothing is cleaned up
requantize_apart(source, to, "iq4_nl", pure=True, embeddings=None, nbytes=10**6, progress=die)
"""


def test_a_copy_is_not_finished_for_a_process_that_is_gone(tmp_path: Path) -> None:
    source = write_tiny(tmp_path / "source.gguf", quant="f16", n_embd=768, n_layer=4)
    folder = tmp_path / "folder"
    folder.mkdir()
    parent = subprocess.run([sys.executable, "-c", PARENT, source, folder / "copy.gguf"], timeout=60, check=False)
    assert parent.returncode == 9
    until = time.monotonic() + 20
    while any(folder.iterdir()) and time.monotonic() < until:
        time.sleep(0.02)
    assert list(folder.iterdir()) == []  # a finished copy would be there


# ---- the sweep ----------------------------------------------------------------------------------------------


@dataclass
class Loaded:
    """In place of an LLM: which file it is."""

    path: Path


@dataclass
class Machine:
    """Opens files, and takes a given time for each visit of the original; copies take `factors` of what is usual."""

    original: Path
    times: Sequence[float]
    factors: dict[str, float]
    visits: list[str] = field(default_factory=list)
    open_now: int = 0

    @contextmanager
    def open(self, path: Path) -> Iterator[Any]:
        assert self.open_now == 0  # one in memory at a time
        self.open_now += 1
        self.visits.append(self._name(path))
        if self.factors.get(self.visits[-1]) == 0:
            self.open_now -= 1
            raise ModelLoadError("does not load")
        yield Loaded(path)
        self.open_now -= 1

    def measure(self, loaded: Any) -> CostTable:
        seen = self.visits.count(AS_IS)
        if loaded.path == self.original:
            return self._table(self.times[seen - 1])
        usual = (self.times[seen - 1] + self.times[seen]) / 2  # half-way between what comes before and after
        return self._table(usual * self.factors[self._name(loaded.path)])

    def _name(self, path: Path) -> str:
        return AS_IS if path == self.original else path.stem.removeprefix(f"{self.original.stem}-")

    @staticmethod
    def _table(ms: float) -> CostTable:
        return CostTable((1, 4, 16), (ms, 1.5 * ms, 3 * ms))


class Quickest:
    """Keeps the fastest form."""

    def evidence(self, llm: Any) -> Evidence:
        return Evidence()

    def keep(self, trials: Sequence[Trial]) -> set[str]:
        return {min(trials, key=lambda trial: trial.costs.at(1)).type}


class Log:
    def __init__(self) -> None:
        self.steps: list[str] = []
        self.notes: list[str] = []
        self.parts: list[float] = []
        self.step: Callable[[str], None] = self.steps.append
        self.note: Callable[[str], None] = self.notes.append
        self.part: Callable[[float], None] = self.parts.append


FORMS = ("q4_0", "q8_0", "iq4_nl")


def run(
    source: Path, folder: Path, times: Sequence[float], factors: dict[str, float], log: Log | None = None
) -> tuple[Sweep, Machine]:
    machine = Machine(source, times, factors)
    forms = [Candidate(name, 10**6, after="q4_0" if name == "iq4_nl" else None) for name in FORMS]
    found = sweep(
        source,
        forms,
        folder=folder,
        open_model=machine.open,
        measure=machine.measure,
        judge=Quickest(),
        progress=log or Log(),
    )
    return found, machine


@pytest.fixture
def source(tiny: Any) -> Path:
    path = tiny(quant="f16")
    assert isinstance(path, Path)
    return path


def test_copies_are_compared_with_the_file_around_the_same_time(source: Path, tmp_path: Path) -> None:
    """The machine gets four times as slow; the copies' speeds come out as they are."""
    times, factors = (10.0, 16.0, 31.0, 40.0), {"q4_0": 0.8, "q8_0": 1.25, "iq4_nl": 0.5}
    found, machine = run(source, tmp_path, times, factors)
    assert machine.visits == [AS_IS, "q4_0", AS_IS, "q8_0", AS_IS, "iq4_nl", AS_IS]
    original = found.trials[0]
    assert [t.type for t in found.trials] == [AS_IS, *FORMS]
    assert original.costs.ms == (10.0, 15.0, 30.0)
    for trial in found.trials[1:]:
        for rows in (1, 4, 16):
            assert speed(original.costs, trial.costs, rows) == pytest.approx(1 / factors[trial.type])
    assert found.spread == pytest.approx(3)


def test_only_the_best_copy_stays(source: Path, tmp_path: Path) -> None:
    found, _ = run(source, tmp_path, (10.0,) * 4, {"q4_0": 0.8, "q8_0": 1.25, "iq4_nl": 0.5})
    assert set(found.files) == {"iq4_nl"}
    assert list(tmp_path.iterdir()) == [found.files["iq4_nl"]]
    assert found.trials[-1].nbytes == found.files["iq4_nl"].stat().st_size
    assert {u.type for u in read_header(found.files["iq4_nl"]).quantization} == {"IQ4_NL", "F32"}


def test_no_copy_stays_where_the_file_is_best(source: Path, tmp_path: Path) -> None:
    found, machine = run(source, tmp_path, (10.0,) * 3, {"q4_0": 1.1, "q8_0": 1.25})
    assert found.files == {}
    assert list(tmp_path.iterdir()) == []
    assert "iq4_nl" not in machine.visits  # the same kernels, and longer to make


def test_a_copy_that_does_not_load_is_noted_and_passed(source: Path, tmp_path: Path) -> None:
    log = Log()
    found, machine = run(source, tmp_path, (10.0,) * 3, {"q4_0": 0, "q8_0": 0.9}, log)
    assert log.notes == ["no q4_0 copy: does not load"]
    assert [t.type for t in found.trials] == [AS_IS, "q8_0"]
    assert machine.visits == [AS_IS, "q4_0", "q8_0", AS_IS]
    assert [p.name for p in tmp_path.iterdir()] == [f"{source.stem}-q8_0.gguf"]
    assert any("making the q4_0 copy" in step for step in log.steps)
    assert all(0 <= part <= 1 for part in log.parts)
    assert all(a <= b for a, b in pairwise(log.parts[:2]))
