"""Training of EAGLE heads: the layer's steps are those of a draft, its gradients those of the loss, and it learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eagle_reference import forward
from edgespec.heads.medusa import Facts
from edgespec.train.attention import Rotation
from edgespec.train.data import BEFORE, TOP, Text
from edgespec.train.eagle import _NEAR, _SPAN, EagleTrainer, Pieces
from edgespec.train.eagle_begin import _looks
from edgespec.train.fit import LATER, wanted, weight_of
from edgespec.train.network import cross_entropy

SIZE, WIDTH, GUESSES = 12, 10, 3
NEXT = [np.random.default_rng(seed).permutation(SIZE).tolist() for seed in (1, 2)]


def text(seed: int, length: int = 30, width: int = WIDTH, *, follows: bool = False) -> Text:
    """follows: each state says which token it chose and which was before it, and these two tell the next one."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, SIZE, length).astype(np.int32)
    states = rng.standard_normal((length, width))
    if follows:
        for j in range(2, length):
            tokens[j] = NEXT[tokens[j - 2] % 2][tokens[j - 1]]
        states = 0.1 * states
        states[np.arange(length), tokens] += 3
        states[np.arange(1, length), SIZE + tokens[:-1]] += 3
    top, chances = np.full((length, TOP), -1, np.int32), np.zeros((length, TOP), np.float16)
    top[:, :2], chances[:, :2] = np.stack([tokens, (tokens + 1) % SIZE], axis=1), (0.9, 0.1)
    return Text(tokens, states.astype(np.float16), top, chances, np.full(BEFORE, -1, np.int32))


def trainer_of(texts: list[Text], ids: Any = range(SIZE), seed: int = 0) -> EagleTrainer:
    """Its weights are moved from where they begin, so that every part does something."""
    chosen, rng = np.array(ids, np.int64), np.random.default_rng(seed)
    width = texts[0].states.shape[1]
    rows = rng.standard_normal((SIZE, width)).astype(np.float32)
    embeddings = rng.standard_normal((SIZE, width)).astype(np.float32)
    pieces = Pieces.of(texts, chosen, GUESSES, np.arange(SIZE))
    trainer = EagleTrainer(pieces, chosen, rows[chosen], embeddings, 3, seed)
    for value in trainer.params.values():
        value += rng.standard_normal(value.shape).astype(np.float32) / 6
    return trainer


def in_full(trainer: EagleTrainer) -> EagleTrainer:
    """In float64, so that differences say something."""
    for name, value in trainer.params.items():
        trainer.params[name] = value.astype(np.float64)  # type: ignore[assignment]
    return trainer


def objective(trainer: EagleTrainer, chosen: Any) -> float:
    """What the gradients are of."""
    found, total = trainer._pieces.pairs, 0.0
    positions, _, steps = trainer.unrolled(trainer._pieces, chosen)
    none = np.zeros(len(trainer.ids), np.float32)
    for k, passed in enumerate(steps):
        weight = weight_of(found.known[positions, k], k)
        total += cross_entropy(passed.made, trainer._rows, none, *wanted(found, positions, k), weight)[0]
        after = np.minimum(positions + k + 1, len(found.states) - 1)  # of another text only where the weight is 0
        away = (passed.h - found.states[after]) / trainer.frame.unit
        total += _NEAR * float((weight * np.square(away).mean(axis=1)).sum())
    return total


def test_gradients_are_those_of_the_loss() -> None:
    """Of every weight, through the features and the keys and values of later steps."""
    trainer = in_full(trainer_of([text(1, 7), text(2, 9)], range(9)))
    chosen = np.arange(2)
    loss, gradients = trainer._gradients(chosen)
    assert loss > 0
    rng = np.random.default_rng(3)
    for name, value in trainer.params.items():
        for place in rng.integers(0, value.size, 8).tolist():
            index = np.unravel_index(place, value.shape)
            before, step = value[index], 1e-4
            value[index] = before + step
            above = objective(trainer, chosen)
            value[index] = before - step
            below = objective(trainer, chosen)
            value[index] = before
            assert gradients[name][index] == pytest.approx((above - below) / (2 * step), abs=1e-5, rel=1e-3), name


