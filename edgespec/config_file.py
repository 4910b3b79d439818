"""config.toml itself: read whole or not at all, and changed in place with its comments kept."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import BadRequestError, EdgeSpecError
from .paths import config_dir, write_whole

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

_LARGEST = 1_000_000  # bytes; more is not a file of settings


def config_file() -> Path:
    """Where the file is, or would be."""
    return config_dir() / "config.toml"


def read_file(path: Path) -> dict[str, Any]:
    """Its keys; none where there is no file. Raises BadRequestError where it cannot be read or is no TOML."""
    return _keys(path, _text(path))


def put(path: Path, name: str, value: Any) -> None:
    """Set a key. Raises BadRequestError where the file cannot be read, EdgeSpecError where it cannot be written."""

    def change(document: TOMLDocument) -> None:
        document[name] = value

    _change(path, change)


def remove(path: Path, name: str) -> bool:
    """Take a key out; False where it was not there. Raises as put() does."""
    if name not in read_file(path):
        return False

    def change(document: TOMLDocument) -> None:
        del document[name]

    _change(path, change)
    return True


def _change(path: Path, change: Callable[[TOMLDocument], None]) -> None:
    import tomlkit

    text = _text(path)
    _keys(path, text)  # its message names the line
    document = tomlkit.parse(text)
    change(document)
    try:
        write_whole(Path(os.path.realpath(path)), tomlkit.dumps(document))  # a link stays a link
    except OSError as error:
        raise EdgeSpecError(f"cannot write {path}: {error.strerror}; make its folder writable") from error


def _text(path: Path) -> str:
    try:
        if path.exists() and not path.is_file():
            raise BadRequestError(f"{path}: not a file; remove it")
        with path.open("rb") as file:
            start = file.read(_LARGEST + 1)
        if len(start) > _LARGEST:
            raise BadRequestError(f"{path}: over {_LARGEST // 1_000_000} MB, so no file of settings; remove it")
        return start.decode("utf-8-sig").replace("\r\n", "\n")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise BadRequestError(f"{path}: cannot be read: {why}; mend or remove it") from error


def _keys(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())
        raise BadRequestError(f"{path}: not TOML: {why}; mend that line, or remove the file") from error
