"""Profiles on disk: what comes back, what does not, and for whom."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from edgespec import profile_store
from edgespec.models.header import Header, read_header
from edgespec.profile import Choice, Forced, RuntimeProfile, Trial

CHOICE = Choice(buffers="none", flash_attn="off", threads=3, gpu_layers=-1)
PROFILE = RuntimeProfile(
    CHOICE,
    Trial(replace(CHOICE, flash_attn="on"), 4.5, 6.25),
    (Trial(CHOICE, 1.5, 2.25), Trial(replace(CHOICE, threads=2), 1.75, None), Trial(CHOICE, None, None, "no room")),
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGESPEC_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def header(tiny: Callable[..., Path]) -> Header:
    return read_header(tiny())


def kept(home: Path) -> list[Path]:
    return sorted((home / "cache" / "profiles").iterdir())


def test_what_is_remembered_comes_back(home: Path, header: Header) -> None:
    assert profile_store.remembered(header, Forced()) is None
    profile_store.remember(header, Forced(), PROFILE)
    assert profile_store.remembered(header, Forced()) == PROFILE
    bare = RuntimeProfile(CHOICE, provisional=True)
    profile_store.remember(header, Forced(), bare)
    assert profile_store.remembered(header, Forced()) == bare
    assert [path.suffix for path in kept(home)] == [".json"]


@pytest.mark.parametrize(
    "other",
    [Forced(threads=3), Forced(buffers="none"), Forced(flash_attn="off"), Forced(gpu_layers=0), Forced(kv_type="f32")],
)
@pytest.mark.usefixtures("home")
def test_what_is_forced_is_another_profile(header: Header, other: Forced) -> None:
    profile_store.remember(header, Forced(), PROFILE)
    assert profile_store.remembered(header, other) is None
    assert profile_store.remembered(header, replace(other)) is None


@pytest.mark.usefixtures("home")
def test_another_file_build_or_number_of_cores_is_another_profile(
    header: Header, tiny: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    profile_store.remember(header, Forced(), PROFILE)
    assert profile_store.remembered(read_header(tiny(noise=0.05)), Forced()) is None
    for name, value in (("identity", "another"), ("physical_cores", 77), ("logical_cores", 78)):
        with monkeypatch.context() as patch:
            patch.setattr(profile_store, name, lambda value=value: value)
            assert profile_store.remembered(header, Forced()) is None, name
    assert profile_store.remembered(header, Forced()) == PROFILE


def test_a_copy_of_the_file_is_the_same_model(home: Path, header: Header) -> None:
    profile_store.remember(header, Forced(), PROFILE)
    copy = home / "renamed.gguf"
    copy.write_bytes(header.path.read_bytes())
    assert profile_store.remembered(read_header(copy), Forced()) == PROFILE


GOOD = profile_store.to_json(PROFILE)
TRIAL = GOOD["trials"][0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        "\xff",
        json.dumps({**GOOD, "buffers": "amx"}),
        json.dumps({**GOOD, "flash_attn": "auto"}),
        json.dumps({**GOOD, "threads": 0}),
        json.dumps({**GOOD, "threads": 1.5}),
        json.dumps({**GOOD, "threads": True}),
        json.dumps({**GOOD, "gpu_layers": -2}),
        json.dumps({**GOOD, "trials": 3}),
        json.dumps({**GOOD, "provisional": 0}),
        json.dumps({**GOOD, "trials": [{**TRIAL, "short_ms": -1.0}]}),
        json.dumps({**GOOD, "trials": [{**TRIAL, "long_ms": "fast"}]}),
        json.dumps({**GOOD, "defaults": {**TRIAL, "short_ms": float("nan")}}),
        json.dumps({name: value for name, value in GOOD.items() if name != "defaults"}),
    ],
)
def test_a_damaged_record_is_none(home: Path, header: Header, text: str) -> None:
    profile_store.remember(header, Forced(), PROFILE)
    (path,) = kept(home)
    path.write_bytes(text.encode("latin-1"))
    assert profile_store.remembered(header, Forced()) is None


@pytest.mark.parametrize("provisional", [False, True])
def test_a_provisional_profile_lasts_an_hour(home: Path, header: Header, provisional: bool) -> None:
    profile = replace(PROFILE, provisional=provisional)
    profile_store.remember(header, Forced(), profile)
    (path,) = kept(home)
    written = path.stat().st_mtime
    os.utime(path, (written - 3500, written - 3500))
    assert profile_store.remembered(header, Forced()) == profile
    os.utime(path, (written - 3700, written - 3700))
    assert profile_store.remembered(header, Forced()) == (None if provisional else profile)


def test_forgetting_takes_all_of_one_file(home: Path, header: Header, tiny: Callable[..., Path]) -> None:
    other = read_header(tiny(noise=0.05))
    profile_store.forget(header)  # nothing yet
    for forced in (Forced(), Forced(threads=1)):
        profile_store.remember(header, forced, PROFILE)
    profile_store.remember(other, Forced(), PROFILE)
    profile_store.forget(header)
    assert profile_store.remembered(header, Forced()) is None
    assert len(kept(home)) == 1
    assert profile_store.remembered(other, Forced()) == PROFILE


def test_a_folder_that_cannot_be_written_is_no_error(home: Path, header: Header) -> None:
    (home / "cache").write_text("in the way", "utf-8")
    profile_store.remember(header, Forced(), PROFILE)
    assert profile_store.remembered(header, Forced()) is None
    profile_store.forget(header)
