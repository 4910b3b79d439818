"""Each test of the app has a home of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of all state."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("EDGESPEC_HOME", str(folder))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("LLAMA_CACHE", str(tmp_path / "llama"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return folder


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """Where conversations are saved."""
    return tmp_path / "history.db"


@pytest.fixture(scope="session")
def probe(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What the probe of this machine's kernels remembers: real models ask for it at their first load."""
    folder = tmp_path_factory.mktemp("probed")
    environment = {**os.environ, "EDGESPEC_HOME": str(folder)}
    subprocess.run([sys.executable, "-m", "edgespec.llama"], env=environment, check=True, timeout=120)
    return (folder / "cache" / "probe.json").read_bytes()


@pytest.fixture
def probed(home: Path, probe: bytes) -> Path:
    """A home that knows which kernels run."""
    (home / "cache").mkdir()
    (home / "cache" / "probe.json").write_bytes(probe)
    return home
