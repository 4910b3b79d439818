"""Perplexity and agreement are those of a slow reading, one token at a time."""

from __future__ import annotations

import math
import random
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgespec.testing import TableModel
from edgespec.tuning.agreement import Text, agreement, reference
from edgespec.tuning.forcing import forced_rows
from edgespec.tuning.perplexity import perplexity, surprise


def some(n: int, size: int) -> list[int]:
    return [random.Random(i).randrange(size) for i in range(n)]


def law(model: TableModel, tokens: list[int]) -> list[float]:
    """The table's own probabilities after `tokens`."""
    return [math.exp(x) for x in model.logits(tokens).tolist()]


@pytest.mark.parametrize("width", [1, 3, 8, 64])
def test_rows_come_one_for_each_place(width: int) -> None:
    model, tokens = TableModel(5, max_width=width), some(21, 5)
    seen = []
    for i, rows in forced_rows(model, tokens, 4):
        for j, row in enumerate(rows):
            assert row.tolist() == model.logits(tokens[: i + j]).tolist()
            seen.append(i + j)
    assert seen == list(range(4, 21))
    assert model.score_calls == math.ceil(17 / width)
    assert model.decoded_tokens == 20  # none twice


def test_no_rollback_is_needed() -> None:
    model, tokens = TableModel(5, max_width=4, can_roll_back=False), some(30, 5)
    assert sum(len(rows) for _, rows in forced_rows(model, tokens, 1)) == 29
    assert model.decoded_tokens == 29


@pytest.mark.parametrize("width", [1, 7, 64])
def test_surprise_of_a_table(width: int) -> None:
    tokens = some(40, 5)
    model = TableModel(5, max_width=width)
    slow = [-math.log(law(model, tokens[:i])[tokens[i]]) for i in range(1, len(tokens))]
    assert surprise(model, tokens) == pytest.approx(slow, rel=1e-5)


def test_surprise_of_a_tiny_model(tiny: Any, open_context: Any) -> None:
    context = open_context(tiny("llama"))
    tokens = some(90, 500)
    slow = []
    for i in range(1, len(tokens)):
        for _, rows in forced_rows(context, tokens[: i + 1], i):
            logits = rows[0].astype(np.float64)
            slow.append(float(np.log(np.exp(logits).sum()) - logits[tokens[i]]))
    assert surprise(context, tokens) == pytest.approx(slow, abs=1e-3)


def test_perplexity_and_its_error() -> None:
    original, own = np.array([1.0, 2.0, 3.0, 2.0]), np.array([1.1, 2.1, 3.3, 2.1])
    found = perplexity(own, original)
    differences = [0.1, 0.1, 0.3, 0.1]
    mean = sum(differences) / 4
    spread = math.sqrt(sum((d - mean) ** 2 for d in differences) / 3)
    assert found.value == pytest.approx(math.exp((1.1 + 2.1 + 3.3 + 2.1) / 4))
    assert found.change == pytest.approx(math.exp(mean) - 1)
    assert found.error == pytest.approx(math.exp(mean) * spread / 2)
    same = perplexity(original, original)
    assert (same.change, same.error) == (0, 0)


def test_agreement_of_two_tables() -> None:
    target, draft = TableModel(6, seed=1, max_width=5), TableModel(6, seed=2, zeros=0.3, max_width=7)
    texts = [Text(tuple(some(30, 6)), 1), Text(tuple(some(23, 6)), 11)]
    overlap, same, places = 0.0, 0, 0
    for text in texts:
        for i in range(text.start, len(text.tokens)):
            p, q = law(target, list(text.tokens[:i])), law(draft, list(text.tokens[:i]))
            overlap += sum(map(min, p, q))
            same += p.index(max(p)) == q.index(max(q))
            places += 1
    known = reference(target, texts)
    found = agreement(draft, known)
    assert known.positions == found.positions == places == 41
    assert found.overlap == pytest.approx(overlap / places, rel=1e-5)
    assert found.top1 == pytest.approx(same / places)
    assert agreement(target, known).overlap == pytest.approx(1)
    assert agreement(target, known).top1 == 1


def test_a_smaller_vocabulary_agrees_on_what_it_has() -> None:
    target, draft = TableModel(6, seed=1), TableModel(5, seed=1)
    tokens = tuple(some(30, 5))
    expected = [
        sum(map(min, law(target, list(tokens[:i]))[:5], law(draft, list(tokens[:i])))) for i in range(1, len(tokens))
    ]
    found = agreement(draft, reference(target, [Text(tokens, 1)]))
    assert found.overlap == pytest.approx(sum(expected) / 29, rel=1e-5)


def test_the_fixed_text_is_long_enough_and_packaged() -> None:
    text = (files("edgespec.tuning") / "text.txt").read_text("utf-8")
    assert 400 < len(text.split()) < 700
    assert "```python" in text
    assert '"edgespec.tuning" = ["text.txt"]' in (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
