"""The file of heads: safetensors, with what they are in its metadata. docs/heads.md has the layout.

The library checks offsets, lengths and types of what it reads, and a file holds nothing but numbers: no code runs.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import BadRequestError, ModelLoadError, ModelNotFoundError
from .medusa import MAX_HEADS, Block, Facts, MedusaHeads
from .quantized import Quantized
from .sequential import MAX_WINDOW, SequentialHeads, Step

Heads = MedusaHeads | SequentialHeads

FORMAT, VERSION = "edgespec-heads", 1
MEDUSA, SEQUENTIAL = "medusa", "sequential"  # kinds
SOURCE = "medusa"  # what both are called as a source of guesses
SUFFIX = ".safetensors"

_MAX_BLOCKS = 8
_MAX_HIDDEN = 1 << 16
_MAX_SIZE = 1 << 20  # tokens of a vocabulary, numbers of a state
_MAX_TEXT = 4096  # characters of a text in the metadata


def write_heads(heads: Heads, path: Path, *, half: bool = True) -> None:
    """Write a file so that readers find all of it or none. Raises OSError.

    half: matrices of Medusa heads in float16; those of sequential ones are always in 8 bits.
    Raises BadRequestError where a number is too large for float16.
    """
    from safetensors.numpy import save_file

    facts = heads.facts
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "target": facts.target,
        "target_name": facts.target_name,
        "vocab_size": str(facts.vocab_size),
        "n_embd": str(facts.n_embd),
        "heads": str(heads.count),
        "recipe": facts.recipe,
        "scores": facts.scores,
    }
    if isinstance(heads, SequentialHeads):
        metadata |= {"kind": SEQUENTIAL, "window": str(heads.window)}
        tensors = _sequential_tensors(heads)
    else:
        metadata |= {"kind": MEDUSA, "blocks": str(len(heads.blocks[0]))}
        tensors = _medusa_tensors(heads, np.float16 if half else np.float32)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        save_file(tensors, temporary, metadata)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _medusa_tensors(heads: MedusaHeads, kind: Any) -> dict[str, NDArray[Any]]:
    tensors: dict[str, NDArray[Any]] = {"vocabulary": heads.ids.astype(np.int32)}
    for k, blocks in enumerate(heads.blocks):
        for j, block in enumerate(blocks):
            tensors[f"heads.{k}.blocks.{j}.weight"] = _as(kind, block.weight)
            tensors[f"heads.{k}.blocks.{j}.bias"] = block.bias
    for k, projection in enumerate(heads.projections):
        tensors["projection" if len(heads.projections) == 1 else f"heads.{k}.projection"] = _as(kind, projection)
    return tensors


def _sequential_tensors(heads: SequentialHeads) -> dict[str, NDArray[Any]]:
    tensors: dict[str, NDArray[Any]] = {
        "vocabulary": heads.ids.astype(np.int32),
        "centre": heads.centre,
        "unit": heads.unit,
        "bias": heads.bias,
        "basis": _as(np.float16, heads.basis),
    }
    matrices = {"rows": heads.rows}
    for k, step in enumerate(heads.steps):
        tensors |= {f"heads.{k}.mix_bias": step.mix_bias, f"heads.{k}.inner_bias": step.inner_bias}
        for name in ("mix", "inner", "outer"):
            matrices[f"heads.{k}.{name}"] = Quantized.of(getattr(step, name))
    for name, matrix in matrices.items():
        tensors |= {name: matrix.codes, f"{name}.factors": matrix.factors}
    return tensors


def read_heads(path: Path) -> Heads:
    """Read a file. Raises ModelNotFoundError, and ModelLoadError with the reason."""
    with opened(path) as file:
        meta = file.metadata() or {}
        facts, count = _facts(path, meta)
        reader = _Reader(path, file, facts)
        try:
            if meta["kind"] == SEQUENTIAL:
                return _sequential(reader, facts, count, _count(path, meta, "window", MAX_WINDOW))
            return _medusa(reader, facts, count, _count(path, meta, "blocks", _MAX_BLOCKS, least=0))
        except BadRequestError as error:
            raise ModelLoadError(f"{path.name} cannot be used: {error}") from error


def _medusa(reader: _Reader, facts: Facts, count: int, depth: int) -> MedusaHeads:
    ids = reader.vocabulary()
    blocks = tuple(tuple(reader.block(f"heads.{k}.blocks.{j}") for j in range(depth)) for k in range(count))
    shared = "projection" in reader.names
    names = ["projection"] if shared else [f"heads.{k}.projection" for k in range(count)]
    projections = tuple(reader.matrix(name, (len(ids), facts.n_embd)) for name in names)
    return MedusaHeads(facts, ids, blocks, projections)


def _sequential(reader: _Reader, facts: Facts, count: int, window: int) -> SequentialHeads:
    n, ids = facts.n_embd, reader.vocabulary()
    centre, unit = reader.matrix("centre", (n,)), reader.matrix("unit", (n,))
    rows, bias = reader.quantized("rows", (len(ids), n)), reader.matrix("bias", (len(ids),))
    seen = reader.columns("basis", n)
    steps = []
    for k in range(count):
        name = f"heads.{k}"
        m = reader.columns(f"{name}.outer", _MAX_HIDDEN)
        steps.append(
            Step(
                reader.quantized(f"{name}.mix", (n, n + window * seen)).whole(),
                reader.matrix(f"{name}.mix_bias", (n,)),
                reader.quantized(f"{name}.inner", (m, n)).whole(),
                reader.matrix(f"{name}.inner_bias", (m,)),
                reader.quantized(f"{name}.outer", (n, m)).whole(),
            )
        )
    basis = reader.matrix("basis", (n, seen))
    return SequentialHeads(facts, ids, centre, unit, rows, bias, basis, window, tuple(steps))


def read_facts(path: Path) -> tuple[Facts, int, int]:
    """(facts, heads, tokens of the draft vocabulary) from the file's header alone. Raises as read_heads."""
    with opened(path) as file:
        facts, count = _facts(path, file.metadata() or {})
        return facts, count, _Reader(path, file, facts).shape("vocabulary")[0]


