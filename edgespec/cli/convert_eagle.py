"""`edgespec convert` of an EAGLE head: nothing to convert, it is checked, copied and registered."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from ..errors import BadRequestError, EdgeSpecError
from ..heads.eagle import KIND, SUFFIX
from ..heads.eagle_file import check_fits, read_eagle
from ..heads.registry import register
from ..llama.unstable import check_layer_inputs
from ..models.header import read_header
from ..models.identity import file_identity
from ..models.names import resolve


def take_eagle(path: Path, out: Path, model: str | None) -> dict[str, Any]:
    """Copy a head to `out` and register it for a model; returns what --json prints. Raises EdgeSpecError, OSError."""
    head = read_eagle(path)
    if model is None:
        raise BadRequestError(
            f"{path.name} is an EAGLE head, which needs no conversion: give it with --heads, or name its model with -m"
        )
    if out.suffix != SUFFIX:
        raise BadRequestError(f"--out is {out}; the name of an EAGLE head must end with {SUFFIX}")
    header = read_header(resolve(model))
    if header.embedding_length is None:
        raise EdgeSpecError(f"{header.path.name} does not say how wide its states are; give the head with --heads")
    identity = file_identity(header)
    check_fits(
        head,
        header,
        identities=(identity,),
        n_embd=header.embedding_length,
        vocab_size=header.tokenizer.vocab_size,
    )
    if head.layers:
        check_layer_inputs(header, head.layers)
    out.parent.mkdir(parents=True, exist_ok=True)
    if not (out.exists() and out.samefile(path)):
        temporary = out.with_name(f"{out.name}.{os.getpid()}.tmp")
        try:
            shutil.copyfile(path, temporary)
            temporary.replace(out)
        finally:
            temporary.unlink(missing_ok=True)
    register(identity, out, KIND)
    return {
        "path": str(out),
        "source": KIND,
        "count": 1,
        "vocabulary": head.vocabulary,
        "n_embd": head.facts.n_embd,
        "bytes": out.stat().st_size,
        "target": str(header.path),
    }
