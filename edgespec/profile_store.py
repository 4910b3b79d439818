"""Measured profiles on disk: one file per model, forced settings, library build and machine."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
from pathlib import Path
from typing import Any, get_args

from edgespec.models.header import Header
from edgespec.models.identity import file_identity

from .machine import identity, logical_cores, physical_cores
from .paths import cache_dir, write_whole
from .profile import Buffers, Choice, Flash, Forced, RuntimeProfile, Trial

log = logging.getLogger(__name__)

_LAYOUT = 1  # of the files, and of what is measured
_PROVISIONAL_S = 3600.0  # how long such a profile is kept


def remembered(header: Header, forced: Forced) -> RuntimeProfile | None:
    """The profile measured before, or None; a provisional one for an hour. Does not load llama.cpp."""
    try:
        if not any(_files(header)):
            return None
        path = _path(header, forced)
        profile = from_json(json.loads(path.read_text("utf-8")))
        old = profile.provisional and time.time() - path.stat().st_mtime > _PROVISIONAL_S
        return None if old else profile
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remember(header: Header, forced: Forced, profile: RuntimeProfile) -> None:
    """Keep a profile for later loads; where that fails, it is measured again."""
    try:
        write_whole(_path(header, forced), json.dumps(to_json(profile)))
    except OSError as error:
        log.info("the fastest settings are not remembered: %s", error)


def forget(header: Header) -> None:
    """Measure this model anew at its next load, whatever is forced there."""
    try:
        for path in _files(header):
            path.unlink(missing_ok=True)
    except OSError as error:
        log.info("the fastest settings are not forgotten: %s", error)


def to_json(profile: RuntimeProfile) -> dict[str, Any]:
    """As it is kept, and as `show --json` prints it."""
    return {
        **_choice(profile.choice),
        "provisional": profile.provisional,
        "defaults": None if profile.library is None else _trial(profile.library),
        "trials": [_trial(trial) for trial in profile.trials],
    }


def from_json(record: Any) -> RuntimeProfile:
    """Reads to_json() back. Raises ValueError, KeyError or TypeError for anything else."""
    library, provisional = record["defaults"], record["provisional"]
    if not isinstance(provisional, bool):
        raise ValueError("neither true nor false")
    return RuntimeProfile(
        _read_choice(record),
        None if library is None else _read_trial(library),
        tuple(_read_trial(trial) for trial in record["trials"]),
        provisional,
    )


def _path(header: Header, forced: Forced) -> Path:
    # Cores are those that this process may use: fewer of them want other threads.
    parts = (_LAYOUT, identity(), physical_cores(), logical_cores(), forced)
    key = hashlib.sha256(repr(parts).encode()).hexdigest()
    return _folder() / f"{_prefix(header)}-{key[:16]}.json"


def _files(header: Header) -> list[Path]:
    folder = _folder()
    return list(folder.glob(f"{_prefix(header)}-*.json")) if folder.is_dir() else []


def _folder() -> Path:
    return cache_dir() / "profiles"


def _prefix(header: Header) -> str:
    return file_identity(header)[:32]


def _choice(choice: Choice) -> dict[str, Any]:
    return {
        "buffers": choice.buffers,
        "flash_attn": choice.flash_attn,
        "threads": choice.threads,
        "gpu_layers": choice.gpu_layers,
    }


def _trial(trial: Trial) -> dict[str, Any]:
    times = {"short_ms": trial.short_ms, "long_ms": trial.long_ms, "error": trial.error}
    return {**_choice(trial.choice), **times}


def _read_choice(record: Any) -> Choice:
    choice = Choice(
        buffers=record["buffers"],
        flash_attn=record["flash_attn"],
        threads=record["threads"],
        gpu_layers=record["gpu_layers"],
    )
    numbers = all(type(n) is int for n in (choice.threads, choice.gpu_layers))
    if not numbers or choice.buffers not in get_args(Buffers) or choice.flash_attn not in get_args(Flash):
        raise ValueError("no settings")
    if not 1 <= choice.threads <= 1024 or choice.gpu_layers < -1:
        raise ValueError("settings out of range")
    return choice


def _read_trial(record: Any) -> Trial:
    return Trial(_read_choice(record), _ms(record["short_ms"]), _ms(record["long_ms"]), str(record["error"]))


def _ms(value: Any) -> float | None:
    if value is not None and not (isinstance(value, int | float) and math.isfinite(value) and value > 0):
        raise ValueError("no time")
    return value
