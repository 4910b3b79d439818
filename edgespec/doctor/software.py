"""Python, the binding, llama.cpp, and what its kernels make of this CPU and GPU."""

from __future__ import annotations

import functools
import platform
import re
import shutil
import sys
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path

from ..errors import EdgeSpecError
from ..llama.facts import Facts
from ..llama.facts import facts as ask
from ..llama.probe import REMEDY, working
from ..machine import library_folder
from .finding import Finding, fail, ok, warn

_REINSTALL = "reinstall it with `pip install --no-cache-dir --force-reinstall llama-cpp-python=={}`"
# llama.cpp's name of a feature: the CPU's own, in /proc/cpuinfo. Those that decide how fast decoding is.
_FEATURES = {
    "AVX": "avx", "AVX2": "avx2", "FMA": "fma", "F16C": "f16c", "AVX_VNNI": "avx_vnni", "AVX512": "avx512f",
    "AVX512_VNNI": "avx512_vnni", "AMX_INT8": "amx_int8", "NEON": "asimd", "DOTPROD": "asimddp",
    "MATMUL_INT8": "i8mm",
}  # fmt: skip


def python() -> Finding:
    """Version and width."""
    detail = f"{platform.python_version()} ({platform.python_implementation()}), EdgeSpec {version('edgespec')}"
    allowed = metadata("edgespec")["Requires-Python"]
    bounds = [tuple(map(int, bound.split("."))) for bound in re.findall(r"\d+\.\d+", allowed)]
    if sys.maxsize < 2**32:
        return fail(f"{detail}, 32 bit", "install a 64 bit Python: models need more than 4 GB of addresses")
    if not min(bounds) <= sys.version_info[:2] < max(bounds):
        return warn(f"{detail}; EdgeSpec is made for {allowed}", "install it into an environment of such a Python")
    return ok(detail)


def binding() -> Finding:
    """llama-cpp-python, in the one version whose C structs we fill."""
    wanted = _wanted()
    try:
        found = version("llama-cpp-python")
    except PackageNotFoundError:
        return fail("llama-cpp-python is not installed", _REINSTALL.format(wanted))
    if found != wanted:
        return fail(f"llama-cpp-python {found}; EdgeSpec needs {wanted}", _REINSTALL.format(wanted))
    return ok(f"llama-cpp-python {found}")


def library() -> Finding:
    """The library itself: does it load?"""
    try:
        found = _facts()
    except EdgeSpecError as error:
        fix = _REINSTALL.format(_wanted()) + ", and unset LLAMA_CPP_LIB_PATH if it is set"
        return fail(str(error), fix)
    return ok(f"{found.version}, in {library_folder()}")


def features() -> Finding:
    """CPU features that the kernels were built with, and those of the CPU."""
    built, has = set(_facts().features), _cpu_flags()
    here = {name for name, flag in _FEATURES.items() if flag in has}
    shown = f"built with {', '.join(name for name in _FEATURES if name in built) or 'none that matter'}"
    if not has:
        return ok(f"{shown}; what this CPU has is not known on this platform")
    if absent := _listed((built & _FEATURES.keys()) - here):
        return fail(f"{shown}; this CPU has no {absent}", f"{_REINSTALL.format(_wanted())}, on this machine")
    if unused := _listed(here - built):
        return warn(f"{shown}; not built for {unused}, which this CPU has", _REINSTALL.format(_wanted()))
    return ok(f"{shown}: all of those that this CPU has")


def kernels() -> Finding:
    """Whether they run: each layout of weights decodes in a child process, which may crash."""
    runs = working()
    if "auto" in runs:
        return ok(f"weight layouts that run here: {', '.join(runs)}")
    if not runs:
        return fail("this build of llama.cpp crashes on this CPU", REMEDY)
    return warn(f"llama.cpp's own choice of kernels crashes here; in use: {runs[0]}", REMEDY)


def gpu() -> Finding:
    """GPU backend of the build, against what the machine seems to have."""
    found = _facts()
    devices = [f"{d.name} ({d.description})" if d.description else d.name for d in found.devices if d.is_gpu]
    if found.offload and not devices and found.devices:
        return warn("this build has a GPU backend, but it finds no GPU", "install or update the GPU's driver")
    if found.offload:
        return ok(f"used: {', '.join(devices) or 'the build has a GPU backend'}")
    if shutil.which("nvidia-smi") or Path("/proc/driver/nvidia/version").exists():
        return warn("an NVIDIA GPU, and a build without CUDA", _rebuild("-DGGML_CUDA=on"))
    if sys.platform == "darwin" and platform.machine() == "arm64":
        return warn("an Apple GPU, and a build without Metal", _rebuild("-DGGML_METAL=on"))
    return ok("none in this build; models run on the CPU")


def _rebuild(flag: str) -> str:
    return f"CMAKE_ARGS={flag} pip install --no-cache-dir --force-reinstall llama-cpp-python=={_wanted()}"


def _wanted() -> str:
    """The version of the binding that EdgeSpec is pinned to."""
    pinned = [line for line in requires("edgespec") or [] if line.startswith("llama-cpp-python==")]
    return pinned[0].partition("==")[2]


def _facts() -> Facts:
    found = _asked()
    if isinstance(found, EdgeSpecError):
        raise found
    return found


@functools.cache
def _asked() -> Facts | EdgeSpecError:
    """Asked once, also where that fails: a library that hangs does so for a minute."""
    try:
        return ask()
    except EdgeSpecError as error:
        return error


def _cpu_flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return set()
    return {flag for line in lines if line.startswith(("flags", "Features")) for flag in line.split()[2:]}


def _listed(names: set[str]) -> str:
    return ", ".join(name for name in _FEATURES if name in names)
