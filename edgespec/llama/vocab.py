"""A model's tokenizer and special tokens, guarded: llama.cpp terminates the process on bad ids."""

from __future__ import annotations

import ctypes
import functools
import hashlib
from collections.abc import Mapping
from typing import Any

from ..errors import BadRequestError, DecodeError
from . import binding

_UNKNOWN, _CONTROL, _USER_DEFINED = 1 << 0, 1 << 3, 1 << 4
TYPES = {0: "none", 1: "spm", 2: "bpe", 3: "wpm", 4: "ugm", 5: "rwkv", 6: "plamo2"}


class LlamaVocab:
    """The vocabulary of a loaded model. Ids run from 0 to size - 1."""

    def __init__(self, model: Any, *, add_space_prefix: bool) -> None:
        self._lib = binding.lib()
        self._pointer: Any = self._lib.llama_model_get_vocab(model)
        self.size: int = self._lib.llama_vocab_n_tokens(self._pointer)
        self.type: str = TYPES.get(self._lib.llama_vocab_type(self._pointer), "unknown")
        self.bos = self._id(self._lib.llama_vocab_bos(self._pointer))
        self.eos = self._id(self._lib.llama_vocab_eos(self._pointer))
        self.add_bos: bool = bool(self._lib.llama_vocab_get_add_bos(self._pointer))
        self.add_eos: bool = bool(self._lib.llama_vocab_get_add_eos(self._pointer))
        self.add_space_prefix = add_space_prefix and self.type == "spm"
        self._pieces: dict[int, bytes] = {}
        self._eog: dict[int, bool] = {}

    @property
    def handle(self) -> Any:
        """The llama_vocab pointer. Raises DecodeError once the model is closed."""
        self.require_open()
        return self._pointer

    def require_open(self) -> None:
        """Raise DecodeError once the model is closed: its vocabulary went with it."""
        if not self._pointer:
            raise DecodeError("this model is closed")

    def close(self) -> None:
        """The model is about to be freed, and its vocabulary with it."""
        self._pointer = None

    def _id(self, token: int) -> int | None:
        return token if 0 <= token < self.size else None

    def check(self, token: int) -> None:
        """Raise BadRequestError for an id outside the vocabulary."""
        if not 0 <= token < self.size:
            raise BadRequestError(f"token id {token} is not in the vocabulary; ids run from 0 to {self.size - 1}")

    def is_eog(self, token: int) -> bool:
        """True for any end-of-generation token."""
        known = self._eog.get(token)
        if known is None:
            self.check(token)
            known = self._eog[token] = bool(self._lib.llama_vocab_is_eog(self.handle, token))
        return known

    def piece(self, token: int) -> bytes:
        """The token's bytes in output text; empty for control tokens."""
        known = self._pieces.get(token)
        if known is None:
            self.check(token)
            known = self._pieces[token] = self._piece(token, special=False)
        return known

    def _piece(self, token: int, *, special: bool) -> bytes:
        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            n = self._lib.llama_token_to_piece(self.handle, token, buffer, size, 0, special)
            if n >= 0:
                return buffer.raw[:n]
            size = -n

    def text(self, token: int) -> str:
        """The token as the vocabulary writes it ("<|im_end|>", "Ġthe")."""
        self.check(token)
        raw = self._lib.llama_vocab_get_text(self.handle, token)
        return raw.decode("utf-8", "replace") if raw else ""

    @functools.cached_property
    def texts(self) -> list[bytes]:
        """All token texts in id order, as the vocabulary writes them."""
        get = self._lib.llama_vocab_get_text
        return [get(self.handle, i) or b"" for i in range(self.size)]

    @functools.cached_property
    def identity(self) -> str:
        """Names the vocabulary: two models with equal identities mean the same texts by the same ids."""
        digest = hashlib.sha256(self.type.encode())
        for text in self.texts:
            digest.update(len(text).to_bytes(4, "little") + text)
        return digest.hexdigest()[:32]

    @functools.cached_property
    def _special(self) -> dict[str, int]:
        attr = self._lib.llama_vocab_get_attr
        found = {}
        for i in range(self.size):
            if attr(self.handle, i) & (_UNKNOWN | _CONTROL | _USER_DEFINED):
                text = self._piece(i, special=True).decode("utf-8", "replace")
                if text:
                    found[text] = i
        return found

    def special_texts(self) -> Mapping[str, int]:
        """Texts that would become control, unknown or user-defined tokens, with their ids."""
        return self._special

    def tokenize(self, text: str | bytes, *, special: bool) -> list[int]:
        """Token ids of `text`, without BOS or EOS.

        special: let control-token texts become control tokens. Never true for what a user typed.  Bytes that are no
        UTF-8 are read as U+FFFD: llama.cpp ends the process at some of them (a code point above U+10FFFF).
        """
        if not isinstance(text, str):
            text = text.decode("utf-8", "replace")
        data = text.encode("utf-8", "replace")
        size = len(data) + 16
        while True:
            buffer = (ctypes.c_int32 * size)()
            n = self._lib.llama_tokenize(self.handle, data, len(data), buffer, size, False, special)
            if n >= 0:
                return list(buffer[:n])
            size = -n

    def detokenize(self, tokens: list[int]) -> bytes:
        """The output bytes of a token list."""
        return b"".join(self.piece(t) for t in tokens)
