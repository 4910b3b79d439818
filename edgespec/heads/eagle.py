"""An EAGLE-style head: one decoder layer over (token embedding, feature), in a GGUF that llama.cpp runs.

The feature is the target's hidden state after its final norm, or the layer's own output where the target has not been
yet (arXiv 2401.15077; the layer itself as in EAGLE-3, arXiv 2503.01840). docs/heads.md has the form of the file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import BadRequestError
from .medusa import Facts

Floats = NDArray[np.float32]

ARCH = "eagle3"
FORMAT, VERSION, KIND = "edgespec-heads", 1, "eagle"
SUFFIX = ".gguf"
_BLOCK = 32  # numbers of a row that q8_0 keeps together
Matrices = Literal["f32", "f16", "q8_0"]
LAYERS_READ = 3  # tokens of the target's layers that llama.cpp's form of the file names; not used by this kind


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes and constants of the layer. head_dim: of queries, keys and values; even, all of it is rotated.

    norm_before_residual: the normed feature is added to what attention gives, in place of the feature itself.
    """

    n_embd: int
    n_head: int
    n_head_kv: int
    head_dim: int
    n_ff: int
    rope_base: float = 10_000.0
    eps: float = 1e-6
    norm_before_residual: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class EagleWeights:
    """All float32, matrices as (outputs, inputs). n: Shape.n_embd, V: vocabulary of the target, D: of the head.

    token_norm, feature_norm, ffn_norm, output_norm: (n,) weights of RMS norms.  query: (n_head * head_dim, 2n), key and
    value: (n_head_kv * head_dim, 2n), over [normed token embedding, normed feature].  attention: (n, n_head *
    head_dim).  gate, up: (n_ff, n).  down: (n, n_ff).  output: (D, n); None: the target's output matrix, D = V.
    embedding: (V, n); None: the target's.
    """

    token_norm: Floats
    feature_norm: Floats
    query: Floats
    key: Floats
    value: Floats
    attention: Floats
    ffn_norm: Floats
    gate: Floats
    up: Floats
    down: Floats
    output_norm: Floats
    output: Floats | None = None
    embedding: Floats | None = None


_NAMES = {
    "token_norm": "blk.0.attn_norm",
    "feature_norm": "blk.0.attn_norm_2",
    "query": "blk.0.attn_q",
    "key": "blk.0.attn_k",
    "value": "blk.0.attn_v",
    "attention": "blk.0.attn_output",
    "ffn_norm": "blk.0.ffn_norm",
    "gate": "blk.0.ffn_gate",
    "up": "blk.0.ffn_up",
    "down": "blk.0.ffn_down",
    "output_norm": "output_norm",
    "output": "output",
    "embedding": "token_embd",
}


@dataclass(frozen=True, eq=False)
class EagleHead:
    """A head over a draft vocabulary. ids: (D,) token ids that can be guessed, ascending; None: all of them.

    Raises BadRequestError where the parts do not fit together.
    """

    facts: Facts
    shape: Shape
    weights: EagleWeights
    ids: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        s, w, size = self.shape, self.weights, self.facts.vocab_size
        if s.n_embd != self.facts.n_embd:
            raise BadRequestError(f"the layer has {s.n_embd} numbers and the target's states {self.facts.n_embd}")
        if min(s.n_head, s.n_head_kv, s.head_dim, s.n_ff) < 1 or s.n_head % s.n_head_kv or s.head_dim % 2:
            raise BadRequestError("key heads must divide the heads, and head_dim must be even")
        if not (s.rope_base > 0 and s.eps > 0):
            raise BadRequestError("rope_base and eps must be above 0")
        ids = self.ids
        if ids is not None and (not len(ids) or ids[0] < 0 or ids[-1] >= size or not (np.diff(ids) > 0).all()):
            raise BadRequestError(f"the draft vocabulary must list ids from 0 to {size - 1}, ascending, each once")
        if ids is not None and w.output is None:
            raise BadRequestError("a draft vocabulary needs an output matrix of its own")
        n, queries, keys = s.n_embd, s.n_head * s.head_dim, s.n_head_kv * s.head_dim
        shapes = {
            "token_norm": (n,),
            "feature_norm": (n,),
            "query": (queries, 2 * n),
            "key": (keys, 2 * n),
            "value": (keys, 2 * n),
            "attention": (n, queries),
            "ffn_norm": (n,),
            "gate": (s.n_ff, n),
            "up": (s.n_ff, n),
            "down": (n, s.n_ff),
            "output_norm": (n,),
            "output": (size if ids is None else len(ids), n),
            "embedding": (size, n),
        }
        for name, wanted in shapes.items():
            array = getattr(w, name)
            if array is None:
                continue
            if array.shape != wanted or array.dtype != np.float32:
                raise BadRequestError(
                    f"{name} has shape {array.shape}, type {array.dtype}; {wanted}, float32 is needed"
                )
            if not np.isfinite(array).all():
                raise BadRequestError(f"{name} has a number that is not finite; training failed")


