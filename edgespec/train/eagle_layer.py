"""The layer of an EAGLE head over many positions at once, forwards and backwards, and through steps of its own.

heads/eagle.py says what the layer is; llama.cpp runs it. In a training, what norms multiply by is a fixed number times
a weight that begins at 1, and what attention and feed-forward layer add is in units of each number of a state: so one
rate suits all weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..heads.eagle import EagleWeights, Shape
from .attention import Attended, Rotation, Span, attend, attend_back
from .network import Floats, Params


@dataclass(frozen=True, slots=True)
class Frame:
    """What is not learned. unit, feature, inner, output: (n,) float32: how far numbers of a state vary, and what the
    norms of the feature, before the feed-forward layer and before the output multiply by at first.
    """

    shape: Shape
    unit: Floats
    feature: Floats
    inner: Floats
    output: Floats


@dataclass(frozen=True, slots=True)
class Passed:
    """What a step made, and what its gradients need. h: (N, n), the next feature.  made: (N, n), logits are of it."""

    token: Floats
    feature: Floats
    root: Floats
    given: Floats
    query: Floats
    key: Floats
    value: Floats
    rotation: Rotation
    attended: Attended
    middle: Floats
    middle_root: Floats
    inner: Floats
    gate: Floats
    up: Floats
    sigmoid: Floats
    h: Floats
    h_root: Floats
    made: Floats


def root_of(x: Floats, eps: float) -> Floats:
    """(N, 1): what an RMS norm multiplies by."""
    found: Floats = 1 / np.sqrt(np.square(x).mean(axis=1, keepdims=True) + np.float32(eps))
    return found


def step(
    params: Params,
    frame: Frame,
    token: Floats,
    feature: Floats,
    rotation: Rotation,
    spans: Sequence[Span],
    earlier: Sequence[Passed],
) -> Passed:
    """One step of every draft. token: (N, n), normed embeddings.  feature: (N, n).  earlier: the steps before it."""
    s = frame.shape
    root = root_of(feature, s.eps)
    given = np.concatenate(
        (token * params["token_norm"], feature * root * (frame.feature * params["feature_norm"])), axis=1
    )
    wide = (given @ params["qkv"].T).reshape(len(given), 3, s.n_head, s.head_dim)
    query, key, value = rotation.turned(wide[:, 0]), rotation.turned(wide[:, 1]), np.ascontiguousarray(wide[:, 2])
    keys, values = [p.key for p in earlier] + [key], [p.value for p in earlier] + [value]
    attended = attend(query, keys, values, spans)
    middle = feature + attended.made.reshape(len(given), -1) @ params["attention"].T * frame.unit
    middle_root = root_of(middle, s.eps)
    inner = middle * middle_root * (frame.inner * params["ffn_norm"])
    gate, up = np.split(inner @ params["gate_up"].T, 2, axis=1)
    sigmoid = 0.5 + 0.5 * np.tanh(0.5 * gate)
    h = middle + (gate * sigmoid * up) @ params["down"].T * frame.unit
    h_root = root_of(h, s.eps)
    made = h * h_root * (frame.output * params["output_norm"])
    return Passed(
        token, feature, root, given, query, key, value, rotation, attended, middle, middle_root, inner, gate, up,
        sigmoid, h, h_root, made,
    )  # fmt: skip


def back(
    params: Params,
    frame: Frame,
    steps: Sequence[Passed],
    spans: Sequence[Span],
    made_slopes: Sequence[Floats],
    h_slopes: Sequence[Floats],
) -> Params:
    """Gradients over all steps. made_slopes, h_slopes: at `made` and at `h` of each."""
    gradients = {name: np.zeros_like(value) for name, value in params.items()}
    key_slopes, value_slopes = [np.zeros_like(p.key) for p in steps], [np.zeros_like(p.value) for p in steps]
    after = np.zeros_like(h_slopes[0])  # slope at h from the step that went on with it
    for j in reversed(range(len(steps))):
        p = steps[j]
        slope = h_slopes[j] + after
        slope += _norm_back(made_slopes[j], p.h, p.h_root, frame.output, "output_norm", params, gradients)
        slope = _feed_forward_back(slope, p, params, frame, gradients)
        scaled = slope * frame.unit
        flat = p.attended.made.reshape(len(slope), -1)
        gradients["attention"] += scaled.T @ flat
        mixed = np.reshape(scaled @ params["attention"], p.query.shape).astype(np.float32, copy=False)
        keys, values = [q.key for q in steps[: j + 1]], [q.value for q in steps[: j + 1]]
        query = attend_back(mixed, p.attended, p.query, keys, values, spans, key_slopes, value_slopes)
        turned = p.rotation.turned(query, back=True), p.rotation.turned(key_slopes[j], back=True), value_slopes[j]
        wide = np.stack(turned, axis=1).reshape(len(slope), -1)
        gradients["qkv"] += wide.T @ p.given
        given = wide @ params["qkv"]
        n = slope.shape[1]
        gradients["token_norm"] += (given[:, :n] * p.token).sum(axis=0)
        slope += _norm_back(given[:, n:], p.feature, p.root, frame.feature, "feature_norm", params, gradients)
        after = slope
    return gradients


def _feed_forward_back(slope: Floats, p: Passed, params: Params, frame: Frame, gradients: Params) -> Floats:
    """The slope at `middle`."""
    scaled = slope * frame.unit
    active = p.gate * p.sigmoid
    gradients["down"] += scaled.T @ (active * p.up)
    product = scaled @ params["down"]
    gate = product * p.up * (p.sigmoid * (1 + p.gate * (1 - p.sigmoid)))
    both = np.concatenate((gate, product * active), axis=1)
    gradients["gate_up"] += both.T @ p.inner
    inner = both @ params["gate_up"]
    return slope + _norm_back(inner, p.middle, p.middle_root, frame.inner, "ffn_norm", params, gradients)


def _norm_back(
    slope: Floats, x: Floats, root: Floats, fixed: Floats, name: str, params: Params, gradients: Params
) -> Floats:
    """The slope at what went into an RMS norm."""
    normed = x * root
    gradients[name] += (slope * normed).sum(axis=0) * fixed
    slope = slope * (fixed * params[name])
    found: Floats = root * (slope - normed * (slope * normed).mean(axis=1, keepdims=True))
    return found


def weights_of(params: Params, frame: Frame, output: Floats) -> EagleWeights:
    """As the file has them. output: (D, n)."""
    query, key, value = np.split(params["qkv"], 3)
    gate, up = np.split(params["gate_up"], 2)
    return EagleWeights(
        token_norm=params["token_norm"],
        feature_norm=frame.feature * params["feature_norm"],
        query=query,
        key=key,
        value=value,
        attention=frame.unit[:, None] * params["attention"],
        ffn_norm=frame.inner * params["ffn_norm"],
        gate=gate,
        up=up,
        down=frame.unit[:, None] * params["down"],
        output_norm=frame.output * params["output_norm"],
        output=output,
    )
