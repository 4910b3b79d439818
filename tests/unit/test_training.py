"""Training of heads: pairs, gradients, what is learned, going on after an interruption, and the rows it begins with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgespec.errors import BadRequestError
from edgespec.heads.medusa import Facts
from edgespec.models.header import read_header
from edgespec.train.data import Pairs, Text, pairs, read_shard, vocabulary, write_shard
from edgespec.train.fit import Trainer, places
from edgespec.train.output import output_rows
from edgespec.train.prompts import divided, shipped
from edgespec.train.settings import TrainSettings

SIZE, WIDTH = 12, 10


def text(seed: int, length: int = 40) -> Text:
    """A text whose every state says which three tokens come after the one it chose."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, SIZE, length).astype(np.int32)
    states = np.zeros((length, 3 * SIZE), np.float16)
    for j in range(length):
        for k in range(3):
            if j + k + 1 < length:
                states[j, k * SIZE + tokens[j + k + 1]] = 3
    return Text(tokens, states)


def test_the_state_that_chose_a_token_is_to_guess_those_after_it() -> None:
    made = Text(np.array([7, 8, 9, 5], np.int32), np.arange(8, dtype=np.float16).reshape(4, 2))
    found = pairs([made, made], 3)
    assert found.wanted[:4].tolist() == [[8, 9, 5], [9, 5, -1], [5, -1, -1], [-1, -1, -1]]
    assert np.array_equal(found.states, np.concatenate([made.states, made.states]))
    assert vocabulary([made, Text(np.array([9, 9, 3], np.int32), made.states[:3])], 2).tolist() == [3, 9]
    assert places(np.array([[3, 9, -1]]), np.array([5, 9])).tolist() == [[-1, 1, -1]]


def test_shards_are_read_back_and_damaged_ones_are_made_again(tmp_path: Path) -> None:
    texts = [text(1, 5), Text(np.empty(0, np.int32), np.empty((0, 3 * SIZE), np.float16)), text(2, 9)]
    path = tmp_path / "shard.npz"
    assert read_shard(path) is None
    write_shard(path, texts)
    found = read_shard(path)
    assert found is not None
    for a, b in zip(found, texts, strict=True):
        assert np.array_equal(a.tokens, b.tokens)
        assert np.array_equal(a.states, b.states)
    whole = path.read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 30):
        path.write_bytes(whole[:length])
        assert read_shard(path) is None
    assert [p.name for p in tmp_path.iterdir()] == ["shard.npz"]


def test_no_subject_is_both_learned_from_and_judged_by() -> None:
    train, held = shipped()
    assert len(train) > 400
    assert len(held) > 50
    assert not set(train) & set(held)
    assert len(set(train)) == len(train)
    own = [f"prompt {i}" for i in range(20)]
    mine, kept = divided(own)
    assert sorted([*mine, *kept]) == sorted(own)
    assert len(kept) == 2


def random_trainer(taught: bool) -> Trainer:
    """taught: with the model's own rows, which say what distribution each token was chosen from."""
    rng = np.random.default_rng(0)
    states = rng.standard_normal((32, WIDTH)).astype(np.float16)
    wanted = rng.integers(-1, 8, (32, 2))
    wanted[-2:] = -1
    rows = rng.standard_normal((7, WIDTH)).astype(np.float32) if taught else None
    trainer = Trainer(Pairs(states, wanted), np.arange(7), 2, rows, 0)
    for value in trainer.params.values():
        value += rng.standard_normal(value.shape).astype(np.float32) / 5
    return trainer


@pytest.mark.parametrize("taught", [False, True])
@pytest.mark.parametrize("name", ["weight", "bias", "projection"])
def test_gradients_are_those_of_the_loss(name: str, taught: bool) -> None:
    """The weighted sum of both heads' losses, against differences of it."""
    trainer = random_trainer(taught)
    targets, every = trainer._targets, np.arange(32)
    gradient = trainer._gradients(every)[1][name]

    def loss() -> float:
        total = 0.0
        for k in range(2):
            alone = np.full_like(targets, -1)
            alone[:, k] = targets[:, k]
            trainer._targets = alone
            total += 0.8**k * trainer._gradients(every)[0]
        trainer._targets = targets
        return total

    values = trainer.params[name]
    for place in np.random.default_rng(1).integers(0, values.size, 12).tolist():
        index = np.unravel_index(place, values.shape)
        before, step = values[index], 1e-2
        values[index] = before + step
        above = loss()
        values[index] = before - step
        below = loss()
        values[index] = before
        assert gradient[index] == pytest.approx((above - below) / (2 * step), abs=2e-3)