def write_eagle(head: EagleHead, path: Path, *, matrices: Matrices = "f16", context: int = 4096) -> None:
    """Write a file so that readers find all of it or none. Raises OSError.

    matrices: how their numbers are kept; q8_0 is llama.cpp's, and those whose rows it does not fit are kept in f16.
    context: tokens that the layer was trained to look back on, for people. Raises BadRequestError where a number is
    too large for float16.
    """
    import gguf

    arrays = {
        name: array if array.ndim == 1 else _stored(array, matrices)
        for name in _NAMES
        if (array := getattr(head.weights, name)) is not None
    }
    kinds = {np.dtype(np.float32): "F32", np.dtype(np.float16): "F16", np.dtype(np.uint8): "Q8_0"}
    types = {name: gguf.GGMLQuantizationType[kinds[array.dtype]] for name, array in arrays.items()}
    facts, shape = head.facts, head.shape
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    writer = gguf.GGUFWriter(str(temporary), ARCH)
    try:
        writer.add_name(f"EAGLE head for {facts.target_name or 'a model'}")
        writer.add_file_type(gguf.LlamaFileType[_FILE_TYPES[matrices]])
        for key, text in (("format", FORMAT), ("kind", KIND), ("target", facts.target)):
            writer.add_string(f"edgespec.{key}", text)
        for key, text in (("target_name", facts.target_name), ("recipe", facts.recipe), ("scores", facts.scores)):
            writer.add_string(f"edgespec.{key}", text)
        writer.add_uint32("edgespec.version", VERSION)
        writer.add_tokenizer_model("no_vocab")  # ids are the target's; its vocabulary is not repeated
        writer.add_vocab_size(facts.vocab_size)
        writer.add_block_count(1)
        writer.add_context_length(context)
        writer.add_embedding_length(shape.n_embd)
        writer.add_feed_forward_length(shape.n_ff)
        writer.add_head_count(shape.n_head)
        writer.add_head_count_kv(shape.n_head_kv)
        writer.add_key_length(shape.head_dim)
        writer.add_value_length(shape.head_dim)
        writer.add_rope_dimension_count(shape.head_dim)
        writer.add_rope_freq_base(shape.rope_base)
        writer.add_layer_norm_rms_eps(shape.eps)
        # llama.cpp asks for an encoder over three layers of the target; this kind of head has none, so it is empty.
        writer.add_array(f"{ARCH}.target_layers", [0, 0, 0])
        writer.add_uint32(f"{ARCH}.target_hidden_size", 1)
        writer.add_bool(f"{ARCH}.norm_before_residual", shape.norm_before_residual)
        writer.add_tensor("fc.weight", np.zeros((shape.n_embd, LAYERS_READ), np.float32))
        for name, array in arrays.items():
            writer.add_tensor(f"{_NAMES[name]}.weight", array, raw_dtype=types[name])
        if head.ids is not None:
            writer.add_tensor("d2t", head.ids.astype(np.int64), raw_dtype=gguf.GGMLQuantizationType.I64)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        temporary.replace(path)
    finally:
        writer.close()
        temporary.unlink(missing_ok=True)


_FILE_TYPES: dict[Matrices, str] = {"f32": "ALL_F32", "f16": "MOSTLY_F16", "q8_0": "MOSTLY_Q8_0"}


def _stored(values: Floats, kind: Matrices) -> NDArray[Any]:
    """A matrix as the file has it: float32, float16, or the bytes of q8_0."""
    import gguf

    if kind == "f32":
        return np.ascontiguousarray(values)
    largest = float(np.abs(values).max(initial=0.0))
    if largest > float(np.finfo(np.float16).max):
        raise BadRequestError("a weight is too large for float16; write the head in float32")
    if kind == "q8_0" and values.shape[1] % _BLOCK == 0:
        packed: NDArray[Any] = gguf.quants.quantize(np.ascontiguousarray(values), gguf.GGMLQuantizationType.Q8_0)
        return packed
    return np.ascontiguousarray(values.astype(np.float16))


def in_eight_bits(values: Floats) -> Floats:
    """A matrix as it is read back where it is kept in q8_0, float32."""
    import gguf

    packed = _stored(values, "q8_0")
    if packed.dtype != np.uint8:
        return packed.astype(np.float32)
    found: Floats = gguf.quants.dequantize(packed, gguf.GGMLQuantizationType.Q8_0).astype(np.float32)
    return found
