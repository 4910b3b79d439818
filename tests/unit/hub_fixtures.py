"""A fake Hub and an empty cache for tests of downloads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import huggingface_hub
import pytest

from edgespec.models.hub import HubName, Patience
from edgespec.tiny_gguf import write_tiny
from fake_hub import FakeHub, Repo, serving

NAME = HubName("maker", "Tiny-GGUF")
FILE = "Tiny-Q4_K_M.gguf"
QUICK = Patience(tries=3, pause_s=0.001, longest_s=0.01, silence_s=2.0)
ONCE = Patience(tries=1, pause_s=0.001, longest_s=0.01, silence_s=2.0)


@dataclass(frozen=True, slots=True)
class Cache:
    """The Hub cache of one test."""

    folder: Path

    @property
    def repo(self) -> Path:
        return self.folder / "models--maker--Tiny-GGUF"

    @property
    def files(self) -> list[str]:
        """Everything in it but locks and empty folders, without the whole path."""
        paths = [p for p in self.folder.rglob("*") if not p.is_dir() and ".locks" not in p.parts]
        return sorted(path.relative_to(self.folder).as_posix() for path in paths)


@pytest.fixture(scope="session")
def model_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A model of some 200 kB."""
    return write_tiny(tmp_path_factory.mktemp("hub") / "tiny.gguf").read_bytes()


@pytest.fixture
def hub(model_bytes: bytes, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A Hub with one repository of one model, at HF_ENDPOINT."""
    with serving(FakeHub()) as hub:
        hub.repos[NAME.repo_id] = Repo({FILE: model_bytes})
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        for variable in (
            "HTTP_PROXY",
            "http_proxy",
            "ALL_PROXY",
            "all_proxy",
            "HF_HUB_OFFLINE",
            "TRANSFORMERS_OFFLINE",
        ):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setenv("HF_TOKEN", "hf_of_the_test")
        huggingface_hub.close_session()
        try:
            yield hub
        finally:
            huggingface_hub.close_session()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    """An empty cache at HF_HUB_CACHE."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return Cache(tmp_path / "hub")
