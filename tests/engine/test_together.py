"""Several requests at once: in shared rounds, each with its own answer; nobody waits for anybody's whole reply."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
from asked import finished, spec

from edgespec.drafting import Draft
from edgespec.engine.core import Core
from edgespec.engine.local import LocalEngine
from edgespec.engine.protocol import ENDS, Event, GenerateEvent, LoadSpec, Queued, Reading
from edgespec.engine.scripted import ScriptedModel, load
from edgespec.engine.states import States
from edgespec.errors import BadRequestError, ContextFullError, DecodeError
from edgespec.generation import Generation
from edgespec.rounds import Timing
from edgespec.scoring import Rows, ScoreRequest
from edgespec.stats import RoundEvent, TokenEvent


def model(name: str = "scripted:echo", *, at_once: int = 4, **more: object) -> LoadSpec:
    return LoadSpec(model=name, at_once=at_once, parallel=at_once + 1, **more)  # type: ignore[arg-type]


@pytest.fixture
def engine() -> Iterator[LocalEngine]:
    made = LocalEngine(load)
    yield made
    made.close()


@contextmanager
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Decodes wait until the block ends, so that all requests of the block are there; then their sizes are listed."""
    may, sizes, score = threading.Event(), [], ScriptedModel.score

    def counted(self: ScriptedModel, requests: Sequence[ScoreRequest]) -> list[Rows]:
        may.wait(60)
        sizes.append(len(requests))
        return score(self, requests)

    monkeypatch.setattr(ScriptedModel, "score", counted)
    try:
        yield sizes
    finally:
        may.set()


def rounds(events: list[GenerateEvent]) -> list[RoundEvent]:
    return [event for event in events if isinstance(event, RoundEvent)]


