"""SamplingParams accepts what it documents, and refuses the rest by name."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest

from edgespec.errors import BadRequestError
from edgespec.sampling import Sampler, SamplingParams

NAN, INF = math.nan, math.inf

BAD = {
    "temperature": [NAN, INF, -INF, -0.1, -1, True, "0.8", None, 10**400, 1j, [0.5]],
    "top_k": [-1, 2**31, True, 1.0, 40.5, NAN, "40", None],
    "top_p": [0, 0.0, -0.1, 1.01, NAN, INF, False, "1", None],
    "min_p": [-0.01, 1.01, NAN, INF, True, "0", None],
    "typical": [0, -1, 1.5, NAN, True, "1", None],
    "repeat_penalty": [0, -1, 0.001, 101, NAN, INF, True, "1", None],
    "frequency_penalty": [NAN, INF, -INF, 101, -101, True, "0", None],
    "presence_penalty": [NAN, INF, -INF, 101, -101, True, "0", None],
    "penalty_last_n": [-2, 2**31, 1.5, True, "64", None],
    "seed": [-1, 2**64, 1.0, True, "7", NAN],
    "logit_bias": [
        5,
        None,
        "5=1",
        {5: NAN},
        {5: INF},
        {5: 1e10},
        {5: "1"},
        {5: True},
        {5: None},
        {"5": 1.0},
        {-1: 1.0},
        {True: 1.0},
        {2.0: 1.0},
        {2**31: 1.0},
        [5],
        [(5, 1.0, 2.0)],
        ["51"],
        ((5, 1.0), (5, 2.0)),
    ],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_a_bad_value_is_refused_by_name_in_one_line(name, value):
    with pytest.raises(BadRequestError, match=name) as caught:
        SamplingParams(**{name: value})
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


def test_every_field_has_bad_values_in_this_test():
    assert set(BAD) == {field.name for field in dataclasses.fields(SamplingParams)}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 0),
        ("temperature", 1e-6),
        ("temperature", 1e6),
        ("temperature", Fraction(1, 2)),
        ("temperature", np.float32(0.5)),
        ("top_k", 0),
        ("top_k", 10**6),
        ("top_k", np.int64(7)),
        ("top_p", 1),
        ("top_p", 1e-9),
        ("min_p", 0),
        ("min_p", 1),
        ("typical", 1e-3),
        ("repeat_penalty", 0.5),
        ("frequency_penalty", -2),
        ("presence_penalty", 2),
        ("penalty_last_n", -1),
        ("penalty_last_n", 0),
        ("seed", None),
        ("seed", 0),
        ("seed", 2**64 - 1),
    ],
)
def test_a_good_value_is_kept_as_a_plain_number(name, value):
    stored = getattr(SamplingParams(**{name: value}), name)
    assert stored == value
    assert value is None or type(stored) in (int, float)


def test_a_long_bad_value_is_cut_short():
    with pytest.raises(BadRequestError) as caught:
        SamplingParams(temperature="\n" * 5 + "x" * 5000)
    assert len(str(caught.value)) < 200
    assert "\n" not in str(caught.value)


def test_logit_bias_is_stored_as_ascending_pairs_whatever_it_came_as():
    expected = ((2, -1.5), (7, -INF), (9, 3.0))
    assert SamplingParams(logit_bias={9: 3, 2: -1.5, 7: -INF}).logit_bias == expected
    assert SamplingParams(logit_bias=((9, 3), (7, -INF), (2, -1.5))).logit_bias == expected
    assert SamplingParams(logit_bias=[[np.int64(9), np.float32(3)], [7, -INF], [2, -1.5]]).logit_bias == expected
    assert SamplingParams(logit_bias={}).logit_bias == ()
    assert hash(SamplingParams(logit_bias={9: 3.0})) == hash(SamplingParams(logit_bias=((9, 3.0),)))


def test_replace_checks_again_and_names_unknown_fields():
    params = SamplingParams(top_k=3, logit_bias={4: 1.0})
    assert params.replace(temperature=0) == SamplingParams(temperature=0, top_k=3, logit_bias={4: 1.0})
    with pytest.raises(BadRequestError, match="top_p"):
        params.replace(top_p=2)
    with pytest.raises(BadRequestError, match=r"topk.*top_k"):
        params.replace(topk=3)


def test_fields_cannot_change_after_the_check():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SamplingParams().top_k = -1


def test_a_bias_outside_the_vocabulary_is_refused_when_the_vocabulary_is_known():
    Sampler(SamplingParams(logit_bias={9: 1.0}), vocab_size=10)
    with pytest.raises(BadRequestError, match=r"token 10; .* 9"):
        Sampler(SamplingParams(logit_bias={10: 1.0}), vocab_size=10)


@pytest.mark.parametrize("temperature", [NAN, -1.0, INF, True, "1"])
def test_the_draft_temperature_of_a_walk_is_checked_too(temperature):
    with pytest.raises(BadRequestError, match="temperature"):
        Sampler(SamplingParams(), vocab_size=4).walk([], temperature)
