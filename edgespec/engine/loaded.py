"""How an engine comes by its models, and what it says about a loaded one."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import msgspec

from ..api import LLM
from ..dialect import Dialect, dialect_of
from ..drafters import DRAFTERS, select
from ..errors import BadRequestError, ModelLoadError
from ..heads.registry import AUTO
from .protocol import Loaded, LoadSpec

Progress = Callable[[str, float | None], None]
Loader = Callable[[LoadSpec, Progress], LLM]
"""Makes a model: (spec, progress(line, fraction of a file or None)) -> LLM. What progress raises ends the loading."""


def loader(name: str) -> Loader:
    """The loader called "module:function". Raises BadRequestError."""
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadRequestError(f"there is no loader {name!r} ({error}); give module:function") from None
    return found  # type: ignore[no-any-return]  # as the caller promises


def same_weights(one: LoadSpec, other: LoadSpec) -> bool:
    """True where the two differ in nothing but which sources draft."""
    return one == msgspec.structs.replace(other, drafter=one.drafter)


def redrafted(llm: LLM, drafter: str) -> bool:
    """Let a loaded model draft with other sources; False where a load must bring what one needs.

    Raises BadRequestError.
    """
    has = {name: loaded or llm.left_out.get(name, False) for name, loaded in llm.has.items()}
    if drafter == AUTO:
        has |= llm.spared
        has["has_mtp"] &= not has["has_eagle"]  # a model feeds one follower
    if not set(select(drafter, **has)) <= set(llm.usable):
        return False
    llm.use_drafter(drafter)
    if llm.generates and llm.sources and llm.target.can_roll_back:
        llm.measured()
    return True


def description(llm: LLM) -> Loaded:
    """What front ends show of a model."""
    table = None if llm.costs is None else llm.costs.table
    memory = llm.target.memory
    return Loaded(
        name=llm.name,
        path=str(llm.target.model.path),
        n_ctx=llm.target.n_ctx,
        draft=None if llm.draft is None else llm.draft.model.path.name,
        drafter=llm.drafter,
        sources=llm.usable,
        more=_more(llm),
        why=llm.why,
        notes=llm.notes,
        template=llm.target.model.chat_template is not None,
        widths=() if table is None else table.widths,
        ms=() if table is None else table.ms,
        draft_ms=None if llm.draft_costs is None else llm.draft_costs.at(1),
        threads=llm.target.n_threads,
        weight_bytes=memory.weights,
        kv_bytes=memory.kv,
        dialect=_dialect(llm),
        embedding=0 if llm.why_not_embedding else llm.target.model.embedding_size,
        why_not_embedding=llm.why_not_embedding,
        generates=llm.generates,
    )


def _more(llm: LLM) -> tuple[str, ...]:
    """Sources that a load would bring. Of a draft model it is not known before whether there is one."""
    there = {f"has_{row.needs}": name for name, row in DRAFTERS.items() if row.needs != "draft"}
    return tuple(there[has] for has, left in llm.left_out.items() if left and has in there)


def _dialect(llm: LLM) -> Dialect:
    """Of a template that works; whoever uses another one is told what is wrong with it."""
    try:
        template = llm.template
    except ModelLoadError:
        template = None
    return Dialect() if template is None else dialect_of(template, llm.target.vocab)
