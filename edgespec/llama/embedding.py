"""Embeddings of texts, by a model that was trained for them: its file names how the tokens' vectors become one."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgespec.models.header import Header

from ..errors import BadRequestError, Cancelled, ContextFullError, DecodeError, ModelLoadError
from . import binding
from .batch import Batch
from .interrupt import Interrupt, held_back
from .model import Model

MAX_TOKENS = 2048  # of one text: all of it is one decode, whose buffers grow with it
_POOLINGS = {1: "mean", 2: "cls", 3: "last"}  # llama.cpp's enum; 0: none, 4: the score of a reranker
_ENCODERS = {
    "bert", "modern-bert", "neo-bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3", "eurobert",
    "gemma-embedding",
}  # fmt: skip
_RANK, _ABORTED = 4, 2
_TINY = 1e-12


def no_embeddings(header: Header) -> str:
    """Why this file's model makes no embeddings; empty where it does."""
    pooling = header.metadata.get(f"{header.arch}.pooling_type")
    if pooling in _POOLINGS:
        return ""
    if pooling == _RANK:
        return "this model ranks texts, it makes no embeddings of them; use an embedding model"
    return "this model was not made for embeddings (its file names no pooling); use an embedding model"


def only_embeds(header: Header) -> bool:
    """Whether this file's model reads in both directions, so that it can generate nothing."""
    return header.arch in _ENCODERS or header.metadata.get(f"{header.arch}.attention.causal") is False


class Embedder:
    """A context beside the one that generates, for embeddings alone. Safe to call from threads.

    Raises BadRequestError where the model makes none, ModelLoadError where there is no room.
    """

    def __init__(self, model: Model, n_threads: int) -> None:
        if why := no_embeddings(model.header):
            raise BadRequestError(why)
        self._lib = binding.lib()
        self._model = model
        self.n_ctx = min(MAX_TOKENS, model.n_ctx_train or MAX_TOKENS)
        self.size = model.embedding_size
        self._handle = self._open(n_threads)
        self._memory = self._lib.llama_get_memory(self._handle)
        self._batch = Batch(self.n_ctx)
        self._interrupt = Interrupt()
        self._turn = threading.RLock()
        model.opened(self)

    def ids(self, text: str) -> tuple[int, ...]:
        """Ids of a text between the tokens that the model wants around it. What it spells is text."""
        data = text.encode("utf-8", "replace")
        size = len(data) + 16
        while True:
            buffer = (ctypes.c_int32 * size)()
            n = self._lib.llama_tokenize(self._model.vocab.handle, data, len(data), buffer, size, True, False)
            if n >= 0:
                return tuple(buffer[:n])
            size = -n

    def embed(self, ids: Sequence[int], cancel: threading.Event | None = None) -> NDArray[np.float32]:
        """The embedding of these tokens: shape (size,), float32, of length 1.

        Raises BadRequestError, ContextFullError, Cancelled, DecodeError.
        """
        self.check(ids)
        with self._turn:
            if not self._handle:
                raise DecodeError("this model is closed")
            self._decode(ids, cancel)
            pointer = self._lib.llama_get_embeddings_seq(self._handle, 0)
            if not pointer:
                raise DecodeError("llama.cpp gave no embedding")
            vector = np.ctypeslib.as_array(pointer, (self.size,)).astype(np.float32)
        return vector / np.float32(max(float(np.linalg.norm(vector)), _TINY))

    def check(self, ids: Sequence[int]) -> None:
        """Raise what embed() would say of these tokens: BadRequestError, ContextFullError."""
        if not ids:
            raise BadRequestError("an input is empty; give some text")
        if len(ids) > self.n_ctx:
            raise ContextFullError(
                f"an input has {len(ids)} tokens and an embedding takes {self.n_ctx}; cut it into parts",
                needed=len(ids),
                available=self.n_ctx - 1,
            )
        for token in ids:
            self._model.vocab.check(token)

    def close(self) -> None:
        """Free the context."""
        with self._turn:
            if self._handle:
                self._lib.llama_free(self._handle)
                self._handle = None

    def _open(self, n_threads: int) -> Any:
        params = self._lib.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = params.n_outputs_max = self.n_ctx
        params.n_seq_max = 1
        params.n_threads = params.n_threads_batch = n_threads
        params.flash_attn_type = self._model.settings.flash_attention
        params.embeddings = True
        params.no_perf = True
        binding.take_errors()
        with held_back():
            handle = self._lib.llama_init_from_model(self._model.handle, params)
        if not handle:
            why = binding.take_errors() or "llama.cpp gave no reason"
            raise ModelLoadError(f"no context of {self.n_ctx} tokens for embeddings: {why}")
        return handle

    def _decode(self, ids: Sequence[int], cancel: threading.Event | None) -> None:
        if self._memory:  # some models keep none
            self._lib.llama_memory_clear(self._memory, True)
        self._batch.clear()
        self._batch.add(0, 0, ids, outputs=len(ids))
        with held_back() as held:
            self._interrupt.watch(self._handle, len(ids), [cancel] if cancel else [], held)
            code = int(self._lib.llama_decode(self._handle, self._batch.struct))
        if self._interrupt.error is not None:
            raise self._interrupt.error
        if code == _ABORTED:
            raise Cancelled("cancelled")
        if code:
            raise DecodeError(f"llama_decode failed with code {code}: {binding.take_errors() or 'no reason given'}")
        self._lib.llama_synchronize(self._handle)
