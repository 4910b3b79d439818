"""Servers that several tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import template_files
from running_server import Running, running, worker


@pytest.fixture(scope="session")
def echo() -> Iterator[Running]:
    """Says what the user said last."""
    with running("scripted:echo?n_ctx=2048", engine=worker()) as server:
        yield server


@pytest.fixture(scope="session")
def slow() -> Iterator[Running]:
    """Counts without an end, 100 decodes a second, and reads 2000 tokens a second. Two requests may wait."""
    with running("scripted:count?decodes_per_s=100&reads_per_s=2000&sure=0.5", engine=worker(), waiting=2) as server:
        yield server


@pytest.fixture(scope="session")
def hermes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Says what the user said last, and knows how to call functions."""
    with running(template_files.written(tmp_path_factory.mktemp("hermes"), template_files.HERMES)) as server:
        yield server
