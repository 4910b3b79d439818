"""Published Medusa checkpoints (FasterDecoding/medusa-* on the Hub), as heads of ours.

Their `medusa_lm_head` file names the tensors of head k: "k.j.linear.weight" and "k.j.linear.bias" for its residual
blocks j = 0, 1, ..., then "k.L.weight" for its output matrix (Medusa's medusa_model.py). A prefix "medusa_head."
stands before them where the heads lie in one file with a model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import BadRequestError, ModelLoadError, ModelNotFoundError
from .medusa import MAX_HEADS, Block, Facts, MedusaHeads

Floats = NDArray[np.float32]

_NAMES = ("medusa_lm_head.safetensors", "medusa_lm_head.pt")
_KEY = re.compile(r"(?:medusa_head\.)?(\d{1,3})\.(\d{1,3})\.(linear\.weight|linear\.bias|weight)")
_TYPES = {"F32": np.float32, "F16": np.float16, "F64": np.float64, "BF16": np.uint16}


def read_published(path: Path, *, target: str = "", target_name: str = "") -> MedusaHeads:
    """Heads of a file, or of a folder that has one. target, target_name: as of Facts.

    Raises ModelNotFoundError, ModelLoadError, and BadRequestError where a .pt file needs torch, which is not there.
    """
    file = _file(path)
    tensors = _torch(file) if file.suffix in (".pt", ".bin", ".pth") else _safetensors(file)
    found: dict[int, dict[int, dict[str, Floats]]] = {}
    for name, value in tensors.items():
        if key := _KEY.fullmatch(name):
            found.setdefault(int(key[1]), {}).setdefault(int(key[2]), {})[key[3]] = value
    if not found:
        raise ModelLoadError(f"{file.name} has no Medusa heads; their tensors are called 0.0.linear.weight, 0.1.weight")
    if sorted(found) != list(range(len(found))) or len(found) > MAX_HEADS:
        raise ModelLoadError(f"{file.name} has the heads {sorted(found)}; they must count from 0, {MAX_HEADS} at most")
    blocks, projections = zip(*(_head(file, k, found[k]) for k in range(len(found))), strict=True)
    vocab_size, n_embd = projections[0].shape
    facts = Facts(vocab_size, n_embd, target, target_name, recipe=f"converted from {file.name}")
    try:
        return MedusaHeads(facts, np.arange(vocab_size, dtype=np.int64), blocks, projections)
    except BadRequestError as error:
        raise ModelLoadError(f"{file.name} cannot be used: {error}") from error


def _head(file: Path, k: int, layers: Mapping[int, Mapping[str, Floats]]) -> tuple[tuple[Block, ...], Floats]:
    last = max(layers)
    blocks = []
    for j in range(last):
        layer = layers.get(j, {})
        if "linear.weight" not in layer or "linear.bias" not in layer:
            raise ModelLoadError(f"{file.name} lacks {k}.{j}.linear.weight or .bias; fetch the checkpoint again")
        blocks.append(Block(layer["linear.weight"], layer["linear.bias"]))
    projection = layers[last].get("weight")
    if projection is None or projection.ndim != 2:
        raise ModelLoadError(f"{file.name} lacks the output matrix {k}.{last}.weight; fetch the checkpoint again")
    return tuple(blocks), projection


def _file(path: Path) -> Path:
    if path.is_file():
        return path
    for name in _NAMES:
        if (path / name).is_file():
            return path / name
    if path.is_dir():
        raise ModelNotFoundError(
            f"{path} has neither {' nor '.join(_NAMES)}; give a file, or a folder with one of them"
        )
    raise ModelNotFoundError(f"there is no file or folder {path}; give a Medusa checkpoint")


def _safetensors(file: Path) -> dict[str, Floats]:
    from safetensors import SafetensorError, deserialize

    try:
        entries = cast(Any, deserialize)(file.read_bytes())
    except SafetensorError as error:
        raise ModelLoadError(f"{file.name} is no whole safetensors file ({error}); fetch it again") from error
    found = {}
    for name, entry in entries:
        if _KEY.fullmatch(name):
            found[name] = _floats(file, name, entry)
    return found


def _floats(file: Path, name: str, entry: Mapping[str, Any]) -> Floats:
    kind = entry["dtype"]
    if kind not in _TYPES:
        raise ModelLoadError(f"{file.name}: tensor {name} is of type {kind}; {', '.join(_TYPES)} can be read")
    values: NDArray[Any] = np.frombuffer(entry["data"], _TYPES[kind]).reshape(entry["shape"])
    if kind == "BF16":  # the upper half of a float32
        values = (values.astype(np.uint32) << 16).view(np.float32)
    return np.ascontiguousarray(values, dtype=np.float32)


def _torch(file: Path) -> dict[str, Floats]:
    """Tensors of a file that torch pickled, read by torch with nothing but tensors allowed in it."""
    try:
        import torch
    except ImportError:
        raise BadRequestError(
            f"{file.name} is in PyTorch's own form; install torch to read it, or give a .safetensors file"
        ) from None
    try:
        loaded = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises what its unpickler and its archive reader raise
        why = " ".join(str(error).split())[:120]
        raise ModelLoadError(f"torch cannot read {file.name} as tensors alone ({why}); fetch it again") from error
    if not isinstance(loaded, dict):
        raise ModelLoadError(f"{file.name} holds no tensors by name; give a medusa_lm_head file")
    return {
        str(name): np.ascontiguousarray(value.float().numpy(), dtype=np.float32)
        for name, value in loaded.items()
        if isinstance(value, torch.Tensor) and _KEY.fullmatch(str(name))
    }
