"""What a build of llama.cpp says of itself: asked in a child process, since a bad build can kill who loads it.

python -m edgespec.llama.facts    print it as JSON
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from dataclasses import asdict, dataclass

from edgespec.models.offload import Gpu

from ..errors import EdgeSpecError

_TIMEOUT_S = 60
_GPU, _SHARING_GPU = 1, 2  # 0: a CPU, 3: an accelerator for parts of a model


@dataclass(frozen=True, slots=True)
class Device:
    """What a build can compute on. kind: llama.cpp's number of it.  free: bytes of memory; 0: it does not say."""

    name: str
    description: str
    kind: int
    free: int = 0

    @property
    def is_gpu(self) -> bool:
        """True for a GPU, with memory of its own or not."""
        return self.kind in (_GPU, _SHARING_GPU)


@dataclass(frozen=True, slots=True)
class Facts:
    """version: of llama.cpp and of ggml in it.  features: of the CPU kernels, as AVX2.  offload: has a GPU backend."""

    version: str
    features: tuple[str, ...]
    offload: bool
    devices: tuple[Device, ...]

    @property
    def gpu(self) -> Gpu | None:
        """Where layers go, and what is free there. None: nowhere, or that is not known."""
        return _gpu(self.devices) if self.offload else None


def facts() -> Facts:
    """Load the library in a child process and ask. Raises EdgeSpecError with the reason where that fails."""
    command = [sys.executable, "-m", "edgespec.llama.facts"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise EdgeSpecError(f"loading it takes more than {_TIMEOUT_S} seconds") from None
    if done.returncode:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        raise EdgeSpecError(f"it does not load ({last[0].strip() if last else how})")
    found = json.loads(done.stdout)
    return Facts(
        version=found["version"],
        features=tuple(found["features"]),
        offload=found["offload"],
        devices=tuple(Device(**device) for device in found["devices"]),
    )


def gpu_here() -> Gpu | None:
    """As Facts.gpu, asked in this process: for one that is about to load a model there."""
    from . import binding

    binding.lib()
    return _gpu(_devices()) if binding.supports_gpu_offload() else None


def _gpu(devices: tuple[Device, ...]) -> Gpu | None:
    """llama.cpp uses all GPUs with memory of their own, else those that share the machine's."""
    used = [d for d in devices if d.kind == _GPU] or [d for d in devices if d.kind == _SHARING_GPU]
    free = sum(device.free for device in used)
    return Gpu(used[0].name if len(used) == 1 else f"{len(used)} GPUs", free) if free else None


def _own() -> Facts:
    from . import binding

    info = binding.lib().llama_print_system_info().decode("utf-8", "replace")
    _, _, cpu = info.partition("CPU :")
    settings = [part.strip().partition(" = ") for part in cpu.split("|")]
    return Facts(
        version=_version(),
        features=tuple(name for name, _, value in settings if value == "1"),
        offload=binding.supports_gpu_offload(),
        devices=_devices(),
    )


def _version() -> str:
    """llama.cpp's and ggml's, with the commit; newer than the functions that the binding declares."""
    from llama_cpp import llama_cpp as module
    from llama_cpp._ggml import libggml

    said = {
        "": _text(module._lib, "llama_version"),
        "ggml ": _text(libggml, "ggml_version"),
        "commit ": _text(libggml, "ggml_commit"),
    }
    return ", ".join(f"{title}{text}" for title, text in said.items() if text) or "of unknown version"


def _text(library: ctypes.CDLL, name: str, *arguments: ctypes.c_void_p) -> str:
    """What a function that returns a string says; empty where the library has no such function."""
    try:
        function = getattr(library, name)
    except AttributeError:
        return ""
    function.restype = ctypes.c_char_p
    value = function(*arguments)
    return value.decode("utf-8", "replace") if value else ""


def _devices() -> tuple[Device, ...]:
    """Of all backends; none where this platform does not find the functions through one library."""
    from llama_cpp._ggml import libggml

    try:
        count, get, kind = libggml.ggml_backend_dev_count, libggml.ggml_backend_dev_get, libggml.ggml_backend_dev_type
        memory = libggml.ggml_backend_dev_memory
    except AttributeError:
        return ()
    count.restype, get.restype, get.argtypes = ctypes.c_size_t, ctypes.c_void_p, (ctypes.c_size_t,)
    memory.restype = None
    found = []
    for number in range(count()):
        handle = ctypes.c_void_p(get(number))
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        memory(handle, ctypes.byref(free), ctypes.byref(total))
        name = _text(libggml, "ggml_backend_dev_name", handle)
        description = _text(libggml, "ggml_backend_dev_description", handle)
        found.append(Device(name, description, kind(handle), free.value))
    return tuple(found)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(_own())))
