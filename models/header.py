"""What a GGUF file is, read from its header alone.

Format: the GGUF specification of ggml (docs/gguf.md), versions 2 and 3; the checks follow llama.cpp's loader
(ggml/src/gguf.cpp). Vocabularies stay in the file until someone asks for them, so that a header costs tens of
milliseconds and a few megabytes whatever the model's size.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from ..errors import ModelLoadError, ModelNotFoundError
from .ggml_types import FILE_TYPE_GUESSED, FILE_TYPES
from .layout import ArraySpan, Metadata, TensorInfo, read_metadata, read_tensors
from .quoting import quoted
from .reader import Reader, looks_like

VERSIONS = (2, 3)

__all__ = ["ArraySpan", "Header", "Metadata", "TensorInfo", "Tokenizer", "TypeUsage", "read_header"]


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """The tokenizer's facts. Ids that the file does not name, or that lie outside the vocabulary, are None."""

    model: str | None  # "gpt2" (byte-level BPE), "llama" (SentencePiece), ...
    pre: str | None  # pre-tokenizer
    vocab_size: int
    bos_id: int | None
    eos_id: int | None
    eot_id: int | None
    add_bos: bool | None


@dataclass(frozen=True, slots=True)
class TypeUsage:
    """One storage type's part of a file. count: tensors. nbytes: without padding."""

    type: str
    count: int
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """A GGUF file without its weights.

    metadata: scalars, strings and short arrays as Python values, what is longer as ArraySpan.
    head_count, head_count_kv: one number, or one per layer. data_start: file offset of the tensor data.
    parameters: elements of all tensors in this file. split_no, split_count: 0 and 1 for a file that is whole.
    """

    path: Path
    file_size: int
    version: int
    alignment: int
    data_start: int
    arch: str
    name: str | None
    license: str | None
    chat_template: str | None
    context_length: int | None
    block_count: int | None
    embedding_length: int | None
    head_count: int | tuple[int, ...] | None
    head_count_kv: int | tuple[int, ...] | None
    split_no: int
    split_count: int
    tokenizer: Tokenizer
    metadata: Metadata = field(repr=False, hash=False)
    tensors: tuple[TensorInfo, ...] = field(repr=False)

    @property
    def parameters(self) -> int:
        """How many weights this file holds."""
        return sum(math.prod(t.shape) for t in self.tensors)

    @property
    def mtp_layers(self) -> int:
        """Layers for multi-token prediction that the file states and has; 0 without."""
        count, blocks = self.metadata.get(f"{self.arch}.nextn_predict_layers"), self.block_count
        if not isinstance(count, int) or isinstance(count, bool) or not blocks or not 0 < count < blocks:
            return 0
        first = f"blk.{blocks - count}.nextn.eh_proj.weight"
        return count if any(tensor.name == first for tensor in self.tensors) else 0

    @property
    def needed_size(self) -> int:
        """Bytes the file must have for every tensor to be complete."""
        return needed_size(self.data_start, self.tensors)

    @property
    def quantization(self) -> tuple[TypeUsage, ...]:
        """Storage types in use, most bytes first."""
        count: dict[str, int] = {}
        nbytes: dict[str, int] = {}
        for t in self.tensors:
            count[t.type] = count.get(t.type, 0) + 1
            nbytes[t.type] = nbytes.get(t.type, 0) + t.nbytes
        return tuple(TypeUsage(t, count[t], nbytes[t]) for t in sorted(count, key=lambda t: (-nbytes[t], t)))

    @property
    def quant(self) -> str | None:
        """The quantization's usual name ("Q4_K_M"): general.file_type, else the type with most bytes; None if empty."""
        file_type = self.metadata.get("general.file_type")
        if isinstance(file_type, int) and (label := FILE_TYPES.get(file_type & ~FILE_TYPE_GUESSED)):
            return label
        return self.quantization[0].type if self.tensors else None

    def token_texts(self) -> Iterator[bytes]:
        """Every token's text in id order, as stored (byte-level or SentencePiece spelling), read as it is iterated.

        Raises ModelLoadError where the file has changed or vanished since.
        """
        if (span := self._tokens) is None:
            return
        with opened(self.path) as reader:
            self._seek(reader, span.offset)
            for _ in range(span.count):
                yield reader.raw_string()

    def token_text(self, token: int) -> bytes:
        """One token's text, as stored. Raises IndexError outside the vocabulary, ModelLoadError as token_texts."""
        span = self._tokens
        if span is None or not 0 <= token < span.count:
            raise IndexError(f"token id {token} is not in 0..{self.tokenizer.vocab_size - 1}")
        with opened(self.path) as reader:
            self._seek(reader, span.offset)
            reader.skip_strings(token)
            return reader.raw_string()

    @property
    def _tokens(self) -> ArraySpan | None:
        span = self.metadata.get("tokenizer.ggml.tokens")
        return span if isinstance(span, ArraySpan) else None

    def _seek(self, reader: Reader, offset: int) -> None:
        if reader.size != self.file_size:
            raise ModelLoadError(f"{quoted(self.path)} has changed since its header was read; read it again")
        reader.skip(offset)


