"""A llama_context: the settings that ours depends on, and what is said where there is none."""

from __future__ import annotations

from typing import Any

from edgespec.models.memory import MICRO_BATCH

from ..errors import ModelLoadError
from . import binding
from .interrupt import held_back
from .model import Model
from .settings import LoadSettings

_NO_POOLING = 0  # each row's own hidden state, whatever the file would make of a text's


def open_handle(model: Model, settings: LoadSettings, *, n_ctx: int, n_batch: int, outputs: int, snapshots: int) -> Any:
    """A llama_context*, for llama_free.

    outputs: most rows of one decode.  snapshots: of a recurrent state, to go back to. Raises ModelLoadError.
    """
    lib = binding.lib()
    params = lib.llama_context_default_params()
    params.n_ctx = n_ctx
    params.n_batch = n_batch
    params.n_ubatch = min(MICRO_BATCH, n_batch)
    params.n_seq_max = settings.sequences
    params.n_rs_seq = snapshots
    params.n_outputs_max = max(outputs, settings.sequences)
    params.n_threads = params.n_threads_batch = settings.n_threads
    params.flash_attn_type = settings.flash_attention
    params.type_k = params.type_v = binding.KV_TYPES[settings.kv_type]
    params.swa_full = True  # a sliding window that forgets cannot roll back
    params.kv_unified = not settings.split
    if model.header.metadata.get(f"{model.header.arch}.pooling_type"):
        params.pooling_type = _NO_POOLING
    params.no_perf = True
    binding.take_errors()
    handle = None
    try:
        with held_back():
            handle = lib.llama_init_from_model(model.handle, params)
    except BaseException:
        if handle:
            lib.llama_free(handle)
        raise
    if not handle:
        raise ModelLoadError(
            f"no context of {n_ctx} tokens for {model.path.name}: "
            f"{binding.take_errors() or 'llama.cpp gave no reason'}; try a smaller --ctx-size"
        )
    return handle