class opened:
    """A safetensors file; what the library says of a bad one becomes one line."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Any:
        from safetensors import SafetensorError, safe_open

        path = self._path
        if not path.is_file():
            raise ModelNotFoundError(f"there is no file {path} with heads; give the path of one")
        try:
            self._file = cast(Any, safe_open(path, framework="numpy"))
            return self._file.__enter__()
        except (SafetensorError, OSError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise ModelLoadError(
                f"{path.name} is no whole safetensors file ({why}); write or fetch it again"
            ) from error

    def __exit__(self, *error: Any) -> None:
        self._file.__exit__(*error)


class _Reader:
    """Tensors of one file, checked against what its metadata promises before they are read."""

    def __init__(self, path: Path, file: Any, facts: Facts) -> None:
        self._path, self._file, self._facts = path, file, facts
        self.names = set(file.keys())

    def shape(self, name: str) -> tuple[int, ...]:
        if name not in self.names:
            raise ModelLoadError(f"{self._path.name} lacks the tensor {name}; write or fetch the heads again")
        return tuple(self._file.get_slice(name).get_shape())

    def _tensor(self, name: str, shape: tuple[int, ...], types: tuple[str, ...]) -> NDArray[Any]:
        found = self.shape(name)
        kind = str(self._file.get_slice(name).get_dtype())
        if found != shape or kind not in types:
            wanted = " or ".join(types)
            raise ModelLoadError(
                f"{self._path.name}: tensor {name} is {kind} {list(found)}, and {wanted} {list(shape)} is needed"
            )
        tensor: NDArray[Any] = self._file.get_tensor(name)
        return tensor

    def matrix(self, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        return np.ascontiguousarray(self._tensor(name, shape, ("F32", "F16")), dtype=np.float32)

    def quantized(self, name: str, shape: tuple[int, ...]) -> Quantized:
        codes = np.ascontiguousarray(self._tensor(name, shape, ("I8",)))
        return Quantized(codes, self.matrix(f"{name}.factors", shape[:1]))

    def columns(self, name: str, most: int) -> int:
        shape = self.shape(name)
        if len(shape) != 2 or not 1 <= shape[1] <= most:
            raise ModelLoadError(f"{self._path.name}: tensor {name} has shape {list(shape)}; write or fetch it again")
        return shape[1]

    def block(self, name: str) -> Block:
        n = self._facts.n_embd
        return Block(self.matrix(f"{name}.weight", (n, n)), self.matrix(f"{name}.bias", (n,)))

    def vocabulary(self) -> NDArray[np.int64]:
        shape = self.shape("vocabulary")
        if len(shape) != 1 or not 1 <= shape[0] <= self._facts.vocab_size:
            raise ModelLoadError(f"{self._path.name}: the draft vocabulary has shape {list(shape)}; it must be a list")
        return self._tensor("vocabulary", shape, ("I32",)).astype(np.int64)


def _facts(path: Path, meta: dict[str, str]) -> tuple[Facts, int]:
    """(facts, heads) as the metadata states them."""
    if meta.get("format") != FORMAT:
        raise ModelLoadError(
            f"{path.name} has no heads in EdgeSpec's form; make it with `edgespec convert` from a published checkpoint"
        )
    if meta.get("version") != str(VERSION) or meta.get("kind") not in (MEDUSA, SEQUENTIAL):
        raise ModelLoadError(
            f"{path.name} has heads of kind {meta.get('kind')!r} in form {meta.get('version')!r}; "
            f"this version of EdgeSpec reads {MEDUSA} and {SEQUENTIAL} in form {VERSION}"
        )
    sizes = [
        _count(path, meta, name, most)
        for name, most in (("vocab_size", _MAX_SIZE), ("n_embd", _MAX_SIZE), ("heads", MAX_HEADS))
    ]
    texts = {name: meta.get(name, "")[:_MAX_TEXT] for name in ("target", "target_name", "recipe", "scores")}
    return Facts(vocab_size=sizes[0], n_embd=sizes[1], **texts), sizes[2]


def _count(path: Path, meta: dict[str, str], name: str, most: int, least: int = 1) -> int:
    text = meta.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 9 and least <= int(text) <= most):
        raise ModelLoadError(f"{path.name}: {name} is {text[:20]!r}; it must be a whole number from {least} to {most}")
    return int(text)


def _as(kind: Any, values: NDArray[np.float32]) -> NDArray[Any]:
    if kind == np.float16 and float(np.abs(values).max(initial=0.0)) > float(np.finfo(np.float16).max):
        raise BadRequestError("a weight is too large for float16; write the heads in float32")
    converted: NDArray[Any] = np.ascontiguousarray(values.astype(kind))
    return converted


def described(text: str) -> dict[str, Any] | str:
    """`recipe` and `scores` for people: the object that they hold, or their text."""
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return found if isinstance(found, dict) else text
