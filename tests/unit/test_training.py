"""Training of heads: pairs, gradients, what is learned, going on after an interruption, and the model's own rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgespec.errors import BadRequestError
from edgespec.heads.medusa import Facts
from edgespec.models.header import read_header
from edgespec.train import settings
from edgespec.train.data import BEFORE, TOP, Pairs, Text, pairs, places, read_shard, vocabulary, write_shard
from edgespec.train.fit import schedule, wanted
from edgespec.train.forms import FORMS
from edgespec.train.network import forward
from edgespec.train.output import output_rows
from edgespec.train.prompts import divided, shipped
from edgespec.train.sequential import SequentialTrainer as Trainer
from edgespec.train.settings import TrainSettings

SIZE, WIDTH, WINDOW = 12, 10, 2


def text(seed: int, length: int = 40) -> Text:
    """A text whose every state says which token it chose, and which three come after that."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, SIZE, length).astype(np.int32)
    states = np.zeros((length, 4 * SIZE), np.float16)
    for j in range(length):
        for k in range(4):
            if j + k < length:
                states[j, k * SIZE + tokens[j + k]] = 3
    return written(tokens, states)


def written(tokens: Any, states: Any, before: tuple[int, ...] = ()) -> Text:
    """A text whose every token was all but certain."""
    ids = np.array(tokens, np.int32)
    top, chances = np.full((len(ids), TOP), -1, np.int32), np.zeros((len(ids), TOP), np.float16)
    top[:, :2], chances[:, :2] = np.stack([ids, (ids + 1) % SIZE], axis=1), (0.9, 0.1)
    prompt = np.full(BEFORE, -1, np.int32)
    if before:
        prompt[-len(before) :] = before
    return Text(ids, np.array(states, np.float16), top, chances, prompt)


def test_the_state_that_chose_a_token_is_to_guess_those_after_it() -> None:
    """Head k sees the tokens up to the one before what it guesses, and learns from the position that chose that."""
    made = written([7, 8, 9, 5], np.arange(8).reshape(4, 2), before=(4, 3))
    ids = np.array([3, 5, 7, 8, 9, 10])
    found = pairs([made, made], ids, 3, WINDOW)
    assert found.wanted[:4].tolist() == [[3, 4, 1], [4, 1, -1], [1, -1, -1], [-1, -1, -1]]
    assert found.known[:4].tolist() == [[True] * 3, [True, True, False], [True, False, False], [False] * 3]
    # the token before (6: not in the vocabulary), the one that the state chose, and those after it
    assert found.seen[:4].tolist() == [[0, 2, 3, 4], [2, 3, 4, 1], [3, 4, 1, 6], [4, 1, 6, 6]]
    assert np.array_equal(found.states, np.concatenate([made.states, made.states]))
    assert found.top[:, :2].tolist() == [[2, 3], [3, 4], [4, 5], [1, -1]] * 2
    assert found.chances[3, :2].tolist() == [pytest.approx(0.9, abs=1e-3), 0]
    assert places(np.array([[3, 9, -1]]), np.array([5, 9])).tolist() == [[-1, 1, -1]]


def test_the_vocabulary_is_what_the_model_is_likeliest_to_use() -> None:
    """Of two tokens that were chosen equally often the one that was likelier elsewhere; never chosen ones count too."""
    one = written([2, 5], np.zeros((2, 2)))
    one.top[:, :3], one.chances[:, :3] = [[2, 5, 9], [5, 9, 4]], [[0.5, 0.3, 0.2], [0.6, 0.3, 0.1]]
    assert vocabulary([one], 1).tolist() == [5]
    assert vocabulary([one], 3).tolist() == [2, 5, 9]
    assert vocabulary([one], 9).tolist() == [2, 4, 5, 9]


