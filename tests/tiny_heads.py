"""Heads with random weights for tiny models: EAGLE-3 as llama.cpp's converter writes it, our own, and MTP layers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from edgespec.heads.eagle import EagleHead, EagleWeights, Shape
from edgespec.heads.medusa import Facts
from edgespec.tiny_gguf import TinyVocab, finished

Floats = NDArray[np.float32]
N_EMBD = 128
SHAPE = Shape(n_embd=N_EMBD, n_head=4, n_head_kv=2, head_dim=32, n_ff=192, rope_base=5000.0, eps=1e-5)


class Random:
    """Matrices that keep the scale of what they are given."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def matrix(self, rows: int, columns: int, gain: float = 1.0) -> Floats:
        values: Floats = self._rng.standard_normal((rows, columns), dtype=np.float32)
        return values * np.float32(gain / columns**0.5)

    def norm(self, size: int) -> Floats:
        return (1 + 0.2 * self._rng.standard_normal(size)).astype(np.float32)


def weights(
    shape: Shape = SHAPE, *, seed: int = 3, output: int | None = 64, embedding: int | None = None
) -> EagleWeights:
    """output: rows of the output matrix.  embedding: tokens of an own one."""
    r, n = Random(seed), shape.n_embd
    queries, keys = shape.n_head * shape.head_dim, shape.n_head_kv * shape.head_dim
    return EagleWeights(
        token_norm=r.norm(n),
        feature_norm=r.norm(n),
        query=r.matrix(queries, 2 * n, 1.5),
        key=r.matrix(keys, 2 * n, 1.5),
        value=r.matrix(keys, 2 * n),
        attention=r.matrix(n, queries, 1.5),
        ffn_norm=r.norm(n),
        gate=r.matrix(shape.n_ff, n),
        up=r.matrix(shape.n_ff, n),
        down=r.matrix(n, shape.n_ff, 1.5),
        output_norm=r.norm(n),
        output=None if output is None else r.matrix(output, n, 3.0),
        embedding=None if embedding is None else r.matrix(embedding, n, n**0.5),
    )


def own_head(
    ids: Sequence[int] | None = range(40, 104), *, size: int = 512, seed: int = 3, target: str = "", **options: Any
) -> EagleHead:
    """For the tiny models of `size` tokens."""
    chosen = None if ids is None else np.array(ids, np.int64)
    output = options.pop("output", size if chosen is None else len(chosen))
    facts = Facts(size, N_EMBD, target, "tiny", recipe="random", scores="")
    return EagleHead(facts, SHAPE, weights(seed=seed, output=output, **options), chosen)


def write_eagle3(
    path: Path,
    *,
    vocab: TinyVocab | None = None,
    layers: Sequence[int] = (0, 1, 1),
    target_size: int = N_EMBD,
    ids: Sequence[int] | None = range(40, 104),
    embedding: bool = False,
    norm_before_fc: bool = False,
    seed: int = 3,
    n_embd: int = N_EMBD,
    **changes: Any,
) -> Path:
    """changes: metadata, and arrays under a tensor's name, in place of what would be written; None: left out."""
    vocab = TinyVocab() if vocab is None else vocab
    shape = Shape(n_embd=n_embd, n_head=4, n_head_kv=2, head_dim=32, n_ff=192)
    w = weights(
        shape, seed=seed, output=None if ids is None else len(ids), embedding=vocab.total if embedding else None
    )
    writer = gguf.GGUFWriter(str(path), "eagle3")
    writer.add_block_count(changes.pop("block_count", 1))
    writer.add_context_length(512)
    writer.add_embedding_length(n_embd)
    writer.add_feed_forward_length(192)
    writer.add_head_count(changes.pop("head_count", 4))
    writer.add_head_count_kv(changes.pop("head_count_kv", 2))
    writer.add_key_length(32)
    writer.add_value_length(changes.pop("value_length", 32))
    writer.add_rope_dimension_count(32)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    if (named := changes.pop("target_layers", list(layers))) is not None:
        writer.add_array("eagle3.target_layers", named)
    writer.add_uint32("eagle3.target_hidden_size", target_size)
    writer.add_bool("eagle3.norm_before_residual", False)
    writer.add_bool("eagle3.norm_before_fc", norm_before_fc)
    vocab._write(writer)
    r = Random(seed + 1)
    tensors: dict[str, Any] = {
        "fc.weight": r.matrix(n_embd, 3 * target_size),
        "enc.output_norm.weight": r.norm(3 * target_size) if norm_before_fc else None,
        "token_embd.weight": w.embedding,
        "output_norm.weight": w.output_norm,
        "output.weight": w.output,
        "d2t": None if ids is None else np.array(ids, np.int64),
        "blk.0.attn_norm.weight": w.token_norm,
        "blk.0.attn_norm_2.weight": w.feature_norm,
        "blk.0.attn_q.weight": w.query,
        "blk.0.attn_k.weight": w.key,
        "blk.0.attn_v.weight": w.value,
        "blk.0.attn_output.weight": w.attention,
        "blk.0.ffn_norm.weight": w.ffn_norm,
        "blk.0.ffn_gate.weight": w.gate,
        "blk.0.ffn_up.weight": w.up,
        "blk.0.ffn_down.weight": w.down,
    } | changes
    for name, array in tensors.items():
        if array is not None:
            writer.add_tensor(name, array)
    return finished(writer, path)


