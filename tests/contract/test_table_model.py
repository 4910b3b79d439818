"""TableModel keeps the promises of scoring.Scorer that the loop and the drafters rely on."""

from __future__ import annotations

import threading
from itertools import product

import numpy as np
import pytest

from edgespec.errors import BadRequestError, Cancelled, ContextFullError, DecodeError
from edgespec.sampling import SamplingParams
from edgespec.scoring import Scorer, ScoreRequest
from edgespec.testing import (
    TableModel,
    outcome_law,
    sample_outcomes,
    total_variation,
    total_variation_bound,
)

OFF = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


def test_row_i_follows_the_tokens_and_i_drafted_ones() -> None:
    model: Scorer = TableModel(4, seed=2)
    truth = TableModel(4, seed=2)
    sequence = model.sequence()
    for tokens, drafted in (([0, 1], (2, 3)), ([0, 1, 2, 0], ()), ([3], (0,)), ([3, 0, 0, 1, 2], (1, 1, 1))):
        rows = model.score([ScoreRequest(sequence, tokens, drafted)])[0]
        assert rows.shape == (len(drafted) + 1, 4)
        assert rows.dtype == np.float32
        for i, row in enumerate(rows):
            assert np.array_equal(row, truth.logits([*tokens, *drafted[:i]]))
        assert sequence.cached == (*tokens, *drafted)


def test_rows_are_log_probabilities_and_depend_on_the_last_order_tokens() -> None:
    model = TableModel(3, seed=5, order=2, zeros=0.4)
    rows = {key: model.logits(key) for key in product(range(3), repeat=3)}
    assert all(np.exp(row).sum() == pytest.approx(1) for row in rows.values())
    assert all(np.array_equal(rows[key], rows[(0, *key[1:])]) for key in rows)
    assert len({row.tobytes() for row in rows.values()}) == 9
    assert any(np.isneginf(row).any() for row in rows.values())
    assert all(np.isfinite(row).any() for row in rows.values())


def test_equal_seeds_make_equal_models() -> None:
    assert np.array_equal(TableModel(seed=3).logits((0, 1)), TableModel(seed=3).logits((0, 1)))
    assert not np.array_equal(TableModel(seed=3).logits((0, 1)), TableModel(seed=4).logits((0, 1)))


def test_a_common_prefix_is_not_decoded_again() -> None:
    model = TableModel(seed=1)
    sequence = model.sequence()
    model.score([ScoreRequest(sequence, [0, 1, 2, 0], (1, 1))])
    assert model.decoded_tokens == 6
    model.score([ScoreRequest(sequence, [0, 1, 2, 0, 1, 2], ())])  # one drafted token was rejected
    assert model.decoded_tokens == 7
    assert model.score_calls == 2
    sequence.close()
    other = model.sequence([0, 1, 2, 2])
    assert other.cached == (0, 1, 2, 0, 1, 2)  # the idle cache with the longest shared prefix
    model.score([ScoreRequest(other, [0, 1, 2, 2])])
    assert model.decoded_tokens == 8


def test_sequences_share_one_decode_and_do_not_mix() -> None:
    model, truth = TableModel(seed=1), TableModel(seed=1)
    a, b = model.sequence(), model.sequence()
    rows = model.score([ScoreRequest(a, [0], (1,)), ScoreRequest(b, [2, 2])])
    assert [len(r) for r in rows] == [2, 1]
    assert np.array_equal(rows[0][1], truth.logits([0, 1]))
    assert np.array_equal(rows[1][0], truth.logits([2, 2]))
    assert (a.cached, b.cached) == ((0, 1), (2, 2))


def test_more_sequences_than_caches_take_the_oldest() -> None:
    model = TableModel(seed=1, n_seq_max=2)
    sequences = [model.sequence() for _ in range(3)]
    for i, sequence in enumerate(sequences):
        model.score([ScoreRequest(sequence, [i, 0])])
    assert [s.cached for s in sequences] == [(), (1, 0), (2, 0)]
    model.score([ScoreRequest(sequences[0], [0, 0, 1])])
    assert [s.cached for s in sequences] == [(0, 0, 1), (), (2, 0)]


def test_rows_of_an_earlier_call_are_overwritten() -> None:
    model = TableModel(seed=1)
    sequence = model.sequence()
    rows = model.score([ScoreRequest(sequence, [0], (1, 2))])[0]
    model.score([ScoreRequest(sequence, [0, 1])])
    assert np.isnan(rows[1:]).all()