def test_four_answers_in_the_same_decodes(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.load(model(drafter="none"))
    texts = [f"answer {number} of four" for number in range(4)]
    with held(monkeypatch) as sizes:
        asked = [engine.generate(spec(text)) for text in texts]
    assert [finished(one).text for one in asked] == texts
    assert sizes.count(4) >= 8
    assert sum(sizes) > 2 * len(sizes)


def test_drafts_share_a_decode_and_each_is_told_what_was_beside_it(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.load(model(draft="scripted"))
    texts = ["one two three " * 6, "four five six " * 6]
    with held(monkeypatch):
        asked = [engine.generate(spec(text, temperature=0.0)) for text in texts]
    events = [list(one) for one in asked]
    for one, told, text in zip(asked, events, texts, strict=True):
        assert one.reply is not None
        assert one.reply.text == text
        assert one.reply.stats.drafted > 0
        assert one.reply.stats.speedup_vs_plain is None  # the time of a shared round says nothing about one of them
        assert {event.beside for event in rounds(told)} >= {1}


def test_more_than_fit_wait_in_order_and_are_told_their_places(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.load(model(at_once=2, drafter="none"))
    texts = ["number " * (number + 1) for number in range(5)]  # no two of them end in the same round
    with held(monkeypatch):
        asked = [engine.generate(spec(text)) for text in texts]
    events = [list(one) for one in asked]
    places = [[event.position for event in told if isinstance(event, Queued)] for told in events]
    assert places[:2] == [[], []]
    assert [told[-1] for told in places[2:]] == [1, 1, 1]
    assert [told[0] for told in places[2:]] == [1, 2, 3]
    assert [one.reply.text for one in asked if one.reply] == texts


def test_a_long_prompt_is_read_between_the_rounds_of_running_replies() -> None:
    """Nobody waits for more than a piece of it: each has a token between any two pieces."""
    core, loaded = Core(load, States(None)), model("scripted:count?reads_per_s=20000", drafter="none")
    order: list[str] = []
    talks = {"first": threading.Event(), "second": threading.Event()}
    ended = threading.Event()

    def says(name: str) -> Callable[[Event], None]:
        def told(event: Event) -> None:
            if isinstance(event, TokenEvent):
                order.append(name)
                talks[name].set()

        return told

    def reader_says(event: Event) -> None:
        if isinstance(event, Reading):
            order.append("read")
        elif isinstance(event, ENDS):
            ended.set()

    try:
        talkers = [core.generate(loaded, spec("count"), says(name)) for name in talks]
        assert all(one.wait(60) for one in talks.values())
        core.generate(loaded, spec("x" * 4000, max_tokens=2), reader_says)
        assert ended.wait(60)
        for talker in talkers:
            core.cancel(talker)
    finally:
        core.close()
    reads = [i for i, name in enumerate(order) if name == "read"]
    assert len(reads) > 20  # pieces are small while somebody waits for tokens
    assert all(set(talks) <= set(order[earlier:later]) for earlier, later in pairwise(reads[1:]))


def test_prompts_are_read_in_large_pieces_while_nobody_waits_for_tokens(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.load(model(drafter="none"))
    with held(monkeypatch):
        asked = [engine.generate(spec(letter * 3000, max_tokens=1)) for letter in "xyz"]
    reads = [sum(isinstance(event, Reading) for event in one) for one in asked]
    assert reads[0] <= 3000 / 512 + 3  # those behind it may share rounds with it


def test_one_of_three_is_cancelled_and_the_others_go_on(engine: LocalEngine) -> None:
    engine.load(model("scripted:count", drafter="none"))
    asked = [engine.generate(spec("go", max_tokens=tokens)) for tokens in (400, 100_000, 400)]
    assert next(event for event in asked[1] if isinstance(event, TokenEvent))
    asked[1].cancel()
    assert finished(asked[1]).finish_reason == "cancelled"
    assert [finished(one).stats.completion_tokens for one in (asked[0], asked[2])] == [400, 400]


def test_one_that_fails_takes_nobody_with_it(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.load(model(drafter="none"))
    commit = Generation.commit

    def failing(self: Generation, draft: Draft, rows: Rows, timing: Timing) -> list[Any]:
        if b"poison" in self.scorer.vocab.detokenize(self.request.prompt):  # type: ignore[attr-defined]
            raise DecodeError("these rows are of no use")
        return commit(self, draft, rows, timing)

    monkeypatch.setattr(Generation, "commit", failing)
    with held(monkeypatch):
        asked = [engine.generate(spec(text)) for text in ("a good one", "poison", "another good one")]
    assert finished(asked[0]).text == "a good one"
    assert finished(asked[2]).text == "another good one"
    with pytest.raises(DecodeError, match="of no use"):
        finished(asked[1])


def test_a_cache_that_is_too_small_for_all_sets_the_youngest_aside(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three replies of 150 tokens in 400 cells: all are whole."""
    engine.load(model("scripted:count?n_ctx=400&cells=400", drafter="none"))
    with held(monkeypatch) as sizes:
        asked = [engine.generate(spec("go", max_tokens=150)) for _ in range(3)]
    replies = [finished(one) for one in asked]
    assert [reply.stats.completion_tokens for reply in replies] == [150] * 3
    assert len({reply.text for reply in replies}) == 1
    assert sizes.count(3) > 50  # there was room for all in the beginning
    assert sizes.count(1) > 10  # the youngest came to its end after the others


def test_one_that_waits_for_the_cache_can_be_cancelled(engine: LocalEngine) -> None:
    engine.load(model("scripted:count?n_ctx=400&cells=400&decodes_per_s=200", drafter="none"))
    first = engine.generate(spec("x" * 300))
    assert next(event for event in first if isinstance(event, TokenEvent))
    second = engine.generate(spec("y" * 300))
    second.cancel()
    assert finished(second).text == ""
    first.cancel()
    assert finished(first).finish_reason == "cancelled"


def test_a_prompt_that_can_never_fit_is_refused_while_others_run(engine: LocalEngine) -> None:
    engine.load(model("scripted:count?n_ctx=300&cells=300", drafter="none"))
    first = engine.generate(spec("go", max_tokens=100))
    with pytest.raises(ContextFullError):
        finished(engine.generate(spec("z" * 400)))
    assert finished(first).stats.completion_tokens == 100


def test_another_model_waits_until_what_runs_has_ended(engine: LocalEngine) -> None:
    engine.load(model(drafter="none"))
    first = engine.generate(spec("a b c d e f"))
    engine.load(model("scripted:count", drafter="none"))
    assert finished(first).text == "a b c d e f"
    assert finished(engine.generate(spec("go", max_tokens=3))).text.startswith("1 ")


def test_the_end_cancels_all_that_run() -> None:
    engine = LocalEngine(load)
    engine.load(model("scripted:count", drafter="none"))
    asked = [engine.generate(spec("go")) for _ in range(3)]
    for one in asked:
        assert next(event for event in one if isinstance(event, TokenEvent))
    engine.close()
    assert [finished(one).finish_reason for one in asked] == ["cancelled"] * 3


def test_more_at_once_than_sequences_are_refused() -> None:
    with pytest.raises(BadRequestError, match="9 requests at once"):
        LoadSpec(at_once=9)
