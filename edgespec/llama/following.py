"""Heads that follow a loaded target: opened, checked, and the target told what they read."""

from __future__ import annotations

import os

from edgespec.models.identity import file_identity

from ..errors import ModelLoadError
from ..heads.eagle_file import EagleFile, check_fits
from . import binding
from .context import NO_STATES, Context
from .head import HeadContext
from .interrupt import held_back
from .taps import FinalStates, LayerInputs, NextnRows
from .unstable import check_layer_inputs, runs_mtp, unstable


def open_eagle(head: EagleFile, target: Context, *, identities: tuple[str, ...] = ()) -> HeadContext:
    """An EAGLE head for a target, which feeds it from now on. identities: of the target's files, if known.

    Raises ModelLoadError where it does not fit, or where this llama.cpp cannot give what it reads.
    """
    header = target.model.header
    size = target.state_size
    check_fits(
        head,
        header,
        identities=identities or (file_identity(header),),
        n_embd=size,
        vocab_size=target.vocab.size,
    )
    unstable()
    if head.layers:
        check_layer_inputs(header, head.layers)
    elif not target.gives_states:
        raise ModelLoadError(f"{header.path.name}: {NO_STATES}; leave them out with --heads none")
    lib, path = binding.lib(), head.header.path
    params = lib.llama_model_default_params()
    params.n_gpu_layers = target.settings.offload
    params.load_mode = binding.LOAD_MMAP
    binding.take_errors()
    with held_back():
        model = lib.llama_model_load_from_file(os.fsencode(path), params)
    if not model:
        why = " ".join((binding.take_errors() or "no reason given").split())
        raise ModelLoadError(f"llama.cpp cannot load the EAGLE head {path.name}: {why}")
    encoded = len(head.layers) * size
    try:
        context = HeadContext(model, target, name=f"EAGLE head {path.name}", width=head.n_embd, encoded=encoded)
    except BaseException:
        lib.llama_model_free(model)
        raise
    target.listen(LayerInputs(head.layers, size) if head.layers else FinalStates(size))
    return context


def open_mtp(target: Context) -> HeadContext:
    """The MTP layers in a target's own file, loaded with it (LoadSettings.mtp). Raises ModelLoadError."""
    header = target.model.header
    if not runs_mtp(header) or not target.model.settings.mtp:
        raise ModelLoadError(f"{header.path.name} has no MTP layers that are loaded; choose another drafter")
    unstable()
    size = target.state_size
    context = HeadContext(
        target.model.handle, target, name=f"MTP layers of {header.path.name}", width=size, shift=1, mtp=True, owns=False
    )
    target.listen(NextnRows(size))
    return context
