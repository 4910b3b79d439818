"""The loop over tiny llama.cpp models: what ends a text, and requests that never begin."""

from __future__ import annotations

from typing import Any

import pytest
from tiny_generations import DRAFTERS, REPETITIVE, Open, Tiny, run

from edgespec.drafters import ModelDrafter
from edgespec.errors import BadRequestError, ContextFullError
from edgespec.sampling import SamplingParams


@pytest.mark.parametrize("k", [0, 3])
@pytest.mark.parametrize("n_prompt", [1, 40, 63])
def test_a_full_context_ends_the_text(tiny: Tiny, open_context: Open, n_prompt: int, k: int) -> None:
    context, draft = open_context(tiny(), n_ctx=64), open_context(tiny(), n_ctx=64)
    done = run(context, ModelDrafter(draft), prompt=REPETITIVE[:1] * n_prompt, max_tokens=None, draft_max=k)
    assert done.finish_reason == "length"
    assert len(done.tokens) == 64


@pytest.mark.parametrize("n_prompt", [64, 65, 500])
def test_a_prompt_that_does_not_fit(tiny: Tiny, open_context: Open, n_prompt: int) -> None:
    context = open_context(tiny(), n_ctx=64)
    with pytest.raises(ContextFullError, match=rf"{n_prompt}.*64") as caught:
        run(context, prompt=(5,) * n_prompt)
    assert caught.value.needed >= n_prompt
    assert caught.value.available <= 64


@pytest.mark.parametrize("n", [1, 2, 5, 30])
@pytest.mark.parametrize("name", ["none", *DRAFTERS])
def test_max_tokens(tiny: Tiny, open_context: Open, name: str, n: int) -> None:
    context, draft = open_context(tiny()), open_context(tiny())
    drafter = DRAFTERS[name](draft) if name != "none" else None
    done = run(context, drafter, prompt=REPETITIVE, max_tokens=n, draft_max=7)
    assert (len(done.completion), done.finish_reason, done.stats.completion_tokens) == (n, "length", n)


def test_stop_strings(tiny: Tiny, open_context: Open) -> None:
    """Taken from the middle of the text, across tokens; nothing of them is shown, with drafts or without."""
    context, draft = open_context(tiny()), open_context(tiny())
    whole = run(context, max_tokens=60).text
    for start in (3, 10, 21):
        stop = whole[start : start + 4]
        for drafter in (None, ModelDrafter(draft)):
            done = run(context, drafter, max_tokens=60, stop=("never this", stop), draft_max=5)
            assert (done.text, done.finish_reason) == (whole[: whole.index(stop)], "stop")


def test_the_text_ends_at_an_end_token(tiny: Tiny, open_context: Open) -> None:
    """The vocabulary's end tokens are made likely by a bias; none is part of the text or of the tokens."""
    context, draft = open_context(tiny()), open_context(tiny())
    ends = [t for t in range(context.vocab.size) if context.vocab.is_eog(t)]
    params = SamplingParams(temperature=1, seed=5, logit_bias=dict.fromkeys(ends, 7.0))
    lengths = set()
    for seed in range(12):
        done = run(context, ModelDrafter(draft), params=params.replace(seed=seed), max_tokens=60, draft_max=5)
        assert done.finish_reason == "stop"
        assert not set(done.completion) & set(ends)
        assert done.stats.completion_tokens == len(done.completion)
        lengths.add(len(done.completion))
    assert len(lengths) > 3


@pytest.mark.parametrize(
    "options",
    [
        {"prompt": ()},
        {"max_tokens": 0},
        {"max_tokens": True},
        {"max_tokens": 2.5},
        {"draft_max": -1},
        {"draft_max": None},
        {"verify": "typical"},
        {"stop": "abc"},
        {"stop": ("",)},
        {"prompt": (5, 512)},
        {"prompt": (-1,)},
        {"params": SamplingParams(logit_bias={512: 1.0})},
    ],
)
def test_bad_requests(tiny: Tiny, open_context: Open, options: dict[str, Any]) -> None:
    context = open_context(tiny())
    with pytest.raises(BadRequestError) as caught:
        run(context, **options)
    assert "\n" not in str(caught.value)
    assert run(context, max_tokens=2).finish_reason == "length"
