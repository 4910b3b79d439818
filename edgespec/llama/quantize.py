"""Requantize a GGUF file with llama.cpp: pure Q4_0 is what CPUs verify fastest."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from edgespec.models.ggml_types import GGML_TYPES
from edgespec.models.header import read_header

from ..errors import BadRequestError, EdgeSpecError
from ..machine import physical_cores
from . import binding

# "q4_k" is llama.cpp's Q4_K_S, which as a mixture keeps some matrices in Q5_K.
FILE_TYPES = {"f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q4_k": 14, "q4_k_m": 15, "q6_k": 18, "iq4_nl": 25}


def requantize(
    source: Path, destination: Path, file_type: str, *, pure: bool = True, embeddings: str | None = None
) -> Path:
    """Write `source` with all matrices as `file_type` (a key of FILE_TYPES) to `destination`.

    pure: no mixture of types.  embeddings: another type (such as "q8_0") for these and the output matrix, which is the
    same in many small models. The destination appears only when complete. Takes about a minute per 1.5B
    parameters on two cores. Raises BadRequestError, ModelLoadError, EdgeSpecError.
    """
    if file_type not in FILE_TYPES:
        raise BadRequestError(f"file type is {file_type!r}; choose one of {', '.join(FILE_TYPES)}")
    read_header(source)
    lib = binding.lib()
    params = lib.llama_model_quantize_default_params()
    params.nthread = physical_cores()
    params.ftype = FILE_TYPES[file_type]
    params.pure = pure
    params.allow_requantize = True
    if embeddings is not None:
        params.token_embedding_type = params.output_tensor_type = _storage(embeddings)
    partial = partial_file(destination, os.getpid())
    try:
        binding.take_errors()
        code = lib.llama_model_quantize(os.fsencode(source), os.fsencode(partial), ctypes.byref(params))
        if code:
            raise EdgeSpecError(f"cannot requantize {source.name}: {binding.take_errors() or f'code {code}'}")
        partial.replace(destination)
    finally:
        partial.unlink(missing_ok=True)
    return destination


def partial_file(destination: Path, pid: int) -> Path:
    """What a process writes before the destination is complete."""
    return destination.with_name(f"{destination.name}.{pid}.part")


def _storage(name: str) -> int:
    """ggml's number of a storage type."""
    found = next((number for number, kind in GGML_TYPES.items() if kind.name == name.upper()), None)
    if found is None:
        raise BadRequestError(f"{name!r} is no storage type; use one such as q8_0")
    return found
