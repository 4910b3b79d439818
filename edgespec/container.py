"""What a control group of Linux, such as a container's, lets this process use. Versions 1 and 2, nested ones as well.

Files and their meaning: the kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_MOUNTED = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_NO_LIMIT = 1 << 60  # version 1 writes "none" as about 2^63
# Limit, use, and what of the use is cached files, which the kernel gives up for the asking.
_MEMORY_FILES = (
    ("memory.max", "memory.current", ("active_file", "inactive_file")),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_active_file", "total_inactive_file")),
)


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """Bytes. limit: the least of all groups around this process.  free: what the fullest of them has left."""

    limit: int
    free: int


def memory() -> MemoryLimit | None:
    """The limit on memory; None: there is none."""
    found = [limit for folder in _groups("memory") if (limit := _memory_of(folder)) is not None]
    if not found:
        return None
    return MemoryLimit(min(each.limit for each in found), min(each.free for each in found))


def cpus() -> float | None:
    """CPUs' worth of time that the tightest group allows; None: all there are."""
    return min((cpus for folder in _groups("cpu") if (cpus := _cpus_of(folder)) is not None), default=None)


def _memory_of(folder: Path) -> MemoryLimit | None:
    for limit_file, use_file, cached in _MEMORY_FILES:
        limit = _number(_read(folder / limit_file))
        if limit is None or limit >= _NO_LIMIT:
            continue
        lines = (line.split() for line in _read(folder / "memory.stat").splitlines())
        given_up = sum(int(line[1]) for line in lines if len(line) == 2 and line[0] in cached and line[1].isdigit())
        used = _number(_read(folder / use_file)) or 0
        return MemoryLimit(limit, max(0, limit - max(0, used - given_up)))
    return None


def _cpus_of(folder: Path) -> float | None:
    allowed, _, period = _read(folder / "cpu.max").partition(" ")
    if not allowed:
        allowed, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
    quota, every = _number(allowed), _number(period)  # "max" and -1: no limit
    return quota / every if quota and every else None


def _groups(controller: str) -> Iterator[Path]:
    """Folders of the groups that this process is in, the inner ones first.

    Where a container sees its own group as the root of the tree, its path may be that outside: then the root is it.
    """
    for line in _read(_OWN).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            roots = [_MOUNTED]
        elif controller in controllers.split(","):
            roots = [_MOUNTED / controllers, _MOUNTED / controller]  # one is often a link to the other
        else:
            continue
        inner = PurePosixPath(path.lstrip("/"))
        for root in dict.fromkeys(roots):
            yield from (root / group for group in (inner, *inner.parents) if ".." not in group.parts)


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
