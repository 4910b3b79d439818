"""What one request learns, the next begins with: weakly, and from disk where it was saved."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgespec.acceptance import Acceptance
from edgespec.drafters import Knowledge
from edgespec.drafters.knowledge import circumstance

PRIORS = {"model": lambda _: 0.5, "suffix": lambda feature: feature / 20}

# Forty tokens were accepted where half was expected. Three of them are recalled, beside a prior that weighs eight,
# and the prior is scaled by what those three say of it.
RECALLED = (3 + 8 * 0.5 * (3 + 8) / (1.5 + 8)) / (3 + 8)


def taught(knowledge: Knowledge, value: float, where: str = "greedy") -> None:
    seen = knowledge.recall(where, PRIORS)
    for _ in range(40):
        seen["model"].observe(0, value)
    knowledge.learn(where, seen)


def test_a_request_begins_with_what_the_one_before_saw() -> None:
    knowledge = Knowledge()
    assert knowledge.recall("greedy", PRIORS)["model"](0) == 0.5
    taught(knowledge, 1.0)
    assert knowledge.recall("greedy", PRIORS)["model"](0) == pytest.approx(RECALLED)
    assert knowledge.recall("sampled 1", PRIORS)["model"](0) == 0.5  # another circumstance


def test_what_is_recalled_gives_way_to_what_is_seen() -> None:
    knowledge = Knowledge()
    taught(knowledge, 1.0)
    acceptance = knowledge.recall("greedy", PRIORS)["model"]
    assert acceptance.seen == 3.0  # of forty
    for _ in range(12):
        acceptance.observe(0, 0.0)
    assert acceptance(0) < 0.4


def test_knowledge_is_kept_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "acceptance" / "pair.json"
    first = Knowledge(path)
    taught(first, 1.0)
    first.save()
    assert Knowledge(path).recall("greedy", PRIORS)["model"](0) == first.recall("greedy", PRIORS)["model"](0)
    assert [p.name for p in path.parent.iterdir()] == ["pair.json"]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", '{"greedy": 3}', '{"greedy": {"model": [[0, 1]]}}', '{"greedy": {"model": [[0, 5, 2]]}}',
     '{"greedy": {"model": [[0, NaN, NaN]]}}', '{"greedy": {"model": [["x", 1, 2]]}}'],
)  # fmt: skip
def test_a_damaged_file_is_no_knowledge(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pair.json"
    path.write_text(text)
    assert Knowledge(path).recall("greedy", PRIORS)["model"](0) == 0.5


def test_a_folder_that_cannot_be_written_costs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    knowledge = Knowledge(tmp_path / "file" / "pair.json")
    taught(knowledge, 1.0)
    knowledge.save()
    assert knowledge.recall("greedy", PRIORS)["model"](0) == pytest.approx(RECALLED)


def test_circumstances_are_rule_and_temperature() -> None:
    names = [circumstance(t, seed_exact=s) for t in (0.0, 0.8, 0.7, 1.0) for s in (False, True)]
    assert names == [
        "greedy", "greedy", "sampled 0.75", "seed 0.75", "sampled 0.75", "seed 0.75", "sampled 1", "seed 1",
    ]  # fmt: skip


def test_recall_keeps_the_scale_of_priors() -> None:
    """A source that does half as well as expected is expected to, at features that were not seen, too."""
    acceptance = Acceptance(PRIORS["suffix"])
    acceptance.recall([(10, 2.0, 8.0)], most=8.0)
    assert acceptance(18) == pytest.approx(0.9 * (2 + 8) / (4 + 8))
