"""A tiny model of random weights that reads in both directions: it makes embeddings and cannot generate."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgespec.tiny_gguf import TinyVocab, finished

_LAYERS, _WIDTH, _HEADS, _INNER, _CONTEXT = 2, 64, 2, 128, 128


def write_bert(path: Path) -> Path:
    """Tensor names: llama.cpp, src/llama-arch.cpp."""
    import gguf

    vocab, rng = TinyVocab(), np.random.default_rng(7)
    writer = gguf.GGUFWriter(str(path), "bert")
    writer.add_name("tiny bert")
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_vocab_size(vocab.total)
    writer.add_block_count(_LAYERS)
    writer.add_context_length(_CONTEXT)
    writer.add_embedding_length(_WIDTH)
    writer.add_feed_forward_length(_INNER)
    writer.add_head_count(_HEADS)
    writer.add_layer_norm_eps(1e-6)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_token_type_count(2)
    vocab._write(writer)

    def matrix(name: str, rows: int, cols: int) -> None:
        writer.add_tensor(f"{name}.weight", rng.normal(0, cols**-0.5, (rows, cols)).astype(np.float32))

    def linear(name: str, rows: int, cols: int) -> None:
        matrix(name, rows, cols)
        writer.add_tensor(f"{name}.bias", rng.normal(0, 0.1, rows).astype(np.float32))

    def norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(_WIDTH, np.float32))
        writer.add_tensor(f"{name}.bias", np.zeros(_WIDTH, np.float32))

    matrix("token_embd", vocab.total, _WIDTH)
    matrix("position_embd", _CONTEXT, _WIDTH)
    matrix("token_types", 2, _WIDTH)
    norm("token_embd_norm")
    for layer in range(_LAYERS):
        block = f"blk.{layer}"
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            linear(f"{block}.{part}", _WIDTH, _WIDTH)
        norm(f"{block}.attn_output_norm")
        linear(f"{block}.ffn_up", _INNER, _WIDTH)
        linear(f"{block}.ffn_down", _WIDTH, _INNER)
        norm(f"{block}.layer_output_norm")
    return finished(writer, path)