def write_mtp(
    path: Path, *, vocab: TinyVocab | None = None, seed: int = 0, n_layer: int = 2, mtp: int = 1, named: bool = True
) -> Path:
    """A model of architecture hy_v3 with plain feed-forward layers and `mtp` layers for multi-token prediction.

    named: the metadata says so.
    """
    vocab, r, n = TinyVocab() if vocab is None else vocab, Random(seed), N_EMBD
    writer = gguf.GGUFWriter(str(path), "hy_v3")
    writer.add_vocab_size(vocab.total)
    writer.add_block_count(n_layer + mtp)
    writer.add_context_length(512)
    writer.add_embedding_length(n)
    writer.add_feed_forward_length(2 * n)
    writer.add_expert_feed_forward_length(2 * n)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_key_length(32)
    writer.add_value_length(32)
    writer.add_rope_dimension_count(32)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    if named:
        writer.add_uint32("hy_v3.nextn_predict_layers", mtp)
    vocab._write(writer)
    output = r.matrix(vocab.total, n, 3.0)
    ends = [vocab.id_of(text) for text in ("<|endoftext|>", "<|im_end|>")]
    output[ends] = 0
    tensors = {"token_embd.weight": r.matrix(vocab.total, n, n**0.5), "output_norm.weight": r.norm(n)}
    tensors["output.weight"] = output
    for layer in range(n_layer + mtp):
        block = f"blk.{layer}"
        tensors |= {
            f"{block}.attn_norm.weight": r.norm(n),
            f"{block}.attn_q.weight": r.matrix(n, n, 1.5),
            f"{block}.attn_k.weight": r.matrix(64, n, 1.5),
            f"{block}.attn_v.weight": r.matrix(64, n),
            f"{block}.attn_output.weight": r.matrix(n, n, 1.5),
            f"{block}.attn_q_norm.weight": r.norm(32),
            f"{block}.attn_k_norm.weight": r.norm(32),
            f"{block}.ffn_norm.weight": r.norm(n),
            f"{block}.ffn_gate.weight": r.matrix(2 * n, n),
            f"{block}.ffn_up.weight": r.matrix(2 * n, n),
            f"{block}.ffn_down.weight": r.matrix(n, 2 * n, 1.5),
        }
        if layer >= n_layer:
            tensors |= {
                f"{block}.nextn.eh_proj.weight": r.matrix(n, 2 * n),
                f"{block}.nextn.enorm.weight": r.norm(n),
                f"{block}.nextn.hnorm.weight": r.norm(n),
                f"{block}.nextn.shared_head_norm.weight": r.norm(n),
            }
    for name, array in tensors.items():
        writer.add_tensor(name, array)
    return finished(writer, path)