def test_each_step_is_that_of_a_draft_which_starts_there() -> None:
    """By the reference of the layer: the target's features up to the start, then the layer's own."""
    trainer = trainer_of([text(4, 11), text(5, 14)])
    trainer.best = trainer.params
    head = trainer.head(Facts(SIZE, WIDTH))
    output = head.weights.output
    assert output is not None
    positions, spans, steps = trainer.unrolled(trainer._pieces, np.array([1, 0]))
    assert spans == [(0, 14), (14, 25)]
    pieces, embeddings = trainer._pieces, trainer._embedded  # of size 1 already: normed again they are the same
    for row, (start, first) in {3: (3, 11), 9: (9, 11), 14: (0, 0), 20: (6, 0)}.items():
        assert positions[row] == first + start
        features = list(pieces.pairs.states[first : first + start + 1].astype(np.float32))
        for passed in steps:
            tokens = pieces.tokens[first : first + len(features)]
            logits, own = forward(head, embeddings[tokens], np.stack(features))
            assert np.allclose(passed.made[row] @ output.T, logits[-1], atol=1e-3)
            assert np.allclose(passed.h[row], own[-1], atol=1e-3)
            features.append(own[-1])


def test_a_long_text_is_learned_from_in_pieces() -> None:
    """A piece looks into itself alone; its last positions guess what the next piece begins with."""
    long = text(6, _SPAN + 20)
    pieces = Pieces.of([text(7, 5), long], np.arange(SIZE), GUESSES, np.arange(SIZE))
    assert pieces.spans.tolist() == [[0, 5], [5, _SPAN + 5], [_SPAN + 5, _SPAN + 25]]
    assert pieces.last.tolist() == [4] * 5 + [_SPAN + 24] * (_SPAN + 20)
    assert pieces.pairs.known[_SPAN + 4].all()
    trainer = trainer_of([long])
    steps = trainer.unrolled(trainer._pieces, np.array([0, 1]))[2]
    alone = trainer.unrolled(trainer._pieces, np.array([1]))[2]
    assert np.allclose(steps[2].made[_SPAN:], alone[2].made, atol=1e-4)
    assert [len(part) for part in trainer._batches(64, np.random.default_rng(0))] == [1, 1]


def learner() -> tuple[EagleTrainer, Pieces]:
    """The next token is told by the latest two together, which the state knows."""
    ids, eye = np.arange(SIZE), np.eye(SIZE, 2 * SIZE, dtype=np.float32)
    own, held = (
        Pieces.of([text(i, 40, 2 * SIZE, follows=True) for i in some], ids, GUESSES, ids)
        for some in (range(30), (100, 101))
    )
    return EagleTrainer(own, ids, 4 * eye, eye, 20, 0), held


def test_it_begins_with_what_a_regression_finds() -> None:
    trainer, held = learner()
    assert trainer.score(held).tau > 3
    for name in ("qkv", "attention"):
        trainer.params[name] *= 0
    assert trainer.score(held).tau < 2


def test_what_a_text_says_is_learned_and_scored_on_other_texts() -> None:
    trainer, held = learner()
    for name in ("qkv", "attention"):  # else there is little left to learn
        trainer.params[name][:] = np.random.default_rng(4).standard_normal(trainer.params[name].shape) / 9
    before = trainer.score(held)
    for _ in range(20):
        trainer.run_epoch(64)
        trainer.judge(trainer.score(held))
    score = trainer.score(held)
    assert score.tau > before.tau + 1
    assert score.loss < before.loss
    assert score.coverage == 1


def test_a_training_goes_on_to_the_same_bits() -> None:
    def fresh() -> EagleTrainer:
        return trainer_of([text(i, 12) for i in range(6)])

    held = Pieces.of([text(9, 12)], np.arange(SIZE), GUESSES, np.arange(SIZE))

    def go(trainer: EagleTrainer, passes: int) -> None:
        for _ in range(passes):
            trainer.run_epoch(24)
            trainer.judge(trainer.score(held))

    whole, first, second = fresh(), fresh(), fresh()
    go(whole, 3)
    go(first, 1)
    saved = {name: value.copy() for name, value in first.arrays().items()}
    second.try_steps(24)
    assert second.restore(saved)
    go(second, 2)
    for name, value in whole.arrays().items():
        assert np.array_equal(value, second.arrays()[name]), name


def test_heads_of_the_attention_begin_by_looking_at_their_own_place() -> None:
    assert [(look.back, look.first, look.end) for look in _looks(1)] == [(0, 0, 1)]
    assert [(look.back, look.first, look.end) for look in _looks(9)] == [(0, 0, 6), (1, 6, 7), (2, 7, 8)]


def test_turning_back_undoes_turning() -> None:
    x = np.random.default_rng(0).standard_normal((5, 2, 8)).astype(np.float32)
    rotation = Rotation.of(np.arange(5), 8, 10_000.0)
    assert np.allclose(rotation.turned(rotation.turned(x), back=True), x, atol=1e-6)
    assert not np.allclose(rotation.turned(x), x)


def test_later_guesses_count_less() -> None:
    assert weight_of(np.array([True, False, True]), 2).tolist() == pytest.approx([LATER**2 / 2, 0, LATER**2 / 2])
