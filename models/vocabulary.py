"""The vocabulary of a file as llama.cpp would read it, from the header alone.

Kinds, default special tokens and the repair of empty tokens follow llama.cpp (src/llama-vocab.cpp).
"""

from __future__ import annotations

import functools
import hashlib
import struct
from collections.abc import Sequence
from typing import Protocol

from ..errors import ModelLoadError
from .header import ArraySpan, Header, opened
from .quoting import quoted

LARGEST, MOST_TOKENS = 32 << 20, 1 << 20  # of a vocabulary that is read; the largest have some 6 MB, 260,000 tokens

# tokenizer.ggml.model: llama.cpp's name of the kind
_KINDS = {
    "llama": "spm",
    "bert": "wpm",
    "gpt2": "bpe",
    "hybriddna": "bpe",
    "whitespace": "bpe",
    "gemma4": "bpe",
    "t5": "ugm",
    "rwkv": "rwkv",
    "plamo2": "plamo2",
}
_DEFAULT_BOS = {"spm": 1, "wpm": 101, "bpe": 11, "plamo2": 1}
_DEFAULT_EOS = {"spm": 2, "bpe": 11, "ugm": 1, "plamo2": 2}
_NO_BOS = ("chatglm-bpe", "glm4", "glm5", "gemma4")  # pre-tokenizers without a default BOS
_ADDING_KINDS = ("spm", "wpm")
_ADDING = (  # pre-tokenizers that add BOS unless the file says otherwise
    "llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano",
    "tekken", "chameleon",
)  # fmt: skip


class Vocabulary(Protocol):
    """What decides whether two models mean the same texts by the same ids. A loaded model's vocabulary is one too."""

    @property
    def type(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def bos(self) -> int | None: ...
    @property
    def add_bos(self) -> bool: ...
    @property
    def eos(self) -> int | None: ...
    @property
    def add_eos(self) -> bool: ...
    @property
    def texts(self) -> Sequence[bytes]: ...


class FileVocabulary:
    """The vocabulary in a file. Texts are read when they are asked for. type "none": the file has no vocabulary."""

    def __init__(self, header: Header) -> None:
        tokenizer = header.tokenizer
        span = header.metadata.get("tokenizer.ggml.tokens")
        self._header = header
        self._span = span if isinstance(span, ArraySpan) else None
        # gemma4 is a kind of its own there, whatever the file says of its pre-tokenizer.
        pre = "gemma4" if tokenizer.model == "gemma4" else tokenizer.pre or ""
        self.type = "none" if self._span is None else _KINDS.get(tokenizer.model or "", "unknown")
        self.size = 0 if self._span is None else self._span.count
        default = None if pre in _NO_BOS else _DEFAULT_BOS.get(self.type)
        bos = default if tokenizer.bos_id is None else tokenizer.bos_id
        self.bos = bos if bos is not None and bos < self.size else None
        adds = self.type in _ADDING_KINDS or (self.type == "bpe" and pre in _ADDING)
        self.add_bos = (adds if tokenizer.add_bos is None else tokenizer.add_bos) or pre == "gemma4"
        eos = _DEFAULT_EOS.get(self.type) if tokenizer.eos_id is None else tokenizer.eos_id
        self.eos = eos if eos is not None and eos < self.size else None
        ends = header.metadata.get("tokenizer.ggml.add_eos_token")
        self.add_eos = ends if isinstance(ends, bool) else self.type == "ugm"

    @property
    def texts(self) -> Sequence[bytes]:
        """All token texts in id order, as llama.cpp keeps them. Raises ModelLoadError."""
        return _texts(self._stored())

    @functools.cached_property
    def identity(self) -> str:
        """Equal for files whose vocabularies are the same, token for token. Raises ModelLoadError."""
        return hashlib.sha256(f"{self.type} ".encode() + self._stored()).hexdigest()

    def _stored(self) -> bytes:
        span, header = self._span, self._header
        if span is None:
            return b""
        if span.nbytes > LARGEST or span.count > MOST_TOKENS:
            raise ModelLoadError(f"the vocabulary of {quoted(header.path)} has {span.count:,} tokens; that is no model")
        with opened(header.path) as reader:
            if reader.size != header.file_size:
                raise ModelLoadError(f"{quoted(header.path)} has changed since its header was read; read it again")
            reader.skip(span.offset)
            return reader.take(span.nbytes)


@functools.lru_cache(maxsize=4)  # a list compares each file with many others
def _texts(stored: bytes) -> Sequence[bytes]:
    unpack = struct.Struct("<Q").unpack_from
    found: list[bytes] = []
    at, end = 0, len(stored)
    while at < end:
        start = at + 8
        at = start + (unpack(stored, at)[0] if start <= end else end)
        if at > end:  # the file was changed while it was read
            raise ModelLoadError("a vocabulary is damaged; download the model again")
        text = stored[start:at]
        if 0 in text:  # C strings end there
            text = text[: text.index(0)]
        found.append(text or b"[EMPTY_%d]" % len(found))
    return tuple(found)
