"""The head's file and llama.cpp's graph of it: the same numbers as plain numpy, and what a cut cache gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from eagle_reference import forward
from edgespec.errors import BadRequestError
from edgespec.heads.eagle import EagleHead, in_eight_bits, write_eagle
from edgespec.heads.eagle_file import read_eagle
from edgespec.llama.following import open_eagle
from edgespec.llama.quantize import requantize
from tiny_heads import SHAPE, own_head, weights

Tiny = Callable[..., Path]
Open = Callable[..., Any]


def matrix(path: Path, name: str) -> Any:
    tensor = next(t for t in gguf.GGUFReader(path).tensors if t.name == name)
    return np.array(tensor.data, dtype=np.float32)


def pairs(n: int, seed: int = 1) -> tuple[list[int], Any]:
    rng = np.random.default_rng(seed)
    return rng.integers(3, 500, n).tolist(), rng.standard_normal((n, 128), dtype=np.float32)


HEADS = {
    "reduced": own_head(),
    "whole vocabulary": own_head(None),
    "the target's output": own_head(None, output=None),
    "own embedding": own_head(embedding=512),
    "norm before residual": replace(own_head(), shape=replace(own_head().shape, norm_before_residual=True)),
}


@pytest.mark.parametrize("kind", HEADS)
def test_the_graph_computes_what_numpy_does(tiny: Tiny, open_context: Open, tmp_path: Path, kind: str) -> None:
    """Pair by pair, in one decode of few pairs and in chunks of many."""
    head: EagleHead = HEADS[kind]
    write_eagle(head, tmp_path / "head.gguf", matrices="f32")
    context = open_eagle(read_eagle(tmp_path / "head.gguf"), open_context(tiny()))
    try:
        tokens, features = pairs(150)
        embedding = matrix(tiny(), "token_embd.weight") if head.weights.embedding is None else head.weights.embedding
        logits, own = forward(head, embedding[tokens], features, matrix(tiny(), "output.weight"))
        ids = np.arange(512) if head.ids is None else head.ids
        for sizes in ((150,), (1,) * 9, (5, 16, 17, 20)):
            share, first = context.open(), 0
            assert share is not None
            for size in sizes:
                end = first + size
                row, feature = share.feed(first, tokens[first:end], features[first:end])
                assert np.allclose(row[ids], logits[end - 1], atol=2e-3)
                assert np.allclose(feature, own[end - 1], atol=2e-3)
                assert np.isneginf(np.delete(row, ids)).all()
                first = end
            share.close()
    finally:
        context.close()


def test_a_cut_cache_is_that_of_the_shorter_text(tiny: Tiny, open_context: Open, tmp_path: Path) -> None:
    """And a cache may begin at any pair; shares do not see each other."""
    write_eagle(HEADS["reduced"], tmp_path / "head.gguf", matrices="f32")
    context = open_eagle(read_eagle(tmp_path / "head.gguf"), open_context(tiny(), sequences=2))
    try:
        tokens, features = pairs(20)
        one, other = context.open(), context.open()
        assert one is not None
        assert other is not None
        assert context.open() is None
        expected = one.feed(0, tokens[:11], features[:11])[0].copy()
        other.feed(0, tokens[::-1], features[::-1])
        one.cut(0)
        one.feed(0, tokens[:10], features[:10])
        one.feed(10, tokens[:5], features[5:10])
        one.cut(10)
        assert np.allclose(one.feed(10, tokens[10:11], features[10:11])[0], expected, atol=1e-4)
        one.cut(0)
        one.feed(40, tokens[:10], features[:10])
        later = one.feed(50, tokens[10:11], features[10:11])[0]
        assert np.allclose(later, expected, atol=1e-3)  # positions are relative
        other.close()
        other.close()
        assert context.open() is not None
    finally:
        context.close()


def test_a_head_is_quantized_like_any_model(tiny: Tiny, open_context: Open, tmp_path: Path) -> None:
    write_eagle(HEADS["reduced"], tmp_path / "head.gguf")
    requantize(tmp_path / "head.gguf", tmp_path / "small.gguf", "q8_0")
    found = read_eagle(tmp_path / "small.gguf")
    assert found.own
    assert found.vocabulary == 64
    assert "Q8_0" in {usage.type for usage in found.header.quantization}
    context = open_eagle(found, open_context(tiny()))
    try:
        share, (tokens, features) = context.open(), pairs(6)
        assert share is not None
        row = share.feed(0, tokens, features)[0]
        embedding = matrix(tiny(), "token_embd.weight")
        logits, _ = forward(HEADS["reduced"], embedding[tokens], features)
        assert np.abs(row[HEADS["reduced"].ids] - logits[-1]).max() < 0.5
    finally:
        context.close()


def test_a_head_may_be_written_in_eight_bits(tmp_path: Path) -> None:
    """Each matrix whose rows are whole blocks; a training knows what is read back."""
    shape = replace(SHAPE, n_ff=200)
    head = replace(HEADS["reduced"], shape=shape, weights=weights(shape))
    write_eagle(head, tmp_path / "head.gguf", matrices="q8_0")
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "head.gguf").tensors}
    types = {name: tensor.tensor_type.name for name, tensor in tensors.items()}
    assert (types["blk.0.attn_q.weight"], types["blk.0.ffn_down.weight"]) == ("Q8_0", "F16")
    assert {types[f"{norm}.weight"] for norm in ("blk.0.attn_norm", "output_norm")} == {"F32"}
    kept, output = tensors["output.weight"], head.weights.output
    assert output is not None
    read = gguf.quants.dequantize(np.array(kept.data), kept.tensor_type)
    assert np.array_equal(read, in_eight_bits(output))
    assert np.array_equal(in_eight_bits(read), read)
    assert np.allclose(read, output, atol=0.01 * float(np.abs(output).max()))
    assert read_eagle(tmp_path / "head.gguf").own


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ids": np.array([0, 0, 2])}, "ascending, each once"),
        ({"ids": np.array([0, 512])}, "ids from 0 to 511"),
        ({"shape": replace(HEADS["reduced"].shape, n_head_kv=3)}, "must divide"),
        ({"shape": replace(HEADS["reduced"].shape, head_dim=16)}, r"query has shape \(128, 256\)"),
        ({"shape": replace(HEADS["reduced"].shape, n_embd=64)}, "64 numbers and the target's states 128"),
        ({"weights": replace(HEADS["reduced"].weights, output=None)}, "needs an output matrix"),
        ({"weights": replace(HEADS["reduced"].weights, down=np.zeros((128, 192)))}, "float64"),
        ({"weights": replace(HEADS["reduced"].weights, ffn_norm=np.full(128, np.nan, np.float32))}, "not finite"),
    ],
)
def test_parts_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequestError, match=message):
        replace(HEADS["reduced"], **change)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    w = HEADS["reduced"].weights
    with pytest.raises(BadRequestError, match="too large for float16"):
        write_eagle(replace(HEADS["reduced"], weights=replace(w, gate=w.gate * 1e6)), tmp_path / "a.gguf")
    assert not list(tmp_path.iterdir())