def test_shards_are_read_back_and_damaged_ones_are_made_again(tmp_path: Path) -> None:
    texts = [text(1, 5), text(0, 0), text(2, 9)]
    path = tmp_path / "shard.npz"
    assert read_shard(path) is None
    write_shard(path, texts)
    found = read_shard(path)
    assert found is not None
    for a, b in zip(found, texts, strict=True):
        for part in ("tokens", "states", "top", "chances", "before"):
            assert np.array_equal(getattr(a, part), getattr(b, part))
    whole = path.read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 30):
        path.write_bytes(whole[:length])
        assert read_shard(path) is None
    assert [p.name for p in tmp_path.iterdir()] == ["shard.npz"]


def test_no_subject_is_both_learned_from_and_judged_by() -> None:
    train, held = shipped()
    assert len(train) > 2000
    assert len(held) > 200
    assert not set(train) & set(held)
    assert len(set(train)) == len(train)
    own = [f"prompt {i}" for i in range(20)]
    mine, kept = divided(own)
    assert sorted([*mine, *kept]) == sorted(own)
    assert len(kept) == 2


def random_trainer() -> Trainer:
    rng = np.random.default_rng(0)
    texts = []
    for _ in range(3):
        one = written(rng.integers(0, 7, 12), rng.standard_normal((12, WIDTH)))
        one.top[:, :4] = np.array([rng.permutation(9)[:4] for _ in range(12)])
        one.chances[:, :4] = rng.dirichlet(np.ones(4), 12)
        texts.append(one)
    ids = np.arange(7)  # some likely tokens are outside
    rows = rng.standard_normal((7, WIDTH)).astype(np.float32)
    trainer = Trainer(pairs(texts, ids, 2, WINDOW), ids, rows, 3, 0)
    for value in trainer.params.values():
        value += rng.standard_normal(value.shape).astype(np.float32) / 5
    return trainer


@pytest.mark.parametrize("name", ["mix", "mix_bias", "inner", "inner_bias", "outer"])
def test_gradients_are_those_of_the_loss(name: str) -> None:
    """The weighted sum of both heads' losses, against differences of it: through the second head, too."""
    trainer = random_trainer()
    known, every = trainer._pairs.known.copy(), trainer._usable
    gradient = trainer._gradients(every)[1][name]

    def loss() -> float:
        total = 0.0
        for k in range(2):
            trainer._pairs.known[:] = False
            trainer._pairs.known[:, k] = known[:, k]
            total += 0.8**k * 2 * trainer._gradients(every)[0]
        trainer._pairs.known[:] = known
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
        assert gradient[index] == pytest.approx((above - below) / (2 * step), abs=2e-3, rel=2e-2)


def test_a_head_should_guess_the_distribution_and_its_likeliest_token() -> None:
    trainer = random_trainer()
    found, top, chances = trainer._pairs, trainer._pairs.top, trainer._pairs.chances
    places_, shares = wanted(trainer._pairs, np.array([4, 9]), 1)
    for row, chose in enumerate((6, 11)):
        found_ = np.zeros(7)
        np.add.at(found_, places_[row], shares[row])
        expected = np.zeros(7)
        inside = top[chose] >= 0
        expected[top[chose][inside]] = 0.6 * chances[chose][inside]
        expected[top[chose][chances[chose].argmax()]] += 0.4
        assert np.allclose(found_, expected, atol=1e-6)
    assert (found.top[:, :4] == -1).any()


def fitted(epochs: int, trainer: Trainer, held: Pairs) -> Trainer:
    for _ in range(epochs):
        trainer.run_epoch(64)
        trainer.judge(trainer.score(held))
    return trainer


def learner(seed: int = 0) -> tuple[Trainer, Pairs]:
    texts = [text(i) for i in range(20)]
    ids = vocabulary(texts, SIZE)
    rows = np.eye(SIZE, 4 * SIZE, dtype=np.float32)  # the model's next token is the first that the state says
    trainer = Trainer(pairs(texts, ids, 3, WINDOW), ids, rows, 12, seed)
    return trainer, pairs([text(100), text(101)], ids, 3, WINDOW)


