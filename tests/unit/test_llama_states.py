"""Hidden states in the same decode as the logits: on every architecture, for the rows asked for, free where off."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgespec.errors import BadRequestError, DecodeError
from edgespec.scoring import ScoreRequest
from edgespec.tiny_gguf import ARCHS

Tiny = Callable[..., Path]
Open = Callable[..., Any]
STATED = [a for a in ARCHS if a != "lfm2"]


def text(n: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(3, 500, n).tolist()  # type: ignore[no-any-return]


def output_matrix(path: Path) -> np.ndarray[Any, Any]:
    """The output matrix of a tiny llama file in float32, shape (vocab, n_embd)."""
    import gguf

    tensor = next(t for t in gguf.GGUFReader(path).tensors if t.name == "output.weight")
    return np.array(tensor.data, dtype=np.float32)


@pytest.mark.parametrize("arch", STATED)
def test_logits_are_the_same_with_and_without_states(tiny: Tiny, open_context: Open, arch: str) -> None:
    """With a prompt longer than a chunk, and rounds that roll back."""
    plain, stated = (open_context(tiny(arch), n_batch=16, max_width=8) for _ in range(2))
    prompt, drafted = text(41), (7, 8, 9)
    opened = plain.sequence(), stated.sequence()
    for tokens in (prompt, [*prompt, 7, 20], [*prompt, 7, 20, 30, 31, 32, 33]):
        plain.sync(opened[0], tokens[:-1])  # states need a decode of their own rows, so that both do the same sums
        expected = plain.score([ScoreRequest(opened[0], tokens, drafted)])[0].copy()
        got = stated.score([ScoreRequest(opened[1], tokens, drafted, states=True)])[0]
        assert np.array_equal(got, expected)
        assert stated.states(opened[1]).shape == (4, stated.state_size)
        for context, sequence in zip((plain, stated), opened, strict=True):
            context.truncate(sequence, len(tokens) + 1)


def test_the_output_matrix_makes_the_logits_of_the_states(tiny: Tiny, open_context: Open) -> None:
    context, matrix = open_context(tiny()), output_matrix(tiny())
    sequence, prompt = context.sequence(), text(20)
    rows = context.score([ScoreRequest(sequence, prompt, (5, 6), states=True)])[0]
    assert np.allclose(context.states(sequence) @ matrix.T, rows, atol=1e-3)


@pytest.mark.parametrize("arch", STATED)
def test_each_sequence_of_a_decode_has_its_own_states(tiny: Tiny, open_context: Open, arch: str) -> None:
    context, alone = open_context(tiny(arch)), open_context(tiny(arch))
    texts, drafts = [text(n, n) for n in (2, 17, 30)], [(), (5, 6, 7), (8,)]
    opened = [context.sequence() for _ in texts]
    context.score(
        [ScoreRequest(s, t, d, states=i != 1) for i, (s, t, d) in enumerate(zip(opened, texts, drafts, strict=True))]
    )
    for i in (0, 2):
        got = context.states(opened[i]).copy()
        sequence = alone.sequence()
        alone.score([ScoreRequest(sequence, texts[i], drafts[i], states=True)])
        assert np.allclose(got, alone.states(sequence), atol=1e-3)
        sequence.close()
    with pytest.raises(BadRequestError, match="no hidden states were asked for"):
        context.states(opened[1])


def test_states_survive_padding_and_are_those_of_the_real_rows(tiny: Tiny, open_context: Open) -> None:
    context, plain = open_context(tiny()), open_context(tiny())
    context.model.padding = {2: 4}
    sequences = context.sequence(), plain.sequence()
    prompt = text(12)
    for model, sequence in zip((context, plain), sequences, strict=True):
        model.score([ScoreRequest(sequence, prompt, (9,), states=True)])
    assert context.states(sequences[0]).shape == (2, context.state_size)
    assert np.allclose(context.states(sequences[0]), plain.states(sequences[1]), atol=1e-3)


def test_off_nothing_is_switched_on_and_nothing_is_there(
    tiny: Tiny, open_context: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = open_context(tiny())
    switched: list[bool] = []
    set_embeddings = context._lib.llama_set_embeddings
    monkeypatch.setattr(
        context._lib, "llama_set_embeddings", lambda handle, on: (switched.append(on), set_embeddings(handle, on))
    )
    sequence, prompt = context.sequence(), text(30)
    for drafted in ((), (5, 6)):
        context.score([ScoreRequest(sequence, prompt, drafted)])
    assert switched == []
    with pytest.raises(BadRequestError, match="no hidden states"):
        context.states(sequence)
    context.score([ScoreRequest(sequence, prompt, (), states=True)])
    context.score([ScoreRequest(sequence, prompt, (), states=True)])
    assert switched == [True]
    context.score([ScoreRequest(sequence, prompt)])
    assert switched == [True, False]
    with pytest.raises(BadRequestError, match="no hidden states"):
        context.states(sequence)


def test_a_long_prompt_is_read_in_whole_chunks_without_states(tiny: Tiny, open_context: Open) -> None:
    """With states every token is an output: a chunk of more than max_width of them would end the process."""
    context = open_context(tiny(), n_ctx=256, n_batch=64, max_width=4, sequences=2)
    first, second = context.sequence(), context.sequence()
    context.score([ScoreRequest(first, text(50), (5,), states=True)])
    # One goes on with states while the other's prompt is still to be read.
    context.score([ScoreRequest(first, [*text(50), 5], (6,), states=True), ScoreRequest(second, text(150, 1))])
    assert len(first.cached) == 52
    assert len(second.cached) == 150
    assert np.isfinite(context.states(first)).all()


def test_states_of_a_closed_model_or_sequence_are_an_error(tiny: Tiny, open_context: Open) -> None:
    context = open_context(tiny())
    sequence = context.sequence()
    context.score([ScoreRequest(sequence, text(5), (), states=True)])
    sequence.close()
    with pytest.raises(DecodeError, match="holds no cache"):
        context.states(sequence)
    context.close()
    with pytest.raises(DecodeError, match="closed"):
        context.states(context.sequence())


def test_an_architecture_that_leaves_out_its_logits_is_refused(tiny: Tiny, open_context: Open) -> None:
    """The rows would be what an earlier decode left there."""
    context = open_context(tiny("lfm2"))
    sequence, prompt = context.sequence(), text(9)
    before = context.score([ScoreRequest(sequence, prompt)])[0].copy()
    assert not context.gives_states
    with pytest.raises(BadRequestError, match="its hidden states or its logits, not both"):
        context.score([ScoreRequest(sequence, prompt, (), states=True)])
    assert np.allclose(context.score([ScoreRequest(sequence, prompt)])[0], before, atol=1e-3)


def test_trying_for_states_changes_nothing_for_a_conversation(tiny: Tiny, open_context: Open) -> None:
    context = open_context(tiny(), sequences=1)
    sequence, prompt = context.sequence(), text(20)
    before = context.score([ScoreRequest(sequence, prompt, (5,))])[0].copy()
    assert context.gives_states
    assert np.allclose(context.score([ScoreRequest(sequence, prompt, (5,))])[0], before, atol=1e-3)


def test_a_file_that_pools_gives_states_of_rows(tiny: Tiny, open_context: Open) -> None:
    pooled, plain = open_context(tiny(pooling="last")), open_context(tiny())
    found = []
    for context in (pooled, plain):
        sequence = context.sequence()
        context.score([ScoreRequest(sequence, text(9), (5, 6), states=True)])
        found.append(context.states(sequence).copy())
    assert np.array_equal(*found)
