"""Which drafts there are for a target, which may draft for it, and what each promises.

What is promised comes from decode times that were measured here, where they were, else from the bytes that a step
reads and a usual curve. Acceptance is what `edgespec tune` counted for the pair, else a usual one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgespec.models.catalog import Entry, catalog
from edgespec.models.compat import Comparison
from edgespec.models.header import Header, read_header
from edgespec.models.local import LocalModel, file_number, local_models, whole_size
from edgespec.models.memory import estimate
from edgespec.models.names import find_file
from edgespec.models.quoting import one_line

from .costs import CostTable
from .errors import EdgeSpecError
from .llama.measure import known_costs
from .tuned import Agreement, record_of, tuned_copy
from .tuning.choice import expected

# Times of decodes by rows against one row, where they were not measured: four-row kernels of a CPU.
USUAL = CostTable((1, 2, 3, 4, 6, 8), (1.0, 1.6, 1.7, 1.6, 2.2, 2.4))
ACCEPTANCE = 0.7  # of a guess, where it was not counted: usual for a draft of the same family

Basis = Literal["measured times", "file sizes"]


@dataclass(frozen=True, slots=True)
class Promise:
    """cost_ratio: time of a draft step over a target step.  speedup: over plain decoding, with the best number of
    guesses.  basis: of the ratio."""

    cost_ratio: float
    speedup: float
    basis: Basis


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible draft. name: what to call it.  path: its file; None: it is in the catalogue and not here.

    compatible: None: not known before the file is here.  reason: why not, or what to do; one line.
    memory: bytes it takes beside the target.  promise: None where it may not draft.
    """

    name: str
    path: Path | None
    compatible: bool | None
    reason: str = ""
    memory: int | None = None
    promise: Promise | None = None


def candidates(target: Header, n_ctx: int) -> tuple[Candidate, ...]:
    """All local models but the target itself, then the catalogue's drafts that are not here; the best promise first.

    n_ctx: tokens of context, for memory.
    """
    compare = Comparison()
    own = file_number(target.path)
    others = (model for model in local_models() if file_number(model.path) != own)
    found = [_local(target, model, n_ctx, compare) for model in others]
    found += _catalogued(target)
    return tuple(sorted(found, key=_order))


def promise(target: Header, draft: Header) -> Promise:
    """What a draft promises, as both files would be loaded: with their tuned copies."""
    agreed = _agreement(target, draft)
    target = read_header(tuned_copy(target.path, "target")[0])
    draft = read_header(tuned_copy(draft.path, "draft")[0])
    mine, theirs = known_costs(target), known_costs(draft)
    if mine is not None and theirs is not None:
        return _promise(mine, theirs.at(1) / mine.at(1), agreed, "measured times")
    return _promise(mine or USUAL, step_bytes(draft) / max(1, step_bytes(target)), agreed, "file sizes")


def step_bytes(header: Header) -> int:
    """Bytes of weights that one decode reads: of experts those in use, of input embeddings a row."""
    untied = any(tensor.name == "output.weight" for tensor in header.tensors)
    experts, used = (header.metadata.get(f"{header.arch}.{key}") for key in ("expert_count", "expert_used_count"))
    share = used / experts if isinstance(experts, int) and isinstance(used, int) and 0 < used <= experts else 1.0
    total = 0.0
    for tensor in header.tensors:
        if not (untied and tensor.name == "token_embd.weight"):
            total += tensor.nbytes * (share if "_exps." in tensor.name else 1.0)
    return int(total * whole_size(header.path) / max(1, header.file_size))


def _local(target: Header, model: LocalModel, n_ctx: int, compare: Comparison) -> Candidate:
    try:
        header = read_header(model.path)
        verdict = compare(target, header)
        if not verdict.ok:
            return Candidate(model.name, model.path, False, verdict.reason)
        memory = estimate(header, min(n_ctx, header.context_length or n_ctx)).beside + model.size - header.file_size
        return Candidate(model.name, model.path, True, "", memory, promise(target, header))
    except (EdgeSpecError, OSError) as error:
        return Candidate(model.name, model.path, False, one_line(str(error), 400))


def _catalogued(target: Header) -> Iterator[Candidate]:
    entries = catalog()
    own = entries.of_file(target.path)
    for entry in entries.entries:
        if entry.role != "target" and entry is not own and find_file(entry) is None:
            yield _not_here(target, own, entry)


def _not_here(target: Header, own: Entry | None, entry: Entry) -> Candidate:
    pull = f"not here; get it with `edgespec pull {entry.name}`"
    if own is None:
        return Candidate(entry.name, None, None, pull)
    if own.family != entry.family:
        return Candidate(entry.name, None, False, f"of another family: {entry.family}, not {own.family}")
    ratio = entry.size / max(1, target.file_size)
    return Candidate(entry.name, None, True, pull, entry.size, _promise(USUAL, ratio, _USUAL_AGREEMENT, "file sizes"))


def _promise(target: CostTable, ratio: float, agreed: Agreement, basis: Basis) -> Promise:
    draft = CostTable((1,), (ratio * target.at(1),))
    return Promise(ratio, expected(target, draft, agreed).speedup, basis)


_USUAL_AGREEMENT = Agreement(ACCEPTANCE, ACCEPTANCE, 0)


def _agreement(target: Header, draft: Header) -> Agreement:
    """Counted by `edgespec tune` for this draft and a target of this name, if it was."""
    record = record_of(draft)
    finding = None if record is None else record.draft
    if finding is None or finding.target != target.path.name:
        return _USUAL_AGREEMENT
    trial = next((trial for trial in finding.trials if trial.type == finding.type), None)
    return _USUAL_AGREEMENT if trial is None or trial.agreement is None else trial.agreement


def _order(candidate: Candidate) -> tuple[int, float, str]:
    """What can draft now, what could, what nobody knows, what cannot; the best promise first."""
    rank = {True: 0 if candidate.path is not None else 1, None: 2, False: 3}[candidate.compatible]
    return rank, -(candidate.promise.speedup if candidate.promise else -math.inf), candidate.name
