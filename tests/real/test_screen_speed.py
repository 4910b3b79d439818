"""A thousand real tokens with the app's screen on, against the same without it."""

from __future__ import annotations

import json
import math
import statistics
import time
from pathlib import Path
from typing import Any

import pytest

import edgespec
from app_terminal import PATIENCE_S, app_terminal
from edgespec.engine.client import WorkerEngine
from edgespec.engine.protocol import GenerateSpec, LoadSpec
from edgespec.machine import physical_cores
from edgespec.messages import Message
from edgespec.stats import TokenEvent
from measured import Record

pytestmark = [pytest.mark.real, pytest.mark.soak]

TOKENS, BLOCKS = 1000, 3  # each block is A B B A
ASKED = "Tell a long story of a mill by the river."
LOAD: dict[str, Any] = {"ctx_size": 2048, "threads": physical_cores(), "buffers": "auto", "flash_attn": "off"}


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGESPEC_HOME", str(tmp_path / "home"))


def _endless(model: Path) -> dict[str, Any]:
    """Options of a greedy reply that only its length ends."""
    with edgespec.load(model, draft="none", drafter="none", gpu_layers=0, **LOAD) as llm:
        vocab = llm.target.vocab
        ends = {token: -math.inf for token in range(vocab.size) if vocab.is_eog(token)}
    return {"max_tokens": TOKENS, "temperature": 0.0, "logit_bias": ends}


def _without(engine: WorkerEngine, options: dict[str, Any]) -> float:
    """Seconds from the first token to the last, taken from the same process by nobody but a loop."""
    times = [
        time.monotonic()
        for event in engine.generate(GenerateSpec(messages=(Message("user", ASKED),), options=options))
        if isinstance(event, TokenEvent)
    ]
    return (times[-1] - times[0]) / (len(times) - 1)


def _with(model: Path, options: dict[str, Any], place: Path) -> float:
    """The same, of the app on a terminal, its own history included."""
    log = place.with_suffix(".log")
    terminal = app_terminal(place, model=str(model), log=log, load=LOAD, options=options)
    try:
        terminal.until(lambda: "Message, or / for commands" in terminal.text)
        terminal.press(f"{ASKED}\r".encode())
        end = time.monotonic() + 4 * PATIENCE_S
        while b'["ended"' not in (said := log.read_bytes() if log.exists() else b""):
            assert time.monotonic() < end, terminal.text[-1000:]
            calm = time.monotonic() + 0.5  # a terminal takes what comes
            while (left := calm - time.monotonic()) > 0:
                terminal.read(left)
        terminal.press(b"\x11")
        assert terminal.wait() == 0
    finally:
        terminal.close()
    lines = [json.loads(line) for line in said.splitlines()]
    times = [line[3] for line in lines if line[0] == "token"]
    return (times[-1] - times[0]) / (len(times) - 1)


def test_the_screen_costs_little_speed(starter: Path, tmp_path: Path, record: Record) -> None:
    options = _endless(starter)
    ratios: list[float] = []
    engine = WorkerEngine(shared=False)
    try:
        engine.load(LoadSpec(model=str(starter), draft="none", drafter="none", **LOAD))
        for block in range(BLOCKS):
            before = _without(engine, options)
            first, second = (_with(starter, options, tmp_path / f"{block}{i}.db") for i in "ab")
            ratios.append((before + _without(engine, options)) / (first + second))
    finally:
        engine.close()
    record(speed_with_the_screen=statistics.median(ratios), least=min(ratios), most=max(ratios))
    assert statistics.median(ratios) >= 0.95
