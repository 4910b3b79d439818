"""Disk, folders, config file, and whether there is a model to run without a network."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from edgespec.models.header import read_header
from edgespec.models.hub_cache import hub_cache
from edgespec.models.local import local_models
from edgespec.models.memory import forecast
from edgespec.models.names import resolve

from .. import paths, profile_store
from ..config import read
from ..errors import EdgeSpecError
from ..heads.memory import usual_memory
from ..profile import SMALLEST, Forced
from .finding import Finding, fail, ok, warn

_FULL, _TIGHT = 200e6, 5e9  # bytes free: too few for the smallest model, and for a useful one


def disk() -> Finding:
    """Room where fetched models go."""
    parts = []
    least = float("inf")
    for folder in dict.fromkeys((_existing(paths.models_dir()), _existing(hub_cache()))):
        free = shutil.disk_usage(folder).free
        least = min(least, free)
        parts.append(f"{free / 1e9:.1f} GB free at {folder}")
    detail = ", ".join(parts)
    elsewhere = "free some space, or point EDGESPEC_HOME and HF_HOME at another disk"
    if least < _FULL:
        return fail(detail, elsewhere)
    return warn(detail, elsewhere) if least < _TIGHT else ok(detail)


def folders() -> Finding:
    """Where our own files and the Hub's lie, and whether they can be written."""
    home = paths.home()
    ours = {"own files": home, "config": paths.config_dir(), "Hub cache": hub_cache()}
    detail = ", ".join(f"{name} {folder}" for name, folder in ours.items())
    for folder in (home, paths.models_dir(), paths.cache_dir(), paths.config_dir()):
        if not _writable(folder):
            fix = f"make {_existing(folder)} a folder that you may write, or point EDGESPEC_HOME at another one"
            return fail(f"{folder} cannot be written", fix)
    if not _writable(hub_cache()):
        fix = "make it writable, or point HF_HOME at another folder: `edgespec pull` writes there"
        return warn(f"{hub_cache()}, the Hub cache, cannot be written", fix)
    return ok(detail)


def config() -> Finding:
    """config.toml and EDGESPEC_* variables."""
    found = read()
    if found.problems:
        more = f" ({len(found.problems) - 1} more)" if len(found.problems) > 1 else ""
        return fail(f"{found.problems[0]}{more}", "mend it: all other commands refuse to run; `edgespec config show`")
    if found.strangers:
        names = ", ".join(found.strangers)
        return warn(f"unknown variables, which do nothing: {names}", "unset them; `edgespec config show` lists keys")
    keys = ", ".join(found.settings)
    return ok(f"{keys} set in {found.path} or the environment" if keys else f"nothing is set; {found.path}")


def offline() -> Finding:
    """Is the model here that commands use when none is named, whole, and does it fit into memory with its heads?"""
    given = read().defaults("load")
    try:
        header = read_header(_usual_model())
        asked, kv_type = given.get("ctx_size"), str(given.get("kv_type", "f16"))
        n_ctx = asked if isinstance(asked, int) else None
        found = forecast(header, n_ctx, kv_type=kv_type, heads=usual_memory(header))
    except EdgeSpecError as error:
        what, _, fix = str(error).partition("; ")
        others = len(local_models())
        beside = f"; {others} other model{'' if others == 1 else 's'} here: `edgespec ls`" if others else ""
        return warn(f"{what}{beside}", fix or "give another one: `edgespec config set model NAME`")
    here = f"{header.path.name} is here"
    tokens = f"at a context of {found.estimate.n_ctx:,} tokens"
    if not found.fit.fits:
        return warn(
            f"{here}, but {tokens} it {found.fit.short}", f"close other programs; {', or '.join(found.fit.advice)}"
        )
    return ok(f"ready: {here}, {tokens} it {found.fit}, and no command but `edgespec pull` uses a network")


def profiles() -> Finding:
    """The fastest settings of the model that commands use when none is named, and how many models were measured."""
    folder = paths.cache_dir() / "profiles"
    kept = len(list(folder.glob("*.json"))) if folder.is_dir() else 0
    number = f"{kept} measured" if kept else "none measured"
    try:
        header = read_header(_usual_model())
    except EdgeSpecError:
        return ok(f"{number}; a model's fastest settings are measured at its first run")
    found = profile_store.remembered(header, _forced())
    name = header.path.name
    if found is None:
        small = header.file_size < SMALLEST
        when = "too small to be measured" if small else "not measured yet: that is done at its first run"
        return ok(f"{number}; {name}: {when}")
    choice = found.choice
    return ok(
        f"{number}; {name}: buffers {choice.buffers}, flash attention {choice.flash_attn}, "
        f"threads {choice.threads}, GPU layers {choice.gpu_layers}"
    )


def _usual_model() -> Path:
    """The file that commands use when none is named. Raises EdgeSpecError where it is not here."""
    model = read().defaults("load").get("model")
    return resolve(None if model is None else str(model))


def _forced() -> Forced:
    """Settings that are not measured, because the config gives them."""
    given = read().defaults("load")
    names = ("buffers", "flash_attn", "threads", "gpu_layers", "kv_type")
    chosen: dict[str, Any] = {name: given[name] for name in names if name in given}
    if chosen.get("flash_attn") == "auto":
        del chosen["flash_attn"]
    return Forced(**chosen)


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that there is."""
    return next((p for p in (folder, *folder.parents) if p.exists()), Path())


def _writable(folder: Path) -> bool:
    place = _existing(folder)
    return place.is_dir() and os.access(place, os.W_OK | os.X_OK)
