"""Heads compute in one thread: others of numpy's would take the cores from llama.cpp long after a guess."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import threadpoolctl

from edgespec.drafters.medusa import MedusaDrafter
from edgespec.drafting import LatestState
from edgespec.heads.medusa import MedusaHeads, fastest_ms
from edgespec.sampling import Sampler, SamplingParams
from table_heads import random_heads


def threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    """As on a machine with several cores, whatever this one has."""
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        if threads() != {2}:
            pytest.skip("this numpy has no threads to limit")
        yield


def test_a_draft_is_made_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[set[int]] = []
    logits = MedusaHeads.logits

    def noted(self: MedusaHeads, *given: object) -> object:
        seen.append(threads())
        return logits(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(MedusaHeads, "logits", noted)
    heads = random_heads()
    states = LatestState()
    states.put(2, np.ones(heads.facts.n_embd, np.float32))
    sampler = Sampler(SamplingParams(temperature=0.0), heads.facts.vocab_size, None)
    assert MedusaDrafter(heads, states).draft((0, 1, 2), 2, sampler, np.random.default_rng(0)).tokens
    assert seen
    assert all(found == {1} for found in seen)
    assert threads() == {2}


def test_its_time_is_measured_in_one_thread() -> None:
    seen: list[set[int]] = []
    fastest_ms(lambda: seen.append(threads()))
    assert seen
    assert all(found == {1} for found in seen)
    assert threads() == {2}
