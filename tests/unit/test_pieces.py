"""Pieces of prompts in the decodes of others: how many decodes there are, and what is in them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tiny_generations import GREEDY, Open, Tiny, run

from edgespec.beside import Beside
from edgespec.costs import Costs, CostTable
from edgespec.drafters import LookupDrafter
from edgespec.errors import Cancelled, ContextFullError
from edgespec.generation import Generation, GenerationRequest, generate
from edgespec.llama import Context
from edgespec.offers import Plan
from edgespec.planning import Planner
from edgespec.rounds import Piece, step
from edgespec.scoring import Rows, ScoreRequest
from edgespec.testing import TableModel

LONG = tuple(i % 3 for i in range(100))


class Watched(TableModel):
    """Keeps the requests of every decode; shapes: (rows, tokens that the cache is to hold) of each."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.decodes: list[list[ScoreRequest]] = []
        self.shapes: list[list[tuple[int, int]]] = []

    def score(self, requests: Sequence[ScoreRequest]) -> list[Rows]:
        self.decodes.append(list(requests))
        self.shapes.append([(r.width, len(r.tokens) + len(r.drafted)) for r in requests])
        return super().score(requests)


def begun(target: Any, *prompts: tuple[int, ...], tokens: int = 60) -> list[Generation]:
    """After their first token."""
    running = [generate(target, GenerationRequest(prompt=p, params=GREEDY, max_tokens=tokens)) for p in prompts]
    step(target, running)
    return running


def reader(target: Any, prompt: tuple[int, ...] = LONG, tokens: int = 8) -> Generation:
    return generate(target, GenerationRequest(prompt=prompt, params=GREEDY, max_tokens=tokens))


def test_pieces_ride_in_the_decodes_of_rounds() -> None:
    target = Watched()
    talkers, late = begun(target, (0, 1), (1, 2)), reader(target)
    target.shapes.clear()
    for _ in range(3):
        step(target, talkers, [Piece(late, 32)])
    assert target.shapes == [[(1, 3 + i), (1, 3 + i), (0, 32 * (i + 1))] for i in range(3)]
    assert target.score_calls == 4
    assert late.unread == 3
    step(target, [*talkers, late])  # what is left shares the decode that scores
    assert target.shapes[3] == [(1, 6), (1, 6), (1, 100)]
    assert [len(g.completion) for g in (*talkers, late)] == [5, 5, 1]


def test_pieces_of_several_prompts_are_one_decode() -> None:
    target = Watched()
    late = [reader(target, LONG[:n]) for n in (100, 80, 60)]
    assert step(target, [], [Piece(g, 50) for g in late]) == []
    assert target.shapes == [[(0, 50)] * 3]
    assert [g.unread for g in late] == [49, 29, 9]


def test_a_piece_is_no_longer_than_what_is_unread() -> None:
    target = Watched()
    late = reader(target)
    step(target, [], [Piece(late, 1000)])
    assert late.unread == 0
    assert list(late.sequence.cached) == list(LONG[:-1])  # the last token is for the decode that scores


def test_the_text_is_that_of_a_prompt_read_at_once() -> None:
    target = TableModel(6, seed=3)
    alone = reader(target, tokens=20)
    list(alone)
    talkers, late = begun(target, (0, 1)), reader(target, tokens=20)
    while late.unread > 5:
        step(target, talkers, [Piece(late, 7)])
    while late.finish_reason is None:
        step(target, [*talkers, late])
    assert late.completion == alone.completion


def test_one_that_is_cancelled_reads_no_more() -> None:
    target = Watched()
    talkers, late = begun(target, (0, 1)), reader(target)
    late.cancel()
    step(target, talkers, [Piece(late, 32)])
    assert target.shapes[-1] == [(1, 3)]


def test_who_may_stop_a_decode() -> None:
    """One that reads most of it, while nobody waits for the next token of a reply."""
    target = Watched()
    long, short = reader(target), reader(target, LONG[:20])
    step(target, [], [Piece(long, 50), Piece(short, 10)])
    assert [r.cancel for r in target.decodes[-1]] == [long.cancelled, None]
    step(target, begun(target, (0, 1)), [Piece(long, 40)])
    assert [r.cancel for r in target.decodes[-1]] == [None, None]
    step(target, [], [Piece(long, 2)])
    assert [r.cancel for r in target.decodes[-1]] == [long.cancelled]


def test_a_decode_that_is_stopped_ends_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    target = TableModel()
    long, short = reader(target), reader(target, LONG[:20])

    def stopped(requests: Sequence[ScoreRequest]) -> list[Rows]:
        long.cancel()
        raise Cancelled("cancelled")

    monkeypatch.setattr(target, "score", stopped)
    assert step(target, [short], [Piece(long, 90)]) == [[]]
    assert (short.finish_reason, short.error) == (None, None)
    monkeypatch.undo()
    step(target, [short])
    assert len(short.completion) == 1


def test_where_there_is_no_room_for_all_the_round_goes_on_without_pieces() -> None:
    target = Watched(n_ctx=128, cells=70)
    talkers, late = begun(target, (0, 1), (1, 2)), reader(target)
    step(target, talkers, [Piece(late, 90)])
    assert [len(g.completion) for g in talkers] == [2, 2]
    assert late.unread == 99
    one, other = reader(target, LONG[:60]), reader(target, LONG[1:61])
    step(target, [], [Piece(one, 58), Piece(other, 58)])  # each by itself
    assert other.unread == 1
    with pytest.raises(ContextFullError):
        step(target, [], [Piece(late, 90)])


