"""Models to choose from, here or to be fetched, and what a person wants to know of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import psutil

from ..errors import EdgeSpecError
from ..heads.memory import usual_memory
from ..models.catalog import STARTER, catalog
from ..models.entries import Entry
from ..models.header import read_header
from ..models.local import LocalModel, local_models
from ..models.memory import default_context, forecast
from ..models.names import find_file
from ..models.usage import last_used
from ..pairing import Candidate, candidates
from .labels import byte_size, line

_SHOWN_DRAFTS = 4


@dataclass(frozen=True, slots=True)
class Choice:
    """A row. name: as a command takes it.  path: its file, None where it must be fetched.  facts: lines about it.

    entry: of the catalogue.  usable: False for a file that cannot be read.
    """

    name: str
    path: str | None
    summary: str
    facts: tuple[str, ...] = ()
    entry: Entry | None = None
    usable: bool = True


def choices() -> tuple[Choice, ...]:
    """Models that are here, the one used last first, then what can be fetched and fits, the smallest first.

    Drafts alone and parts of models that see pictures are left out. Takes a while: it looks at the disk.
    """
    entries = catalog()
    local = sorted(local_models(), key=lambda m: (-(last_used(m.path) or 0.0), m.size))
    rows = [row for model in local if (row := _local(model, entries.of_file(model.path))) is not None]
    return (*rows, *_fetchable(entries.entries))


def _local(model: LocalModel, entry: Entry | None) -> Choice | None:
    try:
        header = read_header(model.path)
    except (EdgeSpecError, OSError) as error:
        return Choice(model.name, str(model.path), "cannot be used", (line(str(error), 400),), usable=False)
    if header.arch == "clip":
        return None
    context = "" if header.context_length is None else f", context {header.context_length:,}"
    facts = [f"{byte_size(model.size)}, {header.quant or 'unknown quantization'}{context}"]
    try:
        found = forecast(header, None, heads=usual_memory(header))
        facts.append(f"At a context of {found.estimate.n_ctx:,} tokens it {found.fit}.")
    except EdgeSpecError as error:
        facts.append(line(str(error)))
    facts.append(f"In the folder of {model.origin}: {line(str(model.path), 300)}")
    name = entry.title if entry is not None else model.name
    return Choice(str(model.path), str(model.path), f"{line(name, 60)}  {byte_size(model.size)}", tuple(facts), entry)


def _fetchable(entries: Sequence[Entry]) -> list[Choice]:
    memory = psutil.virtual_memory().total / 1e9
    fits = [entry for entry in entries if entry.role != "draft" and entry.min_ram_gb <= memory * 1.1]
    rows = []
    for entry in sorted(fits, key=lambda e: e.size):
        if find_file(entry) is None:
            facts = [
                f"{byte_size(entry.size)}, {entry.quant}, context {entry.context:,}, license {entry.license}",
                f"For machines with {entry.min_ram_gb} GB of memory; this one has {memory:.0f} GB.",
                f"Comes from {entry.sources[0]}. Nothing is fetched before you press Enter.",
            ]
            if entry.draft is not None:
                facts.append(f"Its draft model, {entry.draft}, makes it faster; it is fetched with it.")
            starter = "  small, to try things out" if entry.name == STARTER else ""
            summary = f"{entry.title}  {byte_size(entry.size)}{starter}"
            rows.append(Choice(entry.name, None, summary, tuple(facts), entry))
    return rows


def with_drafts(choice: Choice) -> Choice:
    """The same with what may draft for it, and why the others may not. Takes a while: it reads headers."""
    if choice.path is None or not choice.usable:
        return choice
    try:
        header = read_header(choice.path)
        found = candidates(header, default_context(header))
    except (EdgeSpecError, OSError) as error:
        return replace(choice, facts=(*choice.facts, line(str(error), 300)))
    lines = [_draft(one) for one in found[:_SHOWN_DRAFTS]]
    if len(found) > _SHOWN_DRAFTS:
        lines.append(f"and {len(found) - _SHOWN_DRAFTS} more: edgespec pair {line(choice.name, 60)}")
    lines = lines or ["No other model is here. Guesses come from the text itself."]
    return replace(choice, facts=(*choice.facts, "", "Models that could guess for it:", *lines))


def _draft(one: Candidate) -> str:
    name = line(one.name, 50)
    if not one.compatible or one.promise is None:
        return f"- {name}: {line(one.reason, 160)}"
    if one.promise.speedup <= 1:
        return f"- {name}: it fits, and would make nothing faster"
    if one.path is not None:
        return f"+ {name}: promises {one.promise.speedup:.1f} times the speed"
    return f"+ {name}: would promise {one.promise.speedup:.1f} times; {line(one.reason, 100)}"
