"""`edgespec pair` on real models: which may draft for which, by their headers, and how much the pair gains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from edgespec.cli import pair
from model_places import make_places

pytestmark = pytest.mark.real

LARGE, SMALL, STARTER, GEMMA = "qwen_target", "qwen_draft", "starter", "gemma"
KIND = {LARGE: "bpe", SMALL: "bpe", STARTER: "bpe", GEMMA: "spm"}
# Of the first token that is compared.
TOKEN_5 = {LARGE: "'&'", SMALL: "'&'", STARTER: "'<file_sep>'", GEMMA: "'[multimodal]'"}


@pytest.fixture
def here(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with these four models, of which nothing has been measured yet."""
    files = {name: request.getfixturevalue(name) for name in KIND}  # found in the usual home
    places = make_places(tmp_path)
    for name, value in places.env.items():
        monkeypatch.setenv(name, value)
    for name, path in files.items():
        (places.own / f"{name}.gguf").symlink_to(path)
    return places.own


def drafts_for(target: Path, *options: str) -> dict[str, dict[str, Any]]:
    done = CliRunner().invoke(pair.pair, [str(target), *options, "--json"], catch_exceptions=False)
    return {Path(item["path"]).stem: item for item in json.loads(done.stdout) if item["path"]}


@pytest.mark.parametrize("target", KIND)
def test_the_four_are_explained_against_each_other(here: Path, target: str) -> None:
    found = drafts_for(here / f"{target}.gguf")
    assert set(found) == set(KIND) - {target}
    for name, item in found.items():
        alike = {target, name} == {LARGE, SMALL}
        assert item["compatible"] is alike
        words = f"token 5 is {TOKEN_5[target]} in the target and {TOKEN_5[name]} in the draft"
        if KIND[target] != KIND[name]:
            words = f"the tokenizers differ: target {KIND[target]}, draft {KIND[name]}; {words}"
        assert item["reason"] == (None if alike else words)
        assert not item["best"]  # sizes alone promise less than a twentieth for every one of them


@pytest.mark.soak
def test_the_pair_measured(here: Path, record: Any) -> None:
    found = drafts_for(here / f"{LARGE}.gguf", "--measure", "-q")[SMALL]
    names = ("measured_speedup", "predicted_speedup", "cost_ratio", "memory_mb")
    record(**{name: found[name] for name in names})
    assert found["best"] is (found["measured_speedup"] >= 1.03)
