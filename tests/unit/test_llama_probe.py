"""The kernel probe: tried once, remembered, and a crash of the best kernels means the next ones and a warning."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgespec.errors import EdgeSpecError
from edgespec.llama import probe


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state folder of the test's own."""
    monkeypatch.setenv("EDGESPEC_HOME", str(tmp_path))
    probe.working.cache_clear()
    yield tmp_path
    probe.working.cache_clear()


class Tries:
    """Stands for the child process; `crashing` die."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *crashing: str) -> None:
        self.tried: list[str] = []
        monkeypatch.setattr(probe, "_try", lambda b: self.tried.append(b) or b not in crashing)


def test_the_build_in_use_runs() -> None:
    """The real thing: each choice in its own process."""
    assert probe._try("none")
    assert "none" in probe.working()


def test_a_crash_is_not_a_crash_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    killed = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGILL)"]
    run = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda command, **options: run(killed, **options))
    assert not probe._try("auto")


def test_remembered_on_disk(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    first = Tries(monkeypatch)
    assert probe.usable("auto") == "auto"
    assert first.tried == ["auto", "repack", "none"]
    probe.working.cache_clear()
    second = Tries(monkeypatch, "auto")
    assert probe.usable("auto") == "auto"
    assert second.tried == []
    assert [p.name for p in (home / "cache").iterdir()] == ["probe.json"]


def test_again_tries_again(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    Tries(monkeypatch)
    assert probe.main([]) == 0
    assert "auto, repack, none" in capsys.readouterr().out
    Tries(monkeypatch, "auto")
    assert probe.main([]) == 0
    assert probe.main(["--again"]) == 1
    assert "auto" not in capsys.readouterr().out.splitlines()[-1]
    probe.working.cache_clear()
    assert probe.usable("auto") == "repack"  # what was found again is what is remembered


def test_another_build_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    Tries(monkeypatch)
    probe.usable("auto")
    probe.working.cache_clear()
    monkeypatch.setattr(probe, "identity", lambda: "another build")
    tries = Tries(monkeypatch)
    probe.usable("auto")
    assert tries.tried


@pytest.mark.parametrize(
    "record", ["", "{", "[]", "null", '{"identity": "x"}', '{"identity": 3, "working": null}', "\0\0\0"]
)
def test_a_damaged_record_is_replaced(monkeypatch: pytest.MonkeyPatch, home: Path, record: str) -> None:
    (home / "cache").mkdir()
    file = home / "cache" / "probe.json"
    file.write_text(record.replace("3", json.dumps(probe.identity())), "utf-8")
    tries = Tries(monkeypatch)
    assert probe.usable("auto") == "auto"
    assert tries.tried
    assert json.loads(file.read_text("utf-8"))["working"] == ["auto", "repack", "none"]


def test_a_folder_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    (home / "cache").write_text("a file where the folder should be")
    Tries(monkeypatch)
    assert probe.usable("repack") == "repack"


@pytest.mark.parametrize(
    ("crashing", "wanted", "used"),
    [
        (("auto",), "auto", "repack"),
        (("auto", "repack"), "auto", "none"),
        (("repack",), "auto", "auto"),
        (("repack",), "repack", "none"),
        (("auto",), "none", "none"),
    ],
)
def test_fallback(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, crashing: tuple[str, ...], wanted: str, used: str
) -> None:
    Tries(monkeypatch, *crashing)
    caplog.set_level(logging.WARNING)
    assert probe.usable(wanted) == used  # type: ignore[arg-type]  # a Buffers literal
    assert ("CFLAGS" in caplog.text and repr(wanted) in caplog.text) is (wanted != used)


def test_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    Tries(monkeypatch, "auto", "repack", "none")
    with pytest.raises(EdgeSpecError, match="CFLAGS") as caught:
        probe.usable("auto")
    assert "\n" not in str(caught.value)
