"""Heads in llama.cpp, over tiny models: sampled output has the law of the target, enumerated by plain decodes.

Both the target and the head are held to three tokens by a bias, so that guesses are often right: 27 outcomes of three
tokens, all from rounds that may draft three.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgespec.distribution import Distribution
from edgespec.drafters import EagleDrafter, MtpDrafter
from edgespec.drafters.following import FollowingDrafter
from edgespec.drafting import Draft, Features
from edgespec.heads.eagle import write_eagle
from edgespec.heads.eagle_file import read_eagle
from edgespec.llama import Context, LoadSettings, Model
from edgespec.llama.following import open_eagle, open_mtp
from edgespec.llama.head import HeadContext
from edgespec.sampling import Sampler, SamplingParams
from edgespec.scoring import ScoreRequest
from edgespec.testing import sample_outcomes, total_variation, total_variation_bound
from tiny_heads import own_head, write_eagle3, write_mtp

TOKENS = (60, 61, 63)
PROMPT = (40, 41, 42, 43)
PARAMS = SamplingParams(temperature=1.5, top_k=3, top_p=1.0, min_p=0.0, logit_bias=dict.fromkeys(TOKENS, 100.0))


@pytest.fixture(scope="module", params=["eagle-3", "own", "mtp"])
def opened(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tiny: Callable[..., Path]
) -> Iterator[tuple[Context, HeadContext]]:
    folder = tmp_path_factory.mktemp("heads")
    settings: dict[str, Any] = {"n_ctx": 64, "threads": 1, "buffers": "none", "kv_type": "f32", "n_batch": 16}
    if request.param == "mtp":
        model = Model(write_mtp(folder / "mtp.gguf"), LoadSettings(mtp=True, **settings))
        context = Context(model)
        head = open_mtp(context)
    else:
        path = folder / "head.gguf"
        if request.param == "own":
            write_eagle(own_head(), path)
        else:
            write_eagle3(path)
        model = Model(tiny(), LoadSettings(**settings))
        context = Context(model)
        head = open_eagle(read_eagle(path), context)
    yield context, head
    head.close()
    context.close()
    model.close()


def law(context: Context) -> dict[tuple[int, ...], float]:
    """Of the three tokens after the first one, each row from a decode of its whole text."""
    rows: dict[tuple[int, ...], Distribution] = {}
    for n in range(4):
        for tokens in product(TOKENS, repeat=n):
            sequence = context.sequence()
            sequence.truncate(0)
            row = context.score([ScoreRequest(sequence, (*PROMPT, *tokens))])[0][0]
            rows[tokens] = Sampler(PARAMS, context.vocab.size).walk((*PROMPT, *tokens)).distribution(row)
            sequence.close()
    found: dict[tuple[int, ...], float] = {}
    for tokens in product(TOKENS, repeat=4):
        weight = 1.0
        for i, token in enumerate(tokens):
            weight *= rows[tokens[:i]].prob(token)
        found[tokens[1:]] = found.get(tokens[1:], 0.0) + weight
    return found


def distance(
    opened: tuple[Context, HeadContext], make: type[FollowingDrafter], samples: int, verify: str = "block"
) -> tuple[float, int]:
    """How far the samples are from the law, and how many drafted tokens there were."""
    context, head = opened
    drafted = 0

    class Counted(make):  # type: ignore[misc, valid-type]
        def draft(self, *arguments: Any) -> Draft:
            nonlocal drafted
            draft: Draft = super().draft(*arguments)
            drafted += len(draft.tokens)
            return draft

    counts = sample_outcomes(
        context, lambda: Counted(head, Features()), PARAMS, PROMPT, samples, verify=verify  # type: ignore[arg-type]
    )  # fmt: skip
    return total_variation(counts, law(context)), drafted


def test_output_law(opened: tuple[Context, HeadContext]) -> None:
    found, drafted = distance(opened, MtpDrafter if opened[1].name.startswith("MTP") else EagleDrafter, 400)
    assert drafted > 800
    assert found <= total_variation_bound(27, 400)


@pytest.mark.soak
@pytest.mark.parametrize("verify", ["token", "block"])
def test_output_law_in_full(opened: tuple[Context, HeadContext], verify: str) -> None:
    found, drafted = distance(opened, EagleDrafter, 20_000, verify)
    assert drafted > 40_000
    assert found <= total_variation_bound(27, 20_000)


class TakenForUnlikely(EagleDrafter):
    """What was drawn is said to have had next to no probability: then all of it is accepted."""

    def draft(self, *arguments: Any) -> Draft:
        draft = super().draft(*arguments)
        low = []
        for token, q in zip(draft.tokens, draft.proposals, strict=True):
            probs = np.where(q.ids == token, 1e-3, 1.0)
            low.append(Distribution(q.ids, probs / probs.sum()))
        return Draft(draft.tokens, tuple(low), draft.source)


def test_a_wrong_q_is_caught(opened: tuple[Context, HeadContext]) -> None:
    """At fewer samples than the law is held to above."""
    found, _ = distance(opened, TakenForUnlikely, 150, "token")
    assert found > total_variation_bound(27, 150)
