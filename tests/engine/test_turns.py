"""Turns of several requests, one by one: each is one decode, whatever it reads and scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from edgespec.engine.jobs import Job
from edgespec.engine.protocol import Event, LoadSpec, Reading
from edgespec.engine.scripted import ScriptedModel, load
from edgespec.engine.states import States
from edgespec.engine.together import Running, Together
from edgespec.errors import DecodeError
from edgespec.scoring import Rows, ScoreRequest

BATCH = 512


class Turns:
    """Requests to a scripted model; what was in each decode, by request: (rows, tokens read)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str = "scripted:count") -> None:
        self.llm = load(LoadSpec(model=name, drafter="none", at_once=4, parallel=4), lambda *_: None)
        self.together = Together(States(None))
        self.decodes: list[list[tuple[int, int]]] = []
        self.told: list[list[Event]] = []
        self.made: list[Running] = []
        self._monkeypatch = monkeypatch
        score, decodes = ScriptedModel.score, self.decodes

        def counted(model: ScriptedModel, requests: Sequence[ScoreRequest]) -> list[Rows]:
            decodes.append([(r.width, len(r.before) - len(r.sequence.cached)) for r in requests])
            return score(model, requests)

        monkeypatch.setattr(ScriptedModel, "score", counted)

    def add(self, prompt: str | list[int], **options: Any) -> Running:
        told: list[Event] = []
        job = Job(lambda _: None, told.append)
        self.told.append(told)
        self.together.add(job, self.llm.stream(prompt, cancelled=job.cancelled, **options))
        self.made = list(self.together)
        return self.made[-1]

    def pace(self, round_s: float, token_s: float) -> None:
        """From now on a round and a token that is read are known to take so long."""
        self.together._round_s, self.together._token_s = round_s, token_s
        self._monkeypatch.setattr(Together, "_learn", lambda *_, **__: None)

    def turn(self, count: int = 1) -> list[list[tuple[int, int]]]:
        """The decodes of so many turns."""
        self.decodes.clear()
        for _ in range(count):
            self.together.turn(self.llm.target, BATCH)
        return list(self.decodes)


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    return Turns(monkeypatch)


def test_prompts_that_fit_give_their_first_tokens_in_one_decode(turns: Turns) -> None:
    for letter in "xyz":
        turns.add(letter * 100)
    assert turns.turn() == [[(1, 99)] * 3]
    assert [len(r.generation.completion) for r in turns.made] == [1, 1, 1]
    assert turns.turn() == [[(1, 0)] * 3]


def test_a_long_prompt_fills_what_the_others_leave_of_the_decode(turns: Turns) -> None:
    for length in (300, 100, 900):
        turns.add("x" * length)
    assert turns.turn() == [[(1, 299), (1, 99), (0, BATCH - 400)]]


def test_a_prompt_is_read_in_the_decodes_of_the_rounds(turns: Turns) -> None:
    """As many decodes as rounds, each with a row for the reply that goes on; nobody's prompt is read apart."""
    turns.add("x")
    turns.turn(2)
    turns.pace(0.1, 0.005)
    turns.add("y" * 400)
    assert turns.turn(4) == [[(1, 0), (0, 40)]] * 4
    readings = [event for event in turns.told[1] if isinstance(event, Reading)]
    assert [event.done for event in readings] == sorted({event.done for event in readings})
    assert len(readings) == 5  # one before the first piece
    assert len(turns.made[0].generation.completion) == 6


def test_pieces_keep_a_reply_waiting_for_the_time_of_few_rounds(turns: Turns) -> None:
    turns.add("x")
    turns.turn(2)
    turns.pace(0.1, 0.002)
    turns.add("y" * 400)
    assert turns.turn() == [[(1, 0), (0, 100)]]
    turns.pace(0.1, 0.1)
    assert turns.turn() == [[(1, 0), (0, 32)]]  # but a prompt gets on


def test_who_read_last_waits_for_the_others(turns: Turns) -> None:
    turns.add("x")
    turns.turn(2)
    turns.pace(0.1, 0.1)
    first, second = turns.add("y" * 400), turns.add("z" * 400)
    read = []
    for _ in range(4):
        turns.turn()
        read.append((len(first.generation.sequence.cached), len(second.generation.sequence.cached)))
    assert read == [(32, 0), (32, 32), (64, 32), (64, 64)]


def test_a_short_prompt_goes_in_beside_a_long_one(turns: Turns) -> None:
    turns.add("x")
    turns.turn(2)
    turns.pace(0.1, 0.002)
    turns.add("y" * 20)
    turns.add("z" * 400)
    assert turns.turn() == [[(1, 0), (1, 19), (0, 80)]]


def test_one_that_is_cancelled_while_it_reads_ends_with_that_turn(turns: Turns) -> None:
    turns.add("x")
    turns.turn(2)
    late = turns.add("y" * 400)
    turns.turn()
    late.job.cancelled.set()
    assert turns.turn() == [[(1, 0)]]
    assert late.generation.finish_reason == "cancelled"
    assert turns.made[0].generation.finish_reason is None


def test_a_decode_that_fails_ends_all_that_were_in_it(turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    turns.add("x")
    turns.turn(2)
    turns.add("y" * 400)

    def broken(model: ScriptedModel, requests: Sequence[ScoreRequest]) -> list[Rows]:
        raise DecodeError("no such luck")

    monkeypatch.setattr(ScriptedModel, "score", broken)
    turns.turn()
    assert all(isinstance(r.generation.error, DecodeError) for r in turns.made)
