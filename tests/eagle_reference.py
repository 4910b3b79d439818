"""The layer of an EAGLE head in plain numpy, float32: what the graph in llama.cpp is compared with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgespec.heads.eagle import EagleHead, Shape

Floats = NDArray[np.float32]


def forward(
    head: EagleHead, embeddings: Floats, features: Floats, output: Floats | None = None
) -> tuple[Floats, Floats]:
    """(logits, features) of all pairs. embeddings, features: (n, n_embd), of pairs 0 to n - 1 in this order.

    output: the target's output matrix, where the head has none. Logits are over the head's own vocabulary.
    """
    s, w = head.shape, head.weights
    normed = _norm(features, w.feature_norm, s.eps)
    both = np.concatenate([_norm(embeddings, w.token_norm, s.eps), normed], axis=1)
    attended = _attention(both @ w.query.T, both @ w.key.T, both @ w.value.T, s) @ w.attention.T
    h = attended + (normed if s.norm_before_residual else features)
    inner = _norm(h, w.ffn_norm, s.eps)
    gate = inner @ w.gate.T
    h = h + (gate / (1 + np.exp(-gate)) * (inner @ w.up.T)) @ w.down.T
    matrix = w.output if w.output is not None else output
    assert matrix is not None
    return _norm(h, w.output_norm, s.eps) @ matrix.T, h


def _norm(x: Floats, weight: Floats, eps: float) -> Floats:
    normed: Floats = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + np.float32(eps)) * weight
    return normed


def _attention(query: Floats, key: Floats, value: Floats, s: Shape) -> Floats:
    n = len(query)
    q = _rotated(query.reshape(n, s.n_head, s.head_dim), s.rope_base)
    k = _rotated(key.reshape(n, s.n_head_kv, s.head_dim), s.rope_base)
    v = value.reshape(n, s.n_head_kv, s.head_dim)
    out = np.empty_like(q)
    unseen = np.triu(np.full((n, n), -np.inf, np.float32), 1)
    for head in range(s.n_head):
        shared = head * s.n_head_kv // s.n_head  # key head that this one uses
        scores = q[:, head] @ k[:, shared].T / np.float32(s.head_dim**0.5) + unseen
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        out[:, head] = scores / scores.sum(axis=1, keepdims=True) @ v[:, shared]
    return out.reshape(n, -1)


def _rotated(x: Floats, base: float) -> Floats:
    """Rotary positions over neighbouring pairs of numbers: (2i, 2i + 1)."""
    n, _, size = x.shape
    angles = np.arange(n)[:, None] * base ** (-np.arange(0, size, 2) / size)
    cos, sin = np.cos(angles).astype(np.float32)[:, None], np.sin(angles).astype(np.float32)[:, None]
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = np.empty_like(x)
    turned[..., 0::2], turned[..., 1::2] = even * cos - odd * sin, even * sin + odd * cos
    return turned
