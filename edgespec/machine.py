"""This machine and this build of llama.cpp, as far as one can see without loading it: what measurements hold for."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
from pathlib import Path

import psutil

from . import container

_GPU_BACKENDS = ("cuda", "metal", "vulkan", "hip", "sycl", "musa", "cann", "opencl")  # ggml's names of them


def free_memory() -> int:
    """Bytes that this process can still take: what the machine has free, or what a container's limit leaves of it."""
    free = int(psutil.virtual_memory().available)
    limited = container.memory()
    return free if limited is None else min(free, limited.free)


def physical_cores() -> int:
    """Cores that this process may use, not counting hyper-threads: more threads than that slow decoding."""
    cores = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    return max(1, min(cores, _allowed(cores)))


def logical_cores() -> int:
    """Hyper-threads that this process may use."""
    return max(1, _allowed(os.cpu_count() or 1))


def others_cpu_seconds() -> float:
    """CPU time that has gone to anything but this process, on the CPUs that it may use, since the machine started."""
    cpus = psutil.cpu_times(percpu=True)
    if hasattr(os, "sched_getaffinity"):
        cpus = [cpus[i] for i in os.sched_getaffinity(0) if i < len(cpus)] or cpus
    names = ("user", "nice", "system", "irq", "softirq", "steal", "interrupt", "dpc")  # not all on every system
    own = psutil.Process().cpu_times()
    return float(sum(getattr(cpu, name, 0.0) for cpu in cpus for name in names) - own.user - own.system)


def library_folder() -> Path:
    """Where llama.cpp's libraries lie. Raises FileNotFoundError where the binding is not installed."""
    override = os.environ.get("LLAMA_CPP_LIB_PATH")
    if override:
        return Path(override)
    found = importlib.util.find_spec("llama_cpp")
    if found is None or not found.submodule_search_locations:
        raise FileNotFoundError("llama-cpp-python is not installed")
    return Path(found.submodule_search_locations[0]) / "lib"


def library_file() -> Path:
    """The ggml CPU library file: with its size and time, the identity of a build."""
    folder = library_folder()
    found = sorted(p for p in folder.iterdir() if "ggml-cpu" in p.name)
    return found[0] if found else folder


def has_gpu_backend() -> bool:
    """Does the build have a GPU backend? By the names of its libraries."""
    try:
        names = [path.name for path in library_folder().iterdir()]
    except OSError:
        return False
    return any(f"ggml-{backend}" in name for name in names for backend in _GPU_BACKENDS)


def identity() -> str:
    """Changes with the library build and with the machine."""
    file = library_file()
    stat = file.stat()
    try:
        cpu = next(
            line
            for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines()
            if line.startswith(("flags", "Features"))
        )
    except (OSError, StopIteration):
        cpu = platform.processor()
    text = f"{file}|{stat.st_size}|{stat.st_mtime_ns}|{platform.machine()}|{cpu}"
    return hashlib.sha256(text.encode()).hexdigest()


def _allowed(otherwise: int) -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else otherwise
