"""Weights and vocabulary of one GGUF file, loaded through llama.cpp."""

from __future__ import annotations

import ctypes
import logging
import os
import re
import weakref
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from edgespec.models.header import Header, read_header

from ..errors import DecodeError, ModelLoadError
from ..machine import library_file
from ..profile import Buffers
from . import binding, probe
from .interrupt import held_back
from .settings import LoadSettings, Progress
from .vocab import LlamaVocab

if TYPE_CHECKING:
    from .context import Context
    from .embedding import Embedder

log = logging.getLogger(__name__)

# What ggml's repack buffers take on every x86 with AVX2 and on ARM with i8mm. Other types would crash there.
_REPACKED_TYPES = {"Q4_0", "Q4_K", "IQ4_NL"}
_REPACKED_ROWS = 8


class Model:
    """A loaded model: weights, vocabulary, metadata. Open a Context on it to decode.

    Raises ModelNotFoundError, ModelLoadError (from the header or from llama.cpp), BadRequestError.
    """

    def __init__(
        self,
        path: str | Path,
        settings: LoadSettings | None = None,
        *,
        progress: Progress | None = None,
        trust_kernels: bool = False,
    ) -> None:
        """Load `path`. progress: called with 0.0 to 1.0. trust_kernels: skip the crash probe (used by the probe)."""
        self.settings = settings or LoadSettings()
        self.path = Path(path)
        self.header: Header = read_header(self.path)
        if self.header.arch == "eagle3":
            raise ModelLoadError(f"{self.path.name} is an EAGLE head and no model; give it with --heads")
        self._lib = binding.lib()
        self.buffers: Buffers = self.settings.buffers if trust_kernels else probe.usable(self.settings.buffers)
        self._keep: list[Any] = []  # what llama.cpp holds pointers to
        # Rows of a decode -> rows to run instead, where those take less time. Set once times are measured.
        self.padding: dict[int, int] = {}
        self._contexts: weakref.WeakSet[Context | Embedder] = weakref.WeakSet()
        self._handle = self._load(progress)
        self.vocab = LlamaVocab(
            self.handle, add_space_prefix=bool(self.header.metadata.get("tokenizer.ggml.add_space_prefix", True))
        )
        if self.vocab.size == 0:
            self.close()
            raise ModelLoadError(f"{self.path.name} has no vocabulary; it cannot generate text")
        if self._lib.llama_model_has_encoder(self.handle) or self._lib.llama_model_is_diffusion(self.handle):
            self.close()
            raise ModelLoadError(f"{self.path.name} ({self.header.arch}) is not a left-to-right text model")

    @property
    def handle(self) -> Any:
        """The llama_model pointer. Raises DecodeError once closed."""
        if not self._handle:
            raise DecodeError("this model is closed")
        return self._handle

    @property
    def n_ctx_train(self) -> int:
        """Context length the model was trained for."""
        return int(self._lib.llama_model_n_ctx_train(self.handle))

    @property
    def embedding_size(self) -> int:
        """Numbers of an embedding, for models that make some."""
        return int(self._lib.llama_model_n_embd_out(self.handle))

    @property
    def recurrent(self) -> bool:
        """True where some layers keep a running state instead of a KV cache."""
        return bool(self._lib.llama_model_is_recurrent(self.handle) or self._lib.llama_model_is_hybrid(self.handle))

    @property
    def chat_template(self) -> str | None:
        """The template source in the file, or None."""
        raw = self._lib.llama_model_chat_template(self.handle, None)
        return raw.decode("utf-8", "replace") if raw else None

    @property
    def weight_bytes(self) -> int:
        """Size of all tensors."""
        return int(self._lib.llama_model_size(self.handle))

    def opened(self, context: Context | Embedder) -> None:
        """Remember a context: it must not outlive the weights."""
        self._contexts.add(context)

    def close(self) -> None:
        """Close the contexts on this model and free the weights."""
        for context in list(self._contexts):
            context.close()
        if self._handle:
            self.vocab.close()
            self._lib.llama_model_free(self._handle)
            self._handle = None

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _load(self, progress: Progress | None) -> Any:
        params = self._lib.llama_model_default_params()
        params.n_gpu_layers = self.settings.offload
        params.load_mtp = self.settings.mtp
        # Repacked weights are copies: mapping the file as well would hold them in memory twice.
        params.load_mode = binding.LOAD_MMAP if self.buffers == "none" else binding.LOAD_NONE
        params.use_extra_bufts = self.buffers == "auto"
        if self.buffers == "repack":
            overrides = self._repack_overrides()
            params.tensor_buft_overrides = ctypes.cast(overrides, ctypes.c_void_p)
        stop: list[BaseException] = []

        def report(fraction: float, _: object) -> bool:
            try:
                if progress:
                    progress(float(fraction))
                return not held.pressed
            except BaseException as error:  # an exception must not cross C frames; it goes on after the call
                stop.append(error)
                return False

        callback = type(params.progress_callback)(report)
        params.progress_callback = callback
        binding.take_errors()
        handle = None
        try:
            with held_back() as held:
                handle = self._lib.llama_model_load_from_file(os.fsencode(self.path), params)
            if stop:
                raise stop[0]
        except BaseException:
            if handle:
                self._lib.llama_model_free(handle)
            raise
        if not handle:
            why = re.sub(r"\s+", " ", binding.take_errors()) or "no reason given"
            raise ModelLoadError(f"llama.cpp cannot load {self.path.name}: {why}")
        return handle

    def _repack_overrides(self) -> Any:
        """NULL-terminated {pattern, buffer type} pairs that put eligible matrices into repack buffers."""
        lib = self._lib
        try:
            get = lib._lib._Z35ggml_backend_cpu_repack_buffer_typev
        except AttributeError:
            ggml = ctypes.CDLL(str(library_file()))
            try:
                get = ggml._Z35ggml_backend_cpu_repack_buffer_typev
            except AttributeError as error:
                raise ModelLoadError(
                    "this llama.cpp build has no repack buffers; use --buffers auto or none"
                ) from error
        get.restype, get.argtypes = ctypes.c_void_p, []
        patterns = [p.encode() for p in repackable(self.header)]

        class Override(ctypes.Structure):
            _fields_ = (("pattern", ctypes.c_char_p), ("buft", ctypes.c_void_p))

        array = (Override * (len(patterns) + 1))()
        for slot, pattern in zip(array, patterns, strict=False):
            slot.pattern, slot.buft = pattern, get()
        self._keep += [array, patterns]
        return array


def repackable(header: Header) -> list[str]:
    """Few regular expressions for the repackable tensors: llama.cpp compiles each anew for every tensor."""
    layers: dict[str, list[str]] = {}
    plain = []
    for tensor in header.tensors:
        if tensor.type not in _REPACKED_TYPES or len(tensor.shape) != 2 or tensor.shape[1] % _REPACKED_ROWS:
            continue
        found = re.fullmatch(r"blk\.(\d+)\.(.+)", tensor.name)
        if found:
            layers.setdefault(found[2], []).append(found[1])
        elif tensor.name == "output.weight":  # token embeddings are read by row, which repacked buffers cannot do
            plain.append("^output\\.weight$")
    return plain + [rf"^blk\.({'|'.join(ids)})\.{re.escape(suffix)}$" for suffix, ids in layers.items()]
