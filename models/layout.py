"""The two tables of a GGUF header: metadata (key, type, value) and tensors (name, shape, type, offset)."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from .ggml_types import GGML_TYPES, REMOVED_TYPES
from .quoting import quoted
from .reader import Reader

MAX_METADATA = 1 << 16
MAX_TENSORS = 1 << 16
MAX_KEY = 65_535  # bytes, by the specification
MAX_DIMENSIONS = 4  # GGML_MAX_DIMS
MAX_TENSOR_NAME = 63  # bytes: GGML_MAX_NAME with its terminator is 64
SHORT = 1024  # arrays up to this many elements become tuples
MAX_VALUES = 1 << 18  # elements of all tuples together; longer headers keep the rest as spans
LONG_TEXT = 1 << 20  # bytes; longer strings (a whole tokenizer.json, say) stay in the file
MAX_TEXT = 16 << 20  # bytes of all decoded strings together; longer headers keep the rest as spans
MAX_STRINGS = 1 << 22  # strings of all metadata together: walking them is what costs time

Scalar = int | float | bool | str

_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS: dict[int, tuple[str, str, int]] = {  # GGUF value type: name, struct code, bytes
    0: ("uint8", "B", 1),
    1: ("int8", "b", 1),
    2: ("uint16", "H", 2),
    3: ("int16", "h", 2),
    4: ("uint32", "I", 4),
    5: ("int32", "i", 4),
    6: ("float32", "f", 4),
    _BOOL: ("bool", "B", 1),
    10: ("uint64", "Q", 8),
    11: ("int64", "q", 8),
    12: ("float64", "d", 8),
}


@dataclass(frozen=True, slots=True)
class ArraySpan:
    """A metadata array, or one very long string (count 1), left in the file.

    type: of its elements. offset: of the first one in the file. nbytes: of all, with the strings' length fields.
    """

    type: str
    count: int
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor. type: ggml's name. shape: row length first. offset: bytes after Header.data_start."""

    name: str
    type: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


Value = Scalar | tuple[Scalar, ...] | ArraySpan
Metadata = Mapping[str, Value]


def read_metadata(reader: Reader, count: int) -> dict[str, Value]:
    """Read `count` key-value pairs. Raises ModelLoadError."""
    if count > MAX_METADATA:
        reader.fail(f"{count:,} metadata entries (at most {MAX_METADATA:,} are expected)")
    reader.require(13 * count)  # the least that many entries can take
    budget = _Budget(MAX_VALUES, MAX_TEXT, MAX_STRINGS)
    metadata: dict[str, Value] = {}
    for _ in range(count):
        key = reader.text(MAX_KEY)
        if not key:
            reader.fail("a metadata key is empty")
        if key in metadata:
            reader.fail(f"the metadata key {quoted(key, 80)} occurs twice")
        metadata[key] = _value(reader, key, budget)
    return metadata


@dataclass(slots=True)
class _Budget:
    """What a header may still make us hold or walk."""

    values: int
    text: int
    strings: int


def _value(reader: Reader, key: str, budget: _Budget) -> Value:
    kind = reader.u32()
    if kind == _STRING:
        strings = _strings(reader, 1, budget)
        return strings[0] if isinstance(strings, tuple) else strings
    if kind == _ARRAY:
        return _array(reader, key, budget)
    return _scalars(reader, key, kind, 1)[0]


def _scalars(reader: Reader, key: str, kind: int, count: int) -> tuple[Scalar, ...]:
    if kind not in _SCALARS:
        reader.fail(f"{quoted(key, 80)} has the unknown value type {kind}")
    name, code, width = _SCALARS[kind]
    values: tuple[Scalar, ...] = struct.unpack(f"<{count}{code}", reader.take(count * width))
    if kind == _BOOL:
        if any(value not in (0, 1) for value in values):
            reader.fail(f"{quoted(key, 80)} is a {name} that is neither 0 nor 1")
        return tuple(value == 1 for value in values)
    return values


