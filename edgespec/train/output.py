"""Rows of a model's output matrix and of its embeddings, from its file: what heads guess with and what they read."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgespec.models.header import Header

_EMBEDDING = "token_embd.weight"
_OUTPUT = ("output.weight", _EMBEDDING)  # the second one where the two are the same


def output_rows(header: Header, ids: NDArray[np.int64]) -> NDArray[np.float32] | None:
    """(len(ids), n_embd) float32; None where the file has no such matrix in a form that can be read."""
    return _rows(header, ids, _OUTPUT)


def embedding_rows(header: Header, ids: NDArray[np.int64]) -> NDArray[np.float32] | None:
    """The same of the embeddings, as they are in the file: some models multiply them by a number of their own."""
    return _rows(header, ids, (_EMBEDDING,))


def _rows(header: Header, ids: NDArray[np.int64], names: tuple[str, ...]) -> NDArray[np.float32] | None:
    import gguf

    tensor = next((t for name in names for t in header.tensors if t.name == name), None)
    if tensor is None or len(tensor.shape) != 2 or tensor.nbytes % tensor.shape[1]:
        return None
    width, count = tensor.shape
    if int(ids[-1]) >= count:
        return None
    place = header.data_start + tensor.offset
    raw = np.memmap(header.path, np.uint8, "r", place, (count, tensor.nbytes // count))
    try:
        rows = gguf.quants.dequantize(np.ascontiguousarray(raw[ids]), gguf.GGMLQuantizationType[tensor.type])
    except (KeyError, NotImplementedError):
        return None
    found: NDArray[np.float32] = np.ascontiguousarray(rows, dtype=np.float32)
    return found if found.shape == (len(ids), width) and np.isfinite(found).all() else None
