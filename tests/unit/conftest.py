"""A model for the examples of the documents."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import edgespec
from edgespec.tiny_gguf import CHATML_TEMPLATE, write_tiny


@pytest.fixture
def tiny_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """edgespec.load() of an example gives a tiny model, whatever it names."""
    path = write_tiny(tmp_path / "tiny.gguf", chat_template=CHATML_TEMPLATE)
    load: Callable[..., Any] = edgespec.load

    def load_tiny(*args: Any, **keywords: Any) -> Any:
        inspect.signature(load).bind(*args, **keywords)
        return load(path, ctx_size=512, threads=1, buffers="none")

    monkeypatch.setattr(edgespec, "load", load_tiny)
