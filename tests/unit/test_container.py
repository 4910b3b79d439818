"""Limits of control groups, from trees of files as the kernel shows them."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path

import psutil
import pytest

from edgespec import container, machine
from edgespec.container import MemoryLimit

GB = 10**9
NONE = "9223372036854771712"  # how version 1 writes that there is no limit

TWO = {  # version 2: the outer group has less left than the inner one
    "own": "0::/a/b",
    "a/b/memory.max": 4 * GB, "a/b/memory.current": 1 * GB, "a/b/memory.stat": "anon 1\ninactive_file 0",
    "a/memory.max": 5 * GB, "a/memory.current": 4 * GB,
    "a/memory.stat": f"anon 3\nactive_file {GB // 4}\ninactive_file {GB // 4}\nfile_mapped 900",
    "a/b/cpu.max": "max 100000", "a/cpu.max": "250000 100000", "cpu.max": "400000 100000",
}  # fmt: skip
ONE = {  # version 1, each controller on its own
    "own": "9:name=systemd:/\n5:cpu,cpuacct:/c\n4:memory:/c\n0::/",
    "memory/c/memory.limit_in_bytes": 3 * GB, "memory/c/memory.usage_in_bytes": 2 * GB,
    "memory/c/memory.stat": f"cache {GB}\ninactive_file 7\ntotal_active_file {GB // 2}\ntotal_inactive_file {GB // 2}",
    "memory/memory.limit_in_bytes": NONE, "memory/memory.usage_in_bytes": 9 * GB,
    "cpu,cpuacct/c/cpu.cfs_quota_us": 150_000, "cpu,cpuacct/c/cpu.cfs_period_us": 100_000,
}  # fmt: skip
SEEN_AS_ROOT = {  # the path is that outside, the folder of the container is the root of what it sees
    "own": "4:memory:/docker/0123\n3:cpu:/docker/0123",
    "memory/memory.limit_in_bytes": 2 * GB, "memory/memory.usage_in_bytes": 3 * GB,
    "cpu/cpu.cfs_quota_us": -1, "cpu/cpu.cfs_period_us": 100_000,
}  # fmt: skip
OUTSIDE = {"own": "0::/../other", "memory.max": 2 * GB, "memory.current": 0, "cpu.max": "100000 100000"}
UNLIMITED = {
    "own": "4:memory:/x\n0::/y",
    "memory/x/memory.limit_in_bytes": NONE,
    "y/memory.max": "max",
    "y/cpu.max": "max 100000",
}


def grow(root: Path, tree: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in tree.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{content}\n")
    monkeypatch.setattr(container, "_MOUNTED", root)
    monkeypatch.setattr(container, "_OWN", root / "own")


@pytest.mark.parametrize(
    ("tree", "memory", "cpus"),
    [
        (TWO, MemoryLimit(4 * GB, 3 * GB // 2), 2.5),
        (ONE, MemoryLimit(3 * GB, 2 * GB), 1.5),
        (SEEN_AS_ROOT, MemoryLimit(2 * GB, 0), None),
        (OUTSIDE, MemoryLimit(2 * GB, 2 * GB), 1.0),
        (UNLIMITED, None, None),
        ({"own": "no group\n\n::"}, None, None),
    ],
)
def test_the_tightest_group_counts(tmp_path, monkeypatch, tree, memory, cpus) -> None:
    grow(tmp_path, tree, monkeypatch)
    assert container.memory() == memory
    assert container.cpus() == cpus


def test_without_groups_the_machine_counts(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(container, "_MOUNTED", tmp_path)
    monkeypatch.setattr(container, "_OWN", tmp_path / "none")
    assert (container.memory(), container.cpus()) == (None, None)
    assert machine.free_memory() > 0


def test_files_that_say_nonsense_are_no_limit(tmp_path, monkeypatch) -> None:
    grow(tmp_path, {"own": "0::/a", "a/memory.max": "a lot", "a/cpu.max": "100000 0"}, monkeypatch)
    (tmp_path / "a" / "memory.current").write_bytes(b"\xff\xfe")
    assert (container.memory(), container.cpus()) == (None, None)


@pytest.mark.parametrize(("left", "free"), [(GB, GB), (9 * GB, 5 * GB)])
def test_free_memory_is_the_less_of_both(monkeypatch, left, free) -> None:
    memory = namedtuple("memory", "available")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory(5 * GB))
    monkeypatch.setattr(container, "memory", lambda: MemoryLimit(10 * GB, left))
    assert machine.free_memory() == free