class Single(Watched):
    """As a recurrent model that rolls back: one request a decode."""

    max_sequences = 1


def test_a_model_of_single_requests_reads_beside_its_rounds() -> None:
    target = Single()
    [talker], late = begun(target, (0, 1)), reader(target)
    target.shapes.clear()
    step(target, [talker], [Piece(late, 32)])
    assert target.shapes == [[(1, 3)], [(0, 32)]]


def test_a_round_with_a_piece_says_nothing_about_the_cost_of_its_rows() -> None:
    costs = Costs(CostTable((1, 4), (10.0, 20.0)))
    planner = Planner(costs, {"lookup": lambda _: 0.5}, overhead_ms=0.0)
    planner.beside = Beside(requests=1, reading=32)
    for _ in range(20):
        planner.observe(Plan("lookup", 1), (0,), (1.0,), produced=2, draft_ms=0.0, verify_ms=500.0, other_ms=0.0)
    assert costs.at(2) == pytest.approx(10.0 + 10.0 / 3)
    planner.beside = Beside(requests=1)
    planner.observe(Plan(), (), (), produced=1, draft_ms=0.0, verify_ms=500.0, other_ms=0.0)
    assert costs.at(1) > 10.0


def test_others_know_what_is_read_beside_them() -> None:
    told: list[Beside] = []

    class Told(LookupDrafter):
        expects = 0.0

        def share(self, beside: Beside) -> None:
            told.append(beside)

        def prospect(self, *_: Any) -> None:
            """It does not say."""

    target = TableModel()
    talker = generate(target, GenerationRequest(prompt=(0, 1), params=GREEDY, max_tokens=60), Told())
    step(target, [talker])
    late = reader(target)
    step(target, [talker], [Piece(late, 32)])
    assert told[-1] == Beside(requests=1, rows=0, tokens=0, depth=32, reading=32)
    step(target, [talker, late])
    assert told[-1] == Beside(requests=1, rows=1, tokens=1, depth=100, reading=67)
    step(target, [talker, late])
    assert told[-1].reading == 0


@pytest.mark.parametrize("arch", ["llama", "gemma3", "lfm2", "jamba"])
def test_real_decodes_with_pieces_change_nobody_s_text(tiny: Tiny, open_context: Open, arch: str) -> None:
    context = open_context(tiny(arch), sequences=3)
    prompts = ((81, 300, 301, 17), (44, 45), tuple(range(30, 90)))
    wanted = [run(context, prompt=p, max_tokens=24).tokens for p in prompts]
    talkers = begun(context, *prompts[:2], tokens=24)
    late = reader(context, prompts[2], tokens=24)
    while late.unread >= 10:
        step(context, talkers, [Piece(late, 10)])
    running = [*talkers, late]
    while any(g.finish_reason is None for g in running):
        step(context, running)
    assert [g.tokens for g in running] == wanted


def test_a_real_decode_makes_rows_of_nothing_but_what_is_asked_for(tiny: Tiny, open_context: Open) -> None:
    context = open_context(tiny(), sequences=3)
    text, prompt = [5, 6, 7, 8], list(range(40, 100))
    one, other = context.sequence(), context.sequence()
    sizes = decodes(context)
    rows, none = context.score([ScoreRequest(one, text, (9,)), ScoreRequest(other, prompt, reads=True)])
    assert rows.shape == (2, context.vocab.size)
    assert none.shape == (0, context.vocab.size)
    assert sizes == [(5 + 60, 2)]
    assert list(other.cached) == prompt
    expected = rows.copy()
    alone = open_context(tiny())
    assert np.abs(alone.score([ScoreRequest(alone.sequence(), text, (9,))])[0] - expected).max() < 1e-2
    sizes.clear()
    assert context.score([ScoreRequest(other, prompt, reads=True)])[0].shape == (0, context.vocab.size)
    assert sizes == []  # nothing was missing
    assert context.score([ScoreRequest(other, prompt[:-1], reads=True)])[0].shape == (0, context.vocab.size)
    assert list(other.cached) == prompt[:-1]


def test_hidden_states_are_of_rows_alone_so_a_piece_is_read_before(tiny: Tiny, open_context: Open) -> None:
    context = open_context(tiny(), sequences=3)
    one, other = context.sequence(), context.sequence()
    sizes = decodes(context)
    context.score([ScoreRequest(one, [5], (9,), states=True), ScoreRequest(other, [1, 2, 3], reads=True)])
    assert sizes[-2:] == [(3, 0), (2, 2)]
    assert context.states(one).shape[0] == 2


def test_a_long_piece_is_stopped_in_the_middle(tiny: Tiny, open_context: Open) -> None:
    context = open_context(tiny(), sequences=2)
    cancelled = threading.Event()
    cancelled.set()
    sequence = context.sequence()
    with pytest.raises(Cancelled):
        context.score([ScoreRequest(sequence, list(range(30, 90)), (), cancelled, reads=True)])
    assert list(sequence.cached) == []


def decodes(context: Context) -> list[tuple[int, int]]:
    """From now on: (tokens, rows) of each decode."""
    found: list[tuple[int, int]] = []
    run_it = context._decodes.attempt

    def counted() -> int:
        found.append((context._batch.size, context._batch.rows))
        return run_it()

    context._decodes.attempt = counted  # type: ignore[method-assign]
    return found