def read_header(path: Path | str) -> Header:
    """Read and check the header of the GGUF at `path`.

    Raises ModelNotFoundError if there is no such file; ModelLoadError for a directory, a file that is not a GGUF of
    version 2 or 3 in little endian, a damaged header, or tensor data that is cut off.
    """
    path = Path(path)
    with opened(path) as reader:
        version = _version(reader)
        n_tensors, n_metadata = reader.u64(), reader.u64()
        metadata = read_metadata(reader, n_metadata)
        facts = _Facts(reader, metadata)
        alignment = facts.number("general.alignment")
        alignment = 32 if alignment is None else alignment
        if alignment == 0 or alignment & (alignment - 1):
            reader.fail(f"general.alignment is {alignment}, not a power of two")
        tensors = read_tensors(reader, n_tensors, alignment)
        data_start = -(-reader.pos // alignment) * alignment
        needed = needed_size(data_start, tensors)
        if needed > reader.size:
            raise ModelLoadError(
                f"{reader.label} is truncated: its tensors need {needed:,} bytes, the file has {reader.size:,};"
                " download it again"
            )
        arch = facts.text("general.architecture")
        if not arch:
            raise ModelLoadError(
                f"{reader.label} is a GGUF but not a model: it names no architecture; give the model's own file"
            )
        return Header(
            path=path,
            file_size=reader.size,
            version=version,
            alignment=alignment,
            data_start=data_start,
            arch=arch,
            name=facts.text("general.name"),
            license=facts.text("general.license"),
            chat_template=facts.text("tokenizer.chat_template"),
            context_length=facts.number(f"{arch}.context_length"),
            block_count=facts.number(f"{arch}.block_count"),
            embedding_length=facts.number(f"{arch}.embedding_length"),
            head_count=facts.numbers(f"{arch}.attention.head_count"),
            head_count_kv=facts.numbers(f"{arch}.attention.head_count_kv"),
            split_no=facts.number("split.no") or 0,
            split_count=facts.number("split.count") or 1,
            tokenizer=_tokenizer(facts, arch),
            metadata=metadata,
            tensors=tensors,
        )


def needed_size(data_start: int, tensors: tuple[TensorInfo, ...]) -> int:
    """Bytes a file must have for `tensors` (offsets relative to `data_start`) to be complete."""
    return max((data_start + t.offset + t.nbytes for t in tensors if t.nbytes), default=0)


@contextmanager
def opened(path: Path) -> Iterator[Reader]:
    """A Reader at the start of a regular file; operating system errors become ours."""
    label = quoted(path)
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:  # ValueError: a NUL in the path
        raise ModelNotFoundError(f"no model file {label}; check the path") from error
    except OSError as error:
        raise ModelLoadError(f"cannot read {label}: {error.strerror}; check the path and its permissions") from error
    if stat.S_ISDIR(mode):
        raise ModelLoadError(f"{label} is a directory; give the .gguf file inside it")
    if not stat.S_ISREG(mode):  # opening a pipe would wait for ever
        raise ModelLoadError(f"{label} is not a regular file; give a .gguf file")
    try:
        with path.open("rb") as file:
            yield Reader(file, os.fstat(file.fileno()).st_size, label)
    except OSError as error:
        raise ModelLoadError(f"cannot read {label}: {error.strerror}; check the file and its permissions") from error


def _version(reader: Reader) -> int:
    head = reader.take(min(64, reader.size)) if reader.size else b""
    if not head.startswith(b"GGUF"):
        raise ModelLoadError(f"{reader.label} is not a GGUF: it looks like {looks_like(head)}; give a .gguf file")
    reader.pos = 4
    version = reader.u32()
    if version and version & 0xFFFF == 0:
        raise ModelLoadError(f"{reader.label} is a big-endian GGUF; convert it to little endian or get another copy")
    if version not in VERSIONS:
        raise ModelLoadError(f"{reader.label} is a GGUF of version {version}; versions 2 and 3 can be read, convert it")
    return version


def _tokenizer(facts: _Facts, arch: str) -> Tokenizer:
    tokens = facts.metadata.get("tokenizer.ggml.tokens")
    if tokens is not None and not (isinstance(tokens, ArraySpan) and tokens.type == "string"):
        facts.refuse("tokenizer.ggml.tokens", "an array of strings")
    vocab_size = tokens.count if isinstance(tokens, ArraySpan) else facts.number(f"{arch}.vocab_size") or 0

    def token(kind: str) -> int | None:
        value = facts.number(f"tokenizer.ggml.{kind}_token_id")
        return value if value is not None and value < vocab_size else None

    return Tokenizer(
        model=facts.text("tokenizer.ggml.model"),
        pre=facts.text("tokenizer.ggml.pre"),
        vocab_size=vocab_size,
        bos_id=token("bos"),
        eos_id=token("eos"),
        eot_id=token("eot"),
        add_bos=facts.flag("tokenizer.ggml.add_bos_token"),
    )


class _Facts:
    """Metadata by key and expected type; a value of another type is an error, a missing one None."""

    def __init__(self, reader: Reader, metadata: Metadata) -> None:
        self.reader = reader
        self.metadata: Mapping[str, object] = metadata

    def refuse(self, key: str, expected: str) -> NoReturn:
        self.reader.fail(f"{quoted(key, 80)} is not {expected}")

    def text(self, key: str) -> str | None:
        value = self.metadata.get(key)
        if value is None or isinstance(value, str):
            return value
        self.refuse(key, "a string of moderate length")

    def flag(self, key: str) -> bool | None:
        value = self.metadata.get(key)
        if value is None or isinstance(value, bool):
            return value
        self.refuse(key, "true or false")

    def number(self, key: str) -> int | None:
        value = self.metadata.get(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
            return value
        self.refuse(key, "a whole number")

    def numbers(self, key: str) -> int | tuple[int, ...] | None:
        value = self.metadata.get(key)
        if not isinstance(value, tuple):
            return self.number(key)
        if any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in value):
            self.refuse(key, "whole numbers")
        return value