def _array(reader: Reader, key: str, budget: _Budget) -> tuple[Scalar, ...] | ArraySpan:
    kind, count = reader.u32(), reader.u64()
    if kind == _ARRAY:
        reader.fail(f"{quoted(key, 80)} is an array of arrays, which llama.cpp does not read either")
    if kind == _STRING:
        # A vocabulary stays in the file however small: its entries need not be UTF-8.
        return _strings(reader, count, budget, decode=not key.startswith("tokenizer.ggml."))
    if kind not in _SCALARS:
        reader.fail(f"{quoted(key, 80)} is an array of the unknown value type {kind}")
    name, _, width = _SCALARS[kind]
    reader.require(count * width)
    if count <= min(SHORT, budget.values):
        budget.values -= count
        return _scalars(reader, key, kind, count)
    start = reader.pos
    reader.skip(count * width)
    return ArraySpan(name, count, start, count * width)


def _strings(reader: Reader, count: int, budget: _Budget, decode: bool = True) -> tuple[Scalar, ...] | ArraySpan:
    reader.require(8 * count)
    budget.strings -= count
    if budget.strings < 0:
        reader.fail(f"more than {MAX_STRINGS:,} strings in its metadata")
    start = reader.pos
    reader.skip_strings(count)
    nbytes = reader.pos - start
    if not decode or count > min(SHORT, budget.values) or nbytes > min(LONG_TEXT, budget.text):
        return ArraySpan("string", count, start, nbytes)
    budget.values -= count
    budget.text -= nbytes
    reader.pos = start
    return tuple(reader.text() for _ in range(count))


def read_tensors(reader: Reader, count: int, alignment: int) -> tuple[TensorInfo, ...]:
    """Read `count` tensor descriptions and check that they do not overlap. Raises ModelLoadError."""
    if count > MAX_TENSORS:
        reader.fail(f"{count:,} tensors (at most {MAX_TENSORS:,} are expected)")
    reader.require(24 * count)  # the least that many descriptions can take
    tensors: dict[str, TensorInfo] = {}
    for _ in range(count):
        tensor = _tensor(reader, alignment)
        if tensor.name in tensors:
            reader.fail(f"the tensor {quoted(tensor.name)} occurs twice")
        tensors[tensor.name] = tensor
    end = 0
    for tensor in sorted(tensors.values(), key=lambda t: (t.offset, t.nbytes)):
        if tensor.offset < end:
            reader.fail(f"the tensor {quoted(tensor.name)} overlaps another")
        end = tensor.offset + tensor.nbytes
    return tuple(tensors.values())


def _tensor(reader: Reader, alignment: int) -> TensorInfo:
    name = reader.text(MAX_TENSOR_NAME)
    shown = quoted(name)
    dimensions = reader.u32()
    if dimensions > MAX_DIMENSIONS:
        reader.fail(f"the tensor {shown} has {dimensions:,} dimensions (at most {MAX_DIMENSIONS})")
    shape: tuple[int, ...] = struct.unpack(f"<{dimensions}Q", reader.take(8 * dimensions))
    elements = math.prod(shape)
    if max(shape, default=0) >= 1 << 63 or elements >= 1 << 63:
        reader.fail(f"the tensor {shown} has an impossible shape")
    kind, offset = reader.u32(), reader.u64()
    if kind in REMOVED_TYPES:
        reader.fail(f"the tensor {shown} has type {REMOVED_TYPES[kind]}, which llama.cpp dropped")
    if kind not in GGML_TYPES:
        reader.fail(f"the tensor {shown} has the unknown type {kind} (a newer format, or damage)")
    storage = GGML_TYPES[kind]
    if (shape[0] if shape else 1) % storage.block:
        reader.fail(f"the rows of tensor {shown} are not whole blocks of {storage.block} for {storage.name}")
    if offset % alignment:
        reader.fail(f"the tensor {shown} is not aligned to {alignment} bytes")
    return TensorInfo(name, storage.name, shape, offset, elements // storage.block * storage.nbytes)