def test_a_model_that_cannot_roll_back_forgets_everything() -> None:
    model = TableModel(seed=1, can_roll_back=False)
    sequence = model.sequence()
    model.score([ScoreRequest(sequence, [0, 1, 2])])
    sequence.truncate(3)
    assert sequence.cached == (0, 1, 2)
    sequence.truncate(2)
    assert sequence.cached == ()
    assert np.array_equal(model.score([ScoreRequest(sequence, [0, 1])])[0][0], TableModel(seed=1).logits([0, 1]))


def test_a_cache_out_of_step_is_an_error() -> None:
    class NeverCuts(TableModel):
        def cut(self, slot, length):  # type: ignore[no-untyped-def]
            pass

    model = NeverCuts(seed=1)
    sequence = model.sequence()
    model.score([ScoreRequest(sequence, [0, 1], (2, 2))])
    with pytest.raises(DecodeError, match="still holds"):
        model.score([ScoreRequest(sequence, [0, 1, 0])])


def test_bad_requests_are_refused() -> None:
    model = TableModel(seed=1, n_ctx=4, max_width=3, n_seq_max=1)
    sequence = model.sequence()
    cancel = threading.Event()
    cancel.set()
    for request, error in (
        (ScoreRequest(sequence, []), BadRequestError),
        (ScoreRequest(sequence, [0, 3]), BadRequestError),
        (ScoreRequest(sequence, [0], (-1,)), BadRequestError),
        (ScoreRequest(sequence, [0], (0, 0, 0)), BadRequestError),
        (ScoreRequest(sequence, [0, 0, 0], (0, 0)), ContextFullError),
        (ScoreRequest(TableModel(seed=1).sequence(), [0]), BadRequestError),
        (ScoreRequest(sequence, [0], (), cancel), Cancelled),
    ):
        with pytest.raises(error):
            model.score([request])
    with pytest.raises(BadRequestError, match="each of them once"):
        model.score([ScoreRequest(sequence, [0]), ScoreRequest(sequence, [0])])
    for wrong in ({"vocab_size": 0}, {"n_ctx": 0}, {"zeros": 1.0}, {"concentration": 0.0}, {"order": -1}):
        with pytest.raises(BadRequestError):
            TableModel(**wrong)  # type: ignore[arg-type]


def test_vocabulary_pieces() -> None:
    vocab = TableModel(5, eog=(3, 4)).vocab
    assert vocab.text([0, 1, 2, 3, 0]) == "abca"
    assert [vocab.is_eog(token) for token in range(5)] == [False, False, False, True, True]


def test_the_law_is_the_product_of_rows() -> None:
    model = TableModel(seed=1)
    law = model.law(OFF, (0, 1), 2)
    p = [np.exp(model.logits(key).astype(np.float64)) for key in ((0, 1), (1, 2))]
    assert sum(law.values()) == pytest.approx(1)
    assert law[2, 0] == pytest.approx(p[0][2] * p[1][0])
    cold = model.law(OFF.replace(temperature=0.5), (0, 1), 1)
    assert cold[2,] == pytest.approx(p[0][2] ** 2 / (p[0] ** 2).sum())
    assert list(model.law(OFF.replace(temperature=0), (0, 1), 4).values()) == [1.0]
    assert len(model.law(OFF.replace(top_k=2), (0, 1), 3)) == 8


def test_the_law_ends_texts_at_end_tokens() -> None:
    model = TableModel(seed=1, eog=(2,))
    law = model.law(OFF, (0, 1), 2)
    assert set(law) == {(), (0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1)}
    assert law[()] == pytest.approx(float(np.exp(model.logits((0, 1))[2])), rel=1e-6)
    assert sum(law.values()) == pytest.approx(1)


def test_plain_sampling_has_the_law() -> None:
    model = TableModel(seed=6, eog=(2,))
    counts = sample_outcomes(model, lambda: None, OFF, (0,), 2_000)
    assert total_variation(counts, outcome_law(model, OFF, (0,))) <= total_variation_bound(15, 2_000)
    assert total_variation(counts, outcome_law(TableModel(seed=7, eog=(2,)), OFF, (0,))) > total_variation_bound(
        15, 2_000
    )


@pytest.mark.parametrize(("outcomes", "samples", "alpha"), [(0, 1, 0.1), (1, 0, 0.1), (1, 1, 0.0), (1, 1, 1.0)])
def test_the_bound_refuses_what_has_no_meaning(outcomes: int, samples: int, alpha: float) -> None:
    with pytest.raises(BadRequestError):
        total_variation_bound(outcomes, samples, alpha)


def test_total_variation() -> None:
    assert total_variation({(0,): 3, (1,): 1}, {(0,): 0.5, (2,): 0.5}) == pytest.approx(0.5)
