"""Models for all tests: tiny ones made here, real ones where they are on this disk."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from edgespec.tiny_gguf import write_tiny

pytest_plugins = ["measured"]

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # A shell starts what it runs in the background so, and children inherit it: then no test could press Ctrl+C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """tiny(arch, **options of write_tiny) -> path; each file is made once. Its text has no end unless asked."""
    folder = tmp_path_factory.mktemp("tiny")
    made: dict[str, Path] = {}

    def make(arch: Any = "llama", **options: Any) -> Path:
        options = {"end_gain": 0.0, **options}
        key = f"{arch} {sorted(options.items(), key=str)}"
        if key not in made:
            made[key] = write_tiny(folder / f"{arch}-{len(made)}.gguf", arch=arch, **options)
        return made[key]

    return make


@pytest.fixture
def open_context() -> Iterator[Callable[..., Any]]:
    """open_context(path, **LoadSettings) -> Context, closed with its model when the test ends.

    The cache is float32: rounding to half precision would hide small errors.
    """
    from edgespec.llama import Context, LoadSettings, Model

    models: list[Model] = []

    def make(path: Path, **settings: Any) -> Context:
        chosen = {"n_ctx": 256, "threads": 1, "buffers": "none", "kv_type": "f32", **settings}
        model = Model(path, LoadSettings(**chosen))
        models.append(model)
        return Context(model)

    yield make
    for model in models:
        model.close()


@pytest.fixture
def open_engine() -> Iterator[Callable[..., Any]]:
    """open_engine(**arguments of WorkerEngine) -> WorkerEngine over the real process, with models of engine_faults.

    A process of its own unless shared=True is given; closed when the test ends.
    """
    from edgespec.engine.client import WorkerEngine
    from engine_faults import ENVIRONMENT, LOADER

    engines: list[WorkerEngine] = []

    def make(**arguments: Any) -> WorkerEngine:
        chosen: dict[str, Any] = {"shared": False, "loader": LOADER, "environment": ENVIRONMENT, **arguments}
        engines.append(WorkerEngine(**chosen))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


@pytest.fixture(scope="session")
def child() -> Iterator[Callable[..., Any]]:
    """Call a function of the test's module in a process of its own: an abort there fails one test, not all."""
    pools = [ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))]

    def call(function: Callable[..., Any], *args: Any) -> Any:
        try:
            return pools[-1].submit(function, *args).result(timeout=120)
        except (OSError, RuntimeError) as error:  # crashed or hung; such a pool serves no other test
            for process in multiprocessing.active_children():
                process.kill()
            pools.append(ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")))
            raise AssertionError(f"{function.__name__}{args} crashed or hung".replace("\n", " ")[:300]) from error

    yield call
    for pool in pools:
        pool.shutdown()


def _real_folder() -> Path:
    override = os.environ.get("EDGESPEC_TEST_MODELS")
    return Path(override) if override else Path.home() / ".cache" / "edgespec-test-models"


def _real(name: str) -> Path:
    path = _real_folder() / name
    if not path.is_file():
        pytest.skip(f"{name} is not in {_real_folder()}; set EDGESPEC_TEST_MODELS to the folder that has it")
    return path


def _pure_q4_0(original: Path) -> Path:
    """The pure Q4_0 twin of a model: beside it, else in our cache folder; made once."""
    from edgespec import paths
    from edgespec.llama import requantize

    name = original.name.replace("q4_k_m", "q4_0-pure")
    places = [original.parent / name, paths.cache_dir() / name]
    for place in places:
        if place.is_file():
            return place
    place = places[0] if os.access(original.parent, os.W_OK) else places[1]
    place.parent.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(place.parent).free < 1.2 * original.stat().st_size:
        pytest.skip(f"no room for {name} in {place.parent}")
    return requantize(original, place, "q4_0")


@pytest.fixture(scope="session")
def starter() -> Path:
    """SmolLM2-135M-Instruct, the embedded default."""
    from edgespec.models.catalog import catalog
    from edgespec.models.names import find_file

    entry = catalog().starter
    return find_file(entry) or _real(entry.file)


@pytest.fixture(scope="session")
def qwen_target() -> Path:
    """Qwen2.5-Coder 1.5B as shipped."""
    return _real("qwen2.5-coder-1.5b-instruct-q4_k_m.gguf")


@pytest.fixture(scope="session")
def qwen_draft() -> Path:
    """Qwen2.5-Coder 0.5B as shipped."""
    return _real("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf")


@pytest.fixture(scope="session")
def gemma() -> Path:
    """Gemma 3 270M, a sliding-window base model."""
    return _real("gemma-3-270m-q4_k_m.gguf")


@pytest.fixture(scope="session")
def qwen_q4_target(qwen_target: Path) -> Path:
    """The 1.5B requantized to pure Q4_0."""
    return _pure_q4_0(qwen_target)


@pytest.fixture(scope="session")
def qwen_q4_draft(qwen_draft: Path) -> Path:
    """The 0.5B requantized to pure Q4_0."""
    return _pure_q4_0(qwen_draft)
