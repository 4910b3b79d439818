"""Paths that a person types."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgespec.paths import user_path


@pytest.mark.parametrize("name", ["notes.txt", "~nobody-of-this-name/notes.txt", "~~~\n\x9b", "a~b"])
def test_what_is_no_home_folder_is_a_name(name: str) -> None:
    assert user_path(name) == Path(name)


def test_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert user_path("~/notes.txt") == tmp_path / "notes.txt"
