"""The checks of `edgespec doctor` on machines that are not this one."""

from __future__ import annotations

import sys
from collections import namedtuple
from pathlib import Path

import psutil
import pytest

from edgespec import container
from edgespec.doctor import examine, places, resources, software, terminal
from edgespec.doctor.finding import ok
from edgespec.errors import EdgeSpecError
from edgespec.llama import facts
from edgespec.llama.facts import Device, Facts
from edgespec.models.offload import Gpu

GB = 10**9
CPU = Device("CPU", "A CPU", 0)
Memory = namedtuple("Memory", "total available")
Swap = namedtuple("Swap", "total used")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGESPEC_HOME", str(tmp_path))
    return tmp_path


def build(monkeypatch: pytest.MonkeyPatch, *features: str, offload: bool = False, devices: tuple[Device, ...] = (CPU,)):
    monkeypatch.setattr(software, "_asked", lambda: Facts("1.0", features, offload, devices))


def test_a_check_that_crashes_is_a_warning_and_the_next_one_runs() -> None:
    def crash():
        raise ZeroDivisionError("two\nlines")

    (first, crashed), (second, fine) = examine({"a": crash, "b": lambda: ok("fine")})
    assert (first, crashed.status, crashed.detail) == ("a", "warn", "could not be checked: two lines")
    assert (second, fine) == ("b", ok("fine"))


@pytest.mark.parametrize(
    ("features", "flags", "status", "words"),
    [
        (("AVX", "AVX2"), {"avx", "avx2", "sse"}, "ok", "all of those that this CPU has"),
        (("AVX",), {"avx", "avx2", "amx_int8"}, "warn", "not built for AVX2, AMX_INT8, which"),
        (("AVX", "AVX512"), {"avx"}, "fail", "this CPU has no AVX512"),
        (("REPACK",), {"fpu"}, "ok", "none that matter"),
        (("NEON",), set(), "ok", "not known on this platform"),
    ],
)
def test_cpu_features(monkeypatch, features, flags, status, words) -> None:
    build(monkeypatch, *features)
    monkeypatch.setattr(software, "_cpu_flags", lambda: flags)
    found = software.features()
    assert found.status == status
    assert words in found.detail


@pytest.mark.parametrize(
    ("working", "status"),
    [(("auto", "repack", "none"), "ok"), (("repack", "none"), "warn"), (("none",), "warn"), ((), "fail")],
)
def test_kernels(monkeypatch, working, status) -> None:
    monkeypatch.setattr(software, "working", lambda: working)
    found = software.kernels()
    assert found.status == status
    if status != "ok":
        assert "CFLAGS" in str(found.fix)


def test_gpu(monkeypatch) -> None:
    monkeypatch.setattr(software.shutil, "which", lambda name: None)
    monkeypatch.setattr(software.Path, "exists", lambda path: False)
    monkeypatch.setattr(sys, "platform", "linux")
    build(monkeypatch)
    assert software.gpu().detail == "none in this build; models run on the CPU"
    build(monkeypatch, devices=(CPU, Device("BLAS", "", 3)))
    assert software.gpu().status == "ok"
    build(monkeypatch, offload=True, devices=(CPU, Device("CUDA0", "Fast One", 1)))
    assert software.gpu() == ok("used: CUDA0 (Fast One)")
    build(monkeypatch, offload=True)
    assert "finds no GPU" in software.gpu().detail
    monkeypatch.setattr(software.shutil, "which", lambda name: "/usr/bin/nvidia-smi")
    build(monkeypatch)
    assert "-DGGML_CUDA=on" in str(software.gpu().fix)
    monkeypatch.setattr(software.shutil, "which", lambda name: None)
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(software.platform, "machine", lambda: "arm64")
    assert "-DGGML_METAL=on" in str(software.gpu().fix)


def test_another_version_of_the_binding(monkeypatch) -> None:
    monkeypatch.setattr(software, "version", lambda name: "0.2.1")
    found = software.binding()
    assert found.status == "fail"
    assert "llama-cpp-python==0.3" in str(found.fix)


def test_a_library_that_kills_its_process(monkeypatch) -> None:
    died = facts.subprocess.CompletedProcess([], -4, b"", b"")
    monkeypatch.setattr(facts.subprocess, "run", lambda *_, **__: died)
    with pytest.raises(EdgeSpecError, match=r"it does not load \(signal 4\)"):
        facts.facts()


