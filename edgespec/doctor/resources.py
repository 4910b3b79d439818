"""Cores, memory and swap, also where a container has less of them than the machine."""

from __future__ import annotations

import psutil

from .. import container
from ..config import read
from ..machine import free_memory, logical_cores, physical_cores
from .finding import Finding, fail, ok, warn

_FEW, _LITTLE = 256e6, 2e9  # bytes of free memory: too few for any model, and for a useful one
_SWAPPED = 0.25  # share of swap in use that says that memory was short


def threads() -> Finding:
    """Threads to run with, against cores to run on."""
    physical, logical = physical_cores(), logical_cores()
    detail = f"{_count(physical, 'core')} to use, {_count(logical, 'hardware thread')}"
    quota = container.cpus()
    wanted = read().settings.get("threads")
    if wanted is not None and isinstance(wanted.value, int) and wanted.value > logical:
        return warn(
            f"{detail}; but {wanted.where} asks for {wanted.value} threads",
            "take that out, so that the fastest number is measured: `edgespec config unset threads`",
        )
    if quota is not None and quota < physical:
        few = max(1, int(quota))
        return warn(
            f"{detail}; but a container limits them to the time of {quota:g}",
            f"give the container more, or `edgespec config set threads {few}`",
        )
    return ok(f"{detail}; the fastest number of threads is measured for each model")


def memory() -> Finding:
    """What is free, also of a container's limit."""
    free, total, limited = free_memory(), psutil.virtual_memory().total, container.memory()
    detail = f"{_gb(free)} free of {_gb(total)}"
    if limited is not None and limited.limit < total:
        detail += f", in a container with a limit of {_gb(limited.limit)}"
    if free < _FEW:
        return fail(detail, "close other programs: no model fits")
    if free < _LITTLE:
        return warn(detail, "close other programs, or use a small model and a small --ctx-size")
    return ok(detail)


def swap() -> Finding:
    """A model that lies in swap decodes many times slower."""
    found = psutil.swap_memory()
    if not found.total:
        return ok("none")
    detail = f"{_gb(found.used)} of {_gb(found.total)} in use"
    if found.used > _SWAPPED * found.total:
        return warn(detail, "memory was short: close other programs, since weights in swap are slow")
    return ok(detail)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _gb(number: float) -> str:
    return f"{number / 1e9:.1f} GB"