def test_what_the_states_say_is_learned_and_scored_on_other_texts() -> None:
    trainer, held = learner()
    for value in trainer.params.values():  # else it begins with what a regression finds, all there is to find here
        value[:] = np.random.default_rng(4).standard_normal(value.shape) / 9
    before = trainer.score(held)
    fitted(12, trainer, held)
    score = trainer.score(held)
    assert before.tau < 3
    assert score.tau > 3.5
    assert min(score.acceptance) > 0.8
    assert score.coverage == 1
    assert score.loss < before.loss
    heads = trainer.heads(Facts(SIZE, 4 * SIZE))
    places_ = held.wanted[0].tolist()
    guesses = heads.guesses(held.states[0].astype(np.float32), heads.ids[held.seen[0, :WINDOW] % SIZE].tolist(), 3)
    ids, logits = next(guesses)
    for place in places_:
        assert ids[logits.argmax()] == heads.ids[place]
        if place is not places_[-1]:
            ids, logits = guesses.send(int(heads.ids[place]))


def test_it_begins_with_what_a_regression_finds() -> None:
    trainer, held = learner()
    assert trainer.score(held).tau > 3


def test_one_position_and_many_are_computed_alike() -> None:
    """network.forward, in the shapes of a training, and SequentialHeads, in those of a draft."""
    trainer, held = learner()
    for value in trainer.params.values():
        value += np.random.default_rng(3).standard_normal(value.shape).astype(np.float32) / 9
    trainer.best = trainer.params
    heads = trainer.heads(Facts(SIZE, 4 * SIZE))
    first = np.arange(5)
    state = trainer._within(held.states[:5])
    rows = []
    for k in range(3):
        state = forward(trainer.params, k, state, trainer._seen_at(held, first, k)).made
        rows.append(state @ trainer._rows.T + trainer._bias)
    for i in range(1, 4):  # places of tokens that there are
        guesses = heads.guesses(held.states[i].astype(np.float32), heads.ids[held.seen[i, :WINDOW]].tolist(), 3)
        logits = [next(guesses)[1]]
        logits += [guesses.send(int(heads.ids[held.seen[i, WINDOW + k]]))[1] for k in range(2)]
        assert np.allclose(logits, [row[i] for row in rows], atol=1e-3)


def test_a_training_goes_on_to_the_same_bits() -> None:
    whole, held = learner()
    fitted(5, whole, held)
    first, _ = learner()
    fitted(2, first, held)
    saved = {name: value.copy() for name, value in first.arrays().items()}
    second, _ = learner()
    second.try_steps(16)  # what takes the time of a step changes nothing
    assert second.restore(saved)
    fitted(3, second, held)
    for name, value in whole.arrays().items():
        assert np.array_equal(value, second.arrays()[name]), name
    other = random_trainer()
    assert not other.restore(saved)
    assert other.epoch == 0


def test_it_stops_where_passes_bring_nothing_and_keeps_the_best() -> None:
    trainer, held = learner()
    fitted(6, trainer, held)
    best, tau = trainer.best["mix_bias"].copy(), trainer.best_tau
    for value in trainer.params.values():
        value[:] = 0
    trainer._since_best = 0
    for _ in range(3):
        assert not trainer.done
        assert not trainer.judge(trainer.score(held))
    assert trainer.done
    assert (trainer.best_tau, trainer.best["mix_bias"].tolist()) == (tau, best.tolist())


def test_the_rate_rises_and_then_falls() -> None:
    rates = [schedule(done / 1000) for done in range(1001)]
    top = rates.index(max(rates))
    assert 0 < top < 100
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert 0 < rates[-1] < 0.1 < 0.99 < max(rates) <= 1


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


def test_there_is_a_row_for_every_form() -> None:
    assert tuple(FORMS) == settings.FORMS
    assert TrainSettings(form="eagle").digest() != TrainSettings().digest()


def test_the_time_allowed_is_no_part_of_what_is_made() -> None:
    base = TrainSettings()
    assert TrainSettings(minutes=3).digest() == base.digest()
    assert TrainSettings(seed=1).digest() != base.digest() != base.digest("a prompt")