def test_the_memory_that_layers_go_to_is_that_of_the_gpus_llama_cpp_uses() -> None:
    def gpu(*devices: Device, offload: bool = True) -> Gpu | None:
        return Facts("1.0", (), offload, (CPU, *devices)).gpu

    first, second, shared = Device("CUDA0", "", 1, 6), Device("CUDA1", "", 1, 8), Device("Vulkan0", "", 2, 30)
    assert gpu() is None
    assert gpu(Device("CUDA0", "", 1)) is None  # it does not say what is free
    assert gpu(first, offload=False) is None
    assert gpu(first, shared) == Gpu("CUDA0", 6)
    assert gpu(first, second) == Gpu("2 GPUs", 14)
    assert gpu(shared) == Gpu("Vulkan0", 30)


def test_what_the_library_says_of_itself() -> None:
    found = facts.facts()
    assert found.version[0].isdigit()
    (cpu,) = (device for device in found.devices if device.name == "CPU")
    assert cpu.free > 0
    assert found.features


@pytest.mark.parametrize(
    ("total", "free", "limit", "left", "status"),
    [
        (16, 9, None, 0, "ok"),
        (16, 1, None, 0, "warn"),
        (16, 0.1, None, 0, "fail"),
        (16, 9, 3, 1, "warn"),
        (16, 9, 3, 0.1, "fail"),
        (16, 9, 99, 98, "ok"),
    ],
)
def test_memory(monkeypatch, total, free, limit, left, status) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: Memory(total * GB, int(free * GB)))
    group = None if limit is None else container.MemoryLimit(limit * GB, int(left * GB))
    monkeypatch.setattr(container, "memory", lambda: group)
    found = resources.memory()
    assert found.status == status
    assert ("container" in found.detail) is (limit == 3)
    assert found.detail.startswith(f"{left if limit == 3 else free:.1f} GB free of 16.0 GB")


@pytest.mark.parametrize(("total", "used", "status"), [(0, 0, "ok"), (8, 1, "ok"), (8, 4, "warn")])
def test_swap(monkeypatch, total, used, status) -> None:
    monkeypatch.setattr(psutil, "swap_memory", lambda: Swap(total * GB, used * GB))
    assert resources.swap().status == status


def test_a_containers_limit_on_cores(monkeypatch) -> None:
    monkeypatch.setattr(resources, "physical_cores", lambda: 8)
    monkeypatch.setattr(container, "cpus", lambda: None)
    assert resources.threads().status == "ok"
    monkeypatch.setattr(container, "cpus", lambda: 2.5)
    found = resources.threads()
    assert "the time of 2.5" in found.detail
    assert "edgespec config set threads 2" in str(found.fix)


@pytest.mark.parametrize(("free", "status"), [(90, "ok"), (3, "warn"), (0.1, "fail")])
def test_disk(monkeypatch, free, status) -> None:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(places.shutil, "disk_usage", lambda folder: usage(free * GB))
    found = places.disk()
    assert found.status == status
    assert f"{free:.1f} GB free" in found.detail


@pytest.mark.parametrize(
    ("variables", "status", "words"),
    [
        ({"TERM": "xterm-kitty"}, "ok", "xterm-kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "ok", "wezterm"),
        ({"WT_SESSION": "1"}, "ok", "Windows Terminal"),
        ({"TERM": "screen-256color", "TMUX": "/tmp/x", "TERM_PROGRAM": "tmux"}, "warn", "tmux"),
        ({"TERM": "xterm-256color", "VTE_VERSION": "7000"}, "warn", "does not let"),
        ({"TERM": "linux"}, "warn", "does not let"),
        ({"TERM": "xterm-256color"}, "warn", "does not say"),
        ({}, "warn", "does not say"),
    ],
)
def test_clipboard_by_name(variables, status, words) -> None:
    found = terminal.clipboard_by_name(variables)
    assert found.status == status
    assert words in found.detail


def test_replies_of_terminals() -> None:
    answer = terminal.parse("\x1b[12;3R\x1b[12;3R\x1b[12;2R\x1b[?62;22;52c")
    assert answer.columns == (2, 2, 1)
    assert "52" in answer.attributes
    assert terminal.parse("typed ahead") == terminal.Answer((), frozenset())
    assert "52" not in terminal.parse("\x1b[?1;152c").attributes
