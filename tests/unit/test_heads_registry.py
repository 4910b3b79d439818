"""Which heads belong to which model file: those that are registered for its content, else those that are shipped."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from edgespec.errors import ModelNotFoundError
from edgespec.heads import registry
from edgespec.heads.registry import AUTO, NONE, heads_file, register, registered
from edgespec.heads.storage import read_heads, write_heads
from edgespec.models.header import read_header
from edgespec.models.identity import file_identity
from table_heads import random_heads, random_sequential


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGESPEC_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_registered_heads_are_found_by_the_files_content(
    home: Path, tiny: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    header, other = read_header(tiny()), read_header(tiny(seed=3))
    path = tmp_path / "heads.safetensors"
    assert registered(header) is None
    register(file_identity(header), path)
    assert registered(header) is None  # named, but not there
    assert "are gone" in caplog.text
    write_heads(random_heads(), path)
    assert registered(header) == heads_file(AUTO, header) == path
    assert registered(other) is None
    assert heads_file(NONE, header) is None
    assert heads_file(str(path), other) == path
    with pytest.raises(ModelNotFoundError, match="no file nowhere with heads"):
        heads_file("nowhere", header)
    copy = tmp_path / "renamed.gguf"
    copy.write_bytes(tiny().read_bytes())
    assert registered(read_header(copy)) == path
    for record in (home / "heads").iterdir():
        for text in ("", "[]", '{"medusa": 5}', "\x00"):
            record.write_text(text)
            assert registered(header) is None
            assert "is damaged" in caplog.text


def test_shipped_heads_are_found_where_none_are_registered(
    home: Path, tiny: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_SHIPPED", tmp_path)
    header = read_header(tiny())
    identity = file_identity(header)
    assert registered(header) is None
    write_heads(random_sequential(), tmp_path / f"{identity[:32]}.safetensors")
    assert registered(header) == heads_file(AUTO, header) == tmp_path / f"{identity[:32]}.safetensors"
    assert heads_file(NONE, header) is None
    assert registered(read_header(tiny(seed=3))) is None
    write_heads(random_heads(), tmp_path / "own.safetensors")
    register(identity, tmp_path / "own.safetensors")
    assert registered(header) == tmp_path / "own.safetensors"


def test_every_shipped_file_goes_into_the_package_and_is_whole() -> None:
    """Each is named after the file that it was made for, small, and with a line on the card beside it."""
    root = Path(__file__).parents[2]
    folder, build = root / "models" / "heads", tomllib.loads((root / "pyproject.toml").read_text())
    patterns = build["tool"]["setuptools"]["package-data"]["edgespec.models"]
    files = [path for path in folder.iterdir() if path.is_file()]
    assert all(any(path.match(pattern) for pattern in patterns) for path in files)
    found = [path for path in files if path.suffix == ".safetensors"]
    assert found
    for path in found:
        heads = read_heads(path)
        assert path.stem == heads.facts.target[:32]
        assert path.stat().st_size <= 12_000_000
        assert path.name in (folder / "README.md").read_text("utf-8")