def test_a_head_should_guess_half_the_token_and_half_what_it_was_chosen_from() -> None:
    trainer = random_trainer(taught=True)
    rows, states = trainer._teacher, trainer._pairs.states.astype(np.float64)
    assert rows is not None
    wanted = trainer._wanted(np.array([4, 9]), np.array([2, 5]), 1)
    for found, position, token in zip(wanted, (4, 9), (2, 5), strict=True):
        chances = np.exp(rows @ states[position + 2])
        expected = 0.5 * chances / chances.sum() + 0.5 * np.eye(7)[token]
        assert np.allclose(found, expected, atol=1e-5)
    begun = np.array(rows)
    trainer.run_epoch(8)
    assert np.array_equal(trainer._teacher, begun)  # what it is taught by does not move with what it learns


def fitted(epochs: int, trainer: Trainer, held: Pairs) -> Trainer:
    for _ in range(epochs):
        trainer.run_epoch(64)
        trainer.judge(trainer.score(held))
    return trainer


def learner(seed: int = 0) -> tuple[Trainer, Pairs]:
    texts = [text(i) for i in range(20)]
    ids = vocabulary(texts, SIZE)
    return Trainer(pairs(texts, 3), ids, 3, None, seed), pairs([text(100), text(101)], 3)


def test_what_the_states_say_is_learned_and_scored_on_other_texts() -> None:
    trainer, held = learner()
    before = trainer.score(held)
    fitted(12, trainer, held)
    score = trainer.score(held)
    assert before.tau < 2
    assert score.tau > 3.5
    assert min(score.acceptance) > 0.8
    assert score.coverage == 1
    assert score.loss < before.loss
    heads = trainer.heads(Facts(SIZE, 3 * SIZE))
    guesses = heads.logits(held.states[0].astype(np.float32), 3).argmax(axis=1)
    assert heads.ids[guesses].tolist() == held.wanted[0].tolist()


def test_a_training_goes_on_to_the_same_bits() -> None:
    whole, held = learner()
    fitted(5, whole, held)
    first, _ = learner()
    fitted(2, first, held)
    saved = {name: value.copy() for name, value in first.arrays().items()}
    second, _ = learner()
    assert second.restore(saved)
    fitted(3, second, held)
    for name, value in whole.arrays().items():
        assert np.array_equal(value, second.arrays()[name]), name
    other = Trainer(pairs([text(1)], 3), np.arange(4), 3, None, 0)
    assert not other.restore(saved)
    assert other.epoch == 0


def test_it_stops_where_passes_bring_nothing_and_keeps_the_best() -> None:
    trainer, held = learner()
    fitted(6, trainer, held)
    best, tau = trainer.best["bias"].copy(), trainer.best_tau
    for value in trainer.params.values():
        value[:] = 0
    for _ in range(3):
        assert not trainer.done
        assert not trainer.judge(trainer.score(held))
    assert trainer.done
    assert (trainer.best_tau, trainer.best["bias"].tolist()) == (tau, best.tolist())


@pytest.mark.parametrize("options", [{"quant": q} for q in ("f32", "f16", "q4_0", "q8_0")] + [{"tied": True}])
def test_rows_of_the_output_matrix_are_the_files(tiny: Callable[..., Path], options: dict[str, Any]) -> None:
    import gguf

    path, ids = tiny(**options), np.array([0, 5, 17, 300, 511])
    tensors = {t.name: t for t in gguf.GGUFReader(path).tensors}
    tensor = tensors["token_embd.weight" if options.get("tied") else "output.weight"]
    expected = gguf.quants.dequantize(np.array(tensor.data), tensor.tensor_type)[ids]
    found = output_rows(read_header(path), ids)
    assert found is not None
    assert np.array_equal(found, expected)
    assert output_rows(read_header(path), np.array([600])) is None


@pytest.mark.parametrize(
    "wrong", [{"heads": 0}, {"tokens": 5}, {"minutes": 0}, {"minutes": float("nan")}, {"seed": -1}, {"epochs": True}]
)
def test_settings_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadRequestError, match=next(iter(wrong))):
        TrainSettings(**wrong)


def test_the_time_allowed_is_no_part_of_what_is_made() -> None:
    base = TrainSettings()
    assert TrainSettings(minutes=3).digest() == base.digest()
    assert TrainSettings(seed=1).digest() != base.digest() != base.digest("a prompt")
