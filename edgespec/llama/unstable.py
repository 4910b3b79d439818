"""Functions of llama.cpp that are exported but no part of its stable interface (src/llama-ext.h).

Everything that is known about them is here: their names, which are those of C++ and differ between compilers, and on
which architectures they work. llama.cpp ends the process where it is asked for what a graph does not have, so whoever
calls checks first: `check_layer_inputs`, `runs_mtp`. A build without these functions is refused with one line.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

from edgespec.models.header import Header
from edgespec.models.quoting import quoted

from ..errors import ModelLoadError
from . import binding

# Names as GCC and Clang make them; a linker of another kind has others, and is refused.
SYMBOLS: dict[str, tuple[str, Any, tuple[Any, ...]]] = {
    "set_layer_input": (
        "_Z30llama_set_embeddings_layer_inpP13llama_contextjb",
        None,
        (ctypes.c_void_p, ctypes.c_uint32, ctypes.c_bool),
    ),
    "layer_input": (
        "_Z30llama_get_embeddings_layer_inpP13llama_contextj",
        ctypes.c_void_p,
        (ctypes.c_void_p, ctypes.c_uint32),
    ),
    "set_nextn": (
        "_Z26llama_set_embeddings_nextnP13llama_contextbb",
        None,
        (ctypes.c_void_p, ctypes.c_bool, ctypes.c_bool),
    ),
    "nextn": ("_Z26llama_get_embeddings_nextnP13llama_context", ctypes.c_void_p, (ctypes.c_void_p,)),
}

# Whose graphs name the input of every layer (res->t_layer_inp in src/models). Elsewhere llama.cpp aborts.
LAYER_INPUTS = frozenset({
    "llama", "qwen3", "qwen3moe", "qwen3next", "qwen35", "qwen35moe", "gemma4", "gpt-oss", "lfm2", "lfm2moe", "mimo2",
    "minimax-m2", "nanbeige", "nemotron_h", "nemotron_h_moe",
})  # fmt: skip
# Which have a graph for their MTP layers (LLM_GRAPH_TYPE_DECODER_MTP) that needs nothing of the target's own cache.
MTP_GRAPHS = frozenset({
    "cohere2moe", "glm4moe", "hy_v3", "mimo2", "nemotron_h_moe", "qwen35", "qwen35moe", "qwen3next", "step35",
})  # fmt: skip
_SEVERAL = frozenset(("hy_v3", "mimo2", "step35"))  # may have several MTP layers; the first one drafts


class Unstable:
    """The functions, by the names in SYMBOLS: set_layer_input(context, layer, on), layer_input(context, layer),
    set_nextn(context, on, masked) and nextn(context)."""

    set_layer_input: Any
    layer_input: Any
    set_nextn: Any
    nextn: Any

    def __init__(self, library: Any) -> None:
        """library: a ctypes library. Raises ModelLoadError where it lacks one of them."""
        for name, (symbol, result, arguments) in SYMBOLS.items():
            try:
                function = getattr(library, symbol)
            except AttributeError:
                raise ModelLoadError(
                    f"this llama.cpp build has no function {symbol}, which EAGLE heads and MTP layers need; "
                    "install the llama-cpp-python that EdgeSpec asks for, or leave them out with --heads none"
                ) from None
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)


@functools.cache
def unstable() -> Unstable:
    """Of the loaded library. Raises ModelLoadError."""
    # A handle of its own: types set on it are not those of the binding.
    return Unstable(ctypes.CDLL(binding.lib()._lib._name))


def check_layer_inputs(header: Header, layers: Sequence[int]) -> None:
    """Raise ModelLoadError unless llama.cpp gives the inputs of these layers of a model."""
    if header.arch not in LAYER_INPUTS:
        raise ModelLoadError(
            f"{quoted(header.path)} is of architecture {quoted(header.arch)}, of which llama.cpp gives no layer's "
            "input, so an EAGLE-3 head cannot read it; leave the head out with --heads none"
        )
    trunk = (header.block_count or 0) - header.mtp_layers
    if any(not 0 <= layer < trunk for layer in layers):
        raise ModelLoadError(
            f"the EAGLE-3 head reads the layers {', '.join(map(str, layers))} and {quoted(header.path)} has {trunk}; "
            "give a head that was made for it"
        )


def runs_mtp(header: Header) -> bool:
    """Has a file layers for multi-token prediction that llama.cpp drafts with?"""
    count = header.mtp_layers
    return header.arch in MTP_GRAPHS and (count == 1 or (count > 1 and header.arch in _SEVERAL))
