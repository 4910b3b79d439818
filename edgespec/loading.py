"""load(): a model by name or path, with its draft, at the settings that are fastest here."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

import msgspec

from edgespec.models.compat import RECURRENT_DRAFT
from edgespec.models.header import read_header
from edgespec.models.names import resolve
from edgespec.models.pairs import draft_file
from edgespec.models.usage import Lease

from .api import LLM
from .drafters import DRAFTERS, select
from .drafters.suffix_history import SuffixHistory
from .engine.client import WorkerEngine
from .engine.isolated import IsolatedLLM
from .engine.loaded import Progress
from .engine.protocol import Loading, LoadSpec
from .errors import BadRequestError, EdgeSpecError, ModelLoadError
from .heads.registry import AUTO, NONE
from .llama import Context, LoadSettings, Model, check_vocab
from .llama.embedding import only_embeds
from .llama.profiling import fastest
from .llama.room import plan
from .loading_heads import Found, attach, check_together, find_heads, spared, wants_mtp
from .profile import Forced
from .tuned import Role, tuned_copy

log = logging.getLogger(__name__)

_DRAFT_SEQUENCES = 2  # of a draft model, for each of the target: all of a text, and its latest part
_MOST_SEQUENCES = 256


def load(
    model: str | Path | None = None,
    *,
    draft: str | Path | None = "auto",
    drafter: str = "auto",
    heads: str | Path | None = "auto",
    ctx_size: int | None = None,
    n_batch: int = 512,
    threads: int | None = None,
    gpu_layers: int | None = None,
    draft_gpu_layers: int | None = None,
    kv_type: str = "f16",
    buffers: Literal["auto", "repack", "none"] | None = None,
    flash_attn: Literal["auto", "on", "off"] = "auto",
    parallel: int = 4,
    max_width: int = 32,
    split_cache: bool = False,
    at_once: int = 1,
    suffix_history: bool = False,
    tuned: bool = True,
    progress: Callable[[str, float], None] | None = None,
    announce: Callable[[str], None] | None = None,
    isolated: bool = False,
) -> LLM:
    """Load a model for generation.

    model: a path or a name; None: the starter model.  draft: a path or a name; None and "none": no draft model; "auto":
    the one that `edgespec pair` found best, else the catalogue's, if it is on this disk (LLM.notes says so).
    drafter: "auto" (all that are available), "none", or a comma-separated list of sources.  heads: a file with draft
    heads, Medusa heads or an EAGLE head; None and "none": none; "auto": those registered for the model (`edgespec
    convert` does).  ctx_size: tokens; None: the model's own, capped by free memory.
    threads, gpu_layers, buffers, flash_attn: left out ("auto" for flash_attn), what is fastest here, measured once per
    model (llama.profiling) and draft; files under 32 MB get the defaults of llama.LoadSettings.
    suffix_history: keep replies on disk, for this user alone, and let the suffix drafter draw on them; one
    file per vocabulary, 1 MB at most (drafters.suffix_history.clear_history deletes them).
    tuned: use the copies that `edgespec tune` made of these files, if any (LLM.notes says so); False: the files.
    progress: called with the file's name and 0.0 to 1.0.  announce: told one line before something slow, now and
    later.  split_cache: the context is divided among `parallel` sequences, which is faster for several long requests at
    once; else each may use all that is free.  at_once: requests that will share decodes, which may have other fastest
    settings.  The rest: llama.LoadSettings.
    isolated: in a process of its own, which a crash of llama.cpp ends in place of this one. What is returned is then an
    engine.isolated.IsolatedLLM: the methods for generating text, and none that reach into the model.

    Raises ModelNotFoundError, ModelLoadError, VocabMismatchError, BadRequestError.
    """
    if isolated:
        spec = LoadSpec(
            model=_as_name(model),
            draft="none" if draft is None else str(draft),
            drafter=str(drafter),
            heads=NONE if heads is None else str(heads),
            ctx_size=ctx_size,
            n_batch=n_batch,
            threads=threads,
            gpu_layers=gpu_layers,
            draft_gpu_layers=draft_gpu_layers,
            kv_type=kv_type,
            buffers=buffers,
            flash_attn=flash_attn,
            parallel=parallel,
            max_width=max_width,
            split_cache=split_cache,
            at_once=at_once,
            suffix_history=suffix_history,
            tuned=tuned,
        )
        return cast(LLM, _isolated(spec, progress, announce))
    heads = NONE if heads is None else str(heads)
    # "auto" may find a draft, and heads.
    may = heads != NONE
    with_draft = draft is not None and str(draft) != "none"
    sources = select(str(drafter), has_draft=with_draft, has_heads=may, has_eagle=may, has_mtp=True)
    check_together(sources, str(drafter))
    for flag, value in (("split_cache", split_cache), ("suffix_history", suffix_history), ("tuned", tuned)):
        if not isinstance(value, bool):
            raise BadRequestError(f"{flag} is {value!r}; it must be True or False")
    if isinstance(at_once, bool) or not isinstance(at_once, int) or not 1 <= at_once <= _MOST_SEQUENCES:
        raise BadRequestError(f"at_once is {at_once!r}; it must be a whole number from 1 to {_MOST_SEQUENCES}")
    if suffix_history and "suffix" not in sources:
        raise BadRequestError(
            "the suffix history serves the suffix drafter; add suffix to the drafters, or leave it off"
        )
    settings = LoadSettings(
        n_ctx=ctx_size,
        n_batch=n_batch,
        threads=threads,
        gpu_layers=gpu_layers,
        kv_type=kv_type,
        buffers="auto" if buffers is None else buffers,
        flash_attn=flash_attn,
        sequences=parallel,
        max_width=max_width,
        split=split_cache,
    )
    forced = Forced(
        buffers=buffers,
        flash_attn=None if flash_attn == "auto" else flash_attn,
        threads=threads,
        gpu_layers=gpu_layers,
        kv_type=kv_type,
    )
    on_gpu = gpu_layers if draft_gpu_layers is None else draft_gpu_layers
    draft_settings = replace(
        settings,
        gpu_layers=on_gpu,
        sequences=min(_MOST_SEQUENCES, _DRAFT_SEQUENCES * parallel),
        split=False,
    )
    draft_forced = replace(forced, gpu_layers=on_gpu)
    original = resolve(_as_name(model))
    original_header = read_header(original)
    generates = not only_embeds(original_header)
    sources = sources if generates else ()
    needs_draft = any(DRAFTERS[name].needs == "draft" for name in sources)
    original_draft, partner_note = draft_file(str(draft), original) if needs_draft else (None, None)
    found = find_heads(heads, original_header) if generates else Found()
    if generates:
        there = found.has | (spared(found, heads) if drafter == AUTO else {})
        sources = select(str(drafter), has_draft=original_draft is not None, **there)
    path, note = _form(original, "target", tuned=tuned)
    draft_path, draft_note = (None, None) if original_draft is None else _form(original_draft, "draft", tuned=tuned)
    # Both before one is loaded: weights that are measured should not lie beside others.
    if generates:
        settings = fastest(path, settings, forced, at_once, announce=announce)
    if draft_path is not None:
        draft_settings = fastest(draft_path, draft_settings, draft_forced, at_once, announce=announce)
    small = None if draft_path is None else (draft_path, draft_settings)
    planned = plan(path, settings, small, found.memory(sources, original_header))
    settings = replace(planned.target.settings, mtp=wants_mtp(found, sources))
    if planned.draft is not None:
        draft_settings = planned.draft.settings
    if announce is not None and (line := planned.shortage()) is not None:
        announce(line)
    lease = Lease(file for file in (original, original_draft) if file is not None)
    try:
        needed = partner_note is None or drafter != "auto"
        target, draft_context = _opened(path, settings, draft_path, draft_settings, progress, needed=needed)
    except BaseException:
        lease.end()
        raise
    llm = LLM(target, draft_context, ())
    llm.notes = tuple(line for line in (note, partner_note, draft_note) if line is not None)
    llm.left_out = found.left_out(sources, mtp=settings.mtp) | {"has_draft": with_draft and not needs_draft}
    llm.spared = spared(found, heads)
    try:
        attach(llm, found, sources, original_header, heads=heads, drafter=str(drafter))
        if generates:
            llm.use_drafter(str(drafter))
    except BaseException:
        llm.close()
        lease.end()
        raise
    llm.announce = announce
    llm.lease = lease
    if suffix_history:
        llm.history = SuffixHistory(target.vocab.identity, target.vocab.size)
    return llm


def load_for_engine(spec: LoadSpec, progress: Progress) -> LLM:
    """load() as an engine calls it, with the decode times measured where a plan will need them."""
    settings = msgspec.structs.asdict(spec)
    llm = load(
        **settings,
        progress=lambda name, fraction: progress(name, fraction),
        announce=lambda line: progress(line, None),
    )
    try:
        if llm.sources and llm.target.can_roll_back:
            llm.measured()
    except BaseException:
        llm.close()
        raise
    return llm


def _isolated(
    spec: LoadSpec, progress: Callable[[str, float], None] | None, announce: Callable[[str], None] | None
) -> IsolatedLLM:
    def on_loading(event: Loading) -> None:
        if event.fraction is not None and progress is not None:
            progress(event.line, event.fraction)
        elif event.fraction is None and announce is not None:
            announce(event.line)

    engine = WorkerEngine(shared=False)
    try:
        return IsolatedLLM(engine, engine.load(spec, on_loading))
    except BaseException:
        engine.close()
        raise


def _opened(
    path: Path,
    settings: LoadSettings,
    draft_path: Path | None,
    draft_settings: LoadSettings,
    progress: Callable[[str, float], None] | None,
    *,
    needed: bool,
) -> tuple[Context, Context | None]:
    """needed: without the draft there is nothing to return; else that it cannot be loaded is logged."""
    target = _open(path, settings, progress)
    draft = None
    try:
        if draft_path is not None:
            draft = _open_draft(draft_path, draft_settings, target, progress)
    except EdgeSpecError as error:
        if needed:
            target.close()
            target.model.close()
            raise
        log.warning("going on without a draft model: %s", error)
    except BaseException:
        target.close()
        target.model.close()
        raise
    return target, draft


def _open(path: Path, settings: LoadSettings, progress: Callable[[str, float], None] | None) -> Context:
    model = Model(path, settings, progress=(lambda f: progress(path.name, f)) if progress else None)
    try:
        return Context(model)
    except BaseException:
        model.close()
        raise


def _open_draft(
    path: Path, settings: LoadSettings, target: Context, progress: Callable[[str, float], None] | None
) -> Context:
    context = _open(path, settings, progress)
    try:
        check_vocab(target.vocab, context.vocab, draft_name=path.name)
        if context.model.recurrent:
            raise ModelLoadError(f"{path.name} cannot draft: {RECURRENT_DRAFT}; choose another draft, or --draft none")
    except BaseException:
        context.close()
        context.model.close()
        raise
    return context


def _form(path: Path, role: Role, *, tuned: bool) -> tuple[Path, str | None]:
    """The file to load, and a line about it if it is not the one that was named."""
    return tuned_copy(path, role) if tuned else (path, None)


def _as_name(model: str | Path | None) -> str | None:
    return None if model is None else str(model)
