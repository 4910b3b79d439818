"""The engine in this process: order, cancelling, deadlines, switching models, idle unloading, typed errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from asked import answered, finished, spec

from edgespec.engine.local import LocalEngine
from edgespec.engine.protocol import Finished, GenerateSpec, Loading, LoadSpec, Queued, Reading
from edgespec.errors import (
    BadRequestError,
    Cancelled,
    ContextFullError,
    DeadlineError,
    EngineError,
    ModelLoadError,
    ModelNotFoundError,
)
from edgespec.messages import Message
from edgespec.stats import RoundEvent, TokenEvent
from engine_faults import load

COUNT = LoadSpec(model="scripted:count?decodes_per_s=200", drafter="none")
ECHO = LoadSpec(model="scripted:echo", drafter="none")


@pytest.fixture
def engine() -> Iterator[LocalEngine]:
    made = LocalEngine(load)
    yield made
    made.close()


def test_a_request_gives_its_events_in_order_and_the_whole_reply(engine: LocalEngine) -> None:
    loaded = engine.load(LoadSpec(model="scripted:echo", draft="scripted"))
    assert loaded.template
    assert loaded.sources == ("suffix", "lookup", "model")
    assert loaded.widths
    generating = engine.generate(spec("one two one two one two", temperature=0.0))
    events = list(generating)
    reply = generating.reply
    assert reply is not None
    assert isinstance(events[0], Reading)
    assert isinstance(events[-1], Finished)
    tokens = [event for event in events if isinstance(event, TokenEvent)]
    assert "".join(event.text for event in tokens) == reply.text == "one two one two one two"
    assert reply.finish_reason == "stop"
    rounds = [event for event in events if isinstance(event, RoundEvent)]
    assert sum(event.k for event in rounds) == reply.stats.drafted > 0


def test_requests_are_served_in_order_and_told_their_places(engine: LocalEngine) -> None:
    engine.load(COUNT)
    first = engine.generate(spec("go", max_tokens=30))
    others = [engine.generate(spec("go", max_tokens=1)) for _ in range(3)]
    ends: list[int] = []
    places: list[list[int]] = [[] for _ in others]

    def follow(number: int) -> None:
        for event in others[number]:
            if isinstance(event, Queued):
                places[number].append(event.position)
        ends.append(number)

    threads = [threading.Thread(target=follow, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    assert finished(first).stats.completion_tokens == 30
    for thread in threads:
        thread.join(20)
    assert places == [[1], [2, 1], [3, 2, 1]]
    assert [generating.reply is not None for generating in others] == [True] * 3


def test_a_cancelled_request_keeps_its_text_and_a_waiting_one_ends_at_once(engine: LocalEngine) -> None:
    engine.load(COUNT)
    running = engine.generate(spec("go"))
    waiting = engine.generate(spec("go"))
    assert next(event for event in running if isinstance(event, TokenEvent)).text
    waiting.cancel()
    assert finished(waiting).text == ""
    running.cancel()
    reply = finished(running)
    assert reply.finish_reason == "cancelled"
    assert reply.text.startswith("1 ")


def test_reading_a_prompt_is_told_and_can_be_cancelled(engine: LocalEngine) -> None:
    engine.load(LoadSpec(model="scripted:count?reads_per_s=2000", drafter="none"))
    generating = engine.generate(spec("x" * 4000))
    done = []
    for event in generating:
        assert isinstance(event, Reading | Finished)
        if isinstance(event, Reading):
            done.append((event.done, event.total))
            if event.done >= 512:
                begin = time.monotonic()
                generating.cancel()
    assert time.monotonic() - begin < 0.2
    assert done == [(0, 4003), (512, 4003)]
    assert generating.reply is not None
    assert generating.reply.finish_reason == "cancelled"


def test_the_next_turn_reads_only_what_is_new(engine: LocalEngine) -> None:
    engine.load(ECHO)
    first = answered(engine, "y" * 900)
    turn = [Message("user", "y" * 900), Message("assistant", first.text), Message("user", "more")]
    events = list(engine.generate(GenerateSpec(messages=tuple(turn))))
    reading = next(event for event in events if isinstance(event, Reading))
    assert reading.reused == 1802  # all that the first turn left in the cache
    assert reading.total - reading.reused < 20


@pytest.mark.parametrize("ahead", [False, True], ids=["running", "waiting"])
def test_a_deadline_ends_a_request_with_its_own_error(engine: LocalEngine, ahead: bool) -> None:
    engine.load(COUNT)
    blocker = engine.generate(spec("go")) if ahead else None
    late = engine.generate(spec("go", deadline_s=0.15))
    begin = time.monotonic()
    texts: list[str] = []
    with pytest.raises(DeadlineError, match=r"0\.15 s"):
        texts.extend(event.text for event in late if isinstance(event, TokenEvent))
    assert time.monotonic() - begin < 1
    assert bool(texts) != ahead
    if blocker is not None:
        blocker.cancel()
        assert finished(blocker).finish_reason == "cancelled"
    assert answered(engine, "go", max_tokens=3).tokens


def test_another_model_is_loaded_when_it_is_asked_for(engine: LocalEngine) -> None:
    engine.load(ECHO)
    assert answered(engine, "first").text == "first"
    lines: list[Loading] = []
    assert engine.load(COUNT, lines.append).name == "scripted-count.gguf"
    assert lines
    assert answered(engine, "first", max_tokens=4).text.startswith("1 2")


def test_another_drafter_needs_no_loading(engine: LocalEngine) -> None:
    both = LoadSpec(model="scripted:echo", draft="scripted")
    engine.load(both)
    lines: list[Loading] = []
    for drafter, named in (("lookup", "lookup"), ("none", "none"), ("auto", "suffix,lookup,model")):
        chosen = LoadSpec(model="scripted:echo", draft="scripted", drafter=drafter)
        assert engine.load(chosen, lines.append).drafter == named
    assert lines == []
    assert engine.load(LoadSpec(model="scripted:echo", draft="none", drafter="none"), lines.append).sources == (
        "suffix",
        "lookup",
    )
    assert lines


def test_a_draft_model_that_was_not_found_is_not_looked_for_again(engine: LocalEngine) -> None:
    lines: list[Loading] = []
    named = {"auto": "suffix,lookup", "lookup": "lookup"}
    for number, drafter in enumerate(("auto", "lookup", "auto")):
        assert engine.load(LoadSpec(model="scripted:echo", drafter=drafter), lines.append).drafter == named[drafter]
        assert (lines != []) == (number == 0)
        lines.clear()
    with pytest.raises(BadRequestError, match="needs a draft model"):
        engine.load(LoadSpec(model="scripted:echo", drafter="model"))


def test_an_idle_model_is_freed_and_comes_back() -> None:
    engine = LocalEngine(load, idle_s=0.05)
    try:
        engine.load(ECHO)
        end = time.monotonic() + 10
        while engine.state().loaded is not None and time.monotonic() < end:
            time.sleep(0.01)
        assert engine.state().loaded is None
        assert answered(engine, "again").text == "again"
    finally:
        engine.close()


def test_unloading_frees_the_model_until_the_next_request(engine: LocalEngine) -> None:
    engine.load(ECHO)
    engine.unload()
    assert engine.state().loaded is None
    assert answered(engine, "again").text == "again"
    totals = engine.state().totals
    assert (totals.requests, totals.failures) == (1, 0)
    assert totals.completion_tokens == len("again")


WRONG: dict[str, tuple[type[Exception], Callable[[LocalEngine], object]]] = {
    "no model chosen": (BadRequestError, lambda e: LocalEngine.generate(e, spec("x"))),
    "no such model": (ModelNotFoundError, lambda e: e.load(LoadSpec(model="scripted:/nowhere/at/all"))),
    "not a model": (ModelLoadError, lambda e: e.load(LoadSpec(model="scripted:unloadable"))),
    "unknown drafter": (BadRequestError, lambda e: e.load(LoadSpec(model="scripted:echo", drafter="guess"))),
    "unknown option": (BadRequestError, lambda e: loaded(e) and answered(e, "x", temprature=1)),
    "option of the engine": (BadRequestError, lambda e: loaded(e) and answered(e, "x", cancelled=1)),
    "impossible value": (BadRequestError, lambda e: loaded(e) and answered(e, "x", top_p=7.0)),
    "too long": (ContextFullError, lambda e: loaded(e, "scripted:echo?n_ctx=64") and answered(e, "x" * 100)),
    "two inputs": (BadRequestError, lambda e: GenerateSpec(prompt="x", messages=(Message("user", "x"),))),
    "no input": (BadRequestError, lambda e: GenerateSpec()),
    "no time": (BadRequestError, lambda e: spec("x", deadline_s=0.0)),
    "wrong role": (
        BadRequestError,
        lambda e: loaded(e) and list(e.generate(GenerateSpec(messages=(Message("god", "x"),)))),
    ),
    "no template": (BadRequestError, lambda e: loaded(e, "scripted:echo?template=no") and answered(e, "x")),
    "a fault inside": (EngineError, lambda e: loaded(e) and answered(e, "!raise of the model")),
}


def loaded(engine: LocalEngine, model: str = "scripted:echo") -> bool:
    return bool(engine.load(LoadSpec(model=model, drafter="none")))


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_a_typed_error_and_the_engine_goes_on(engine: LocalEngine, name: str) -> None:
    kind, act = WRONG[name]
    with pytest.raises(kind) as raised:
        act(engine)
    assert "\n" not in str(raised.value)
    assert loaded(engine)
    assert answered(engine, "still here").text == "still here"


def test_counts_of_a_full_context_come_along(engine: LocalEngine) -> None:
    engine.load(LoadSpec(model="scripted:echo?n_ctx=64"))
    with pytest.raises(ContextFullError) as raised:
        answered(engine, "x" * 100)
    assert (raised.value.needed, raised.value.available) == (103, 63)


def test_loading_can_be_cancelled_before_it_begins(engine: LocalEngine) -> None:
    engine.load(COUNT)
    running = engine.generate(spec("go"))
    waiting = engine._asked(lambda tell: engine._core.load(ECHO, tell))
    waiting.cancel()
    with pytest.raises(Cancelled):
        list(waiting)
    running.cancel()
    assert finished(running).finish_reason == "cancelled"


def test_closing_ends_what_runs_and_what_waits() -> None:
    engine = LocalEngine(load)
    engine.load(COUNT)
    running, waiting = engine.generate(spec("go")), engine.generate(spec("go"))
    next(iter(running))
    engine.close()
    assert finished(running).finish_reason == "cancelled"
    with pytest.raises(EngineError, match="closed"):
        finished(waiting)
    with pytest.raises(EngineError, match="closed"):
        engine.generate(spec("go"))


def test_texts_are_translated_as_the_model_reads_them(engine: LocalEngine) -> None:
    engine.load(ECHO)
    raw = engine.translate(GenerateSpec(prompt="and <|end|>"))
    assert raw.text == "and <|end|>"
    assert len(engine.translate(spec("and")).ids) == len(engine.translate(GenerateSpec(prompt="and")).ids) + 3
    assert engine.translate(GenerateSpec(prompt=raw.ids)) == raw
