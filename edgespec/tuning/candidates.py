"""Which requantizations of a file are worth a trial here, and the disk that they take."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgespec.models.ggml_types import GGML_TYPES
from edgespec.models.header import Header
from edgespec.models.layout import TensorInfo
from edgespec.models.quoting import quoted

from ..errors import EdgeSpecError, ModelLoadError

SPARE = 50_000_000  # bytes to leave free on the disk
_MARGIN = 1.02  # a size is told from the header
_SAME = 0.01  # of the bytes: a file that differs in less is of this type already
_STORAGE = {"q4_0": "Q4_0", "q8_0": "Q8_0", "iq4_nl": "IQ4_NL", "q4_k": "Q4_K"}  # of pure files
_EMBEDDINGS, _OUTPUT = "token_embd.weight", "output.weight"
_MIXTURE_BITS = {"q4_k_m": 4.9}  # bits a weight, of mixtures
_TYPES = {kind.name: kind for kind in GGML_TYPES.values()}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A requantization. type, pure, embeddings: see llama.requantize.  nbytes: about what it takes.

    after: tried only where the copy of this name was the faster one: same kernels, and long to make.
    """

    type: str
    nbytes: int
    pure: bool = True
    embeddings: str | None = None
    after: str | None = None

    @property
    def name(self) -> str:
        """What people read: "q4_0", or "q4_0+q8_0" with embeddings of another type."""
        return self.type if self.embeddings is None else f"{self.type}+{self.embeddings}"


def candidates(header: Header, *, gpu: bool, repacks: bool) -> tuple[Candidate, ...]:
    """What to try for a file, quickest to make first; without what the file is already.

    gpu: the layers run on a GPU.  repacks: this CPU build interleaves rows of 4-bit types. Kernels for such rows
    verify several tokens at once at little more than the cost of one; Q4_0, IQ4_NL and Q4_K have them on x86 and on ARM
    (ggml-cpu/repack.cpp). Embeddings are read row by row, so they stay as they are, and where they are the output
    matrix too, other kernels multiply with it: there Q8_0 is the faster type.
    Raises ModelLoadError for a model in several files.
    """
    if header.split_count > 1:
        raise ModelLoadError(f"{header.path.name} is one of {header.split_count} parts; merge them into one file first")
    found = [_pure(header, "q4_0")]
    if gpu:
        found.append(_mixture(header, "q4_k_m"))
    elif repacks:
        if all(t.name != _OUTPUT for t in header.tensors):
            found.append(_pure(header, "q4_0", embeddings="q8_0"))
        if all(t.shape[0] % _TYPES["Q4_K"].block == 0 for t in _matrices(header)):
            found.append(_pure(header, "q4_k"))
    found.append(_pure(header, "q8_0"))
    if repacks and not gpu:
        found.append(_pure(header, "iq4_nl", after="q4_0"))
    return tuple(candidate for candidate in found if candidate is not None)


def require_space(folder: Path, target: Sequence[Candidate], draft: Sequence[Candidate]) -> None:
    """Raise EdgeSpecError where the disk of `folder` is too full for the copies that are there at one time.

    These are the best so far and the one being tried, and a draft's beside the target's best.
    """
    sizes = [sorted((c.nbytes for c in some), reverse=True) for some in (target, draft)]
    needed = _MARGIN * max(sum(sizes[0][:2]), sum(sizes[0][:1]) + sum(sizes[1][:2])) + SPARE
    free = shutil.disk_usage(_existing(folder)).free
    if free < needed:
        raise EdgeSpecError(
            f"tuning needs {needed / 1e6:.0f} MB free in {quoted(folder)}, which has {free / 1e6:.0f} MB; "
            "free some space or point EDGESPEC_HOME at another disk"
        )


def _pure(header: Header, name: str, *, embeddings: str | None = None, after: str | None = None) -> Candidate | None:
    nbytes, changed = header.data_start + sum(t.nbytes for t in header.tensors), 0
    for tensor in _matrices(header):
        own = embeddings if embeddings is not None and tensor.name in (_EMBEDDINGS, _OUTPUT) else name
        kind = _TYPES[_STORAGE[own]]
        if tensor.type != kind.name and tensor.shape[0] % kind.block == 0:
            nbytes += math.prod(tensor.shape) // kind.block * kind.nbytes - tensor.nbytes
            changed += tensor.nbytes
    if changed < _SAME * header.file_size:
        return None
    return Candidate(name, nbytes, embeddings=embeddings, after=after)


def _mixture(header: Header, name: str) -> Candidate | None:
    if header.quant == name.upper():
        return None
    return Candidate(name, header.data_start + int(header.parameters * _MIXTURE_BITS[name] / 8), pure=False)


def _matrices(header: Header) -> list[TensorInfo]:
    """What llama.cpp quantizes, about: it leaves a few small ones of some models as they are."""
    return [t for t in header.tensors if len(t.shape) > 1 and t.name.endswith("weight") and "norm" not in t.name]


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next((place for place in (folder, *folder.parents) if place.exists()), folder)
