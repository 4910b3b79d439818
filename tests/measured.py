"""Figures for docs/results.md: what tests measure is printed at the end of the run and kept in .build/results.jsonl."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

_LINES: list[str] = []
_FILE = Path(__file__).parents[1] / ".build" / "results.jsonl"

Record = Callable[..., None]


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Record:
    """record(name=value, ...): figures of this test, for docs/results.md."""

    def keep(**figures: object) -> None:
        shown = {k: round(v, 4) if isinstance(v, float) else v for k, v in figures.items()}
        _LINES.append(f"{request.node.name}: {shown}")
        _FILE.parent.mkdir(exist_ok=True)
        with _FILE.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"test": request.node.nodeid, **shown}) + "\n")

    return keep


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures after the tests."""
    if _LINES:
        terminalreporter.section("measured")
        for line in _LINES:
            terminalreporter.write_line(line)
