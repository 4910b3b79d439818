"""Where EdgeSpec keeps its own files: one folder, EDGESPEC_HOME or the platform's user data folder."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def home() -> Path:
    """The folder of all our state (the shared Hub cache is not in it)."""
    override = os.environ.get("EDGESPEC_HOME")
    return user_path(override) if override else Path(platformdirs.user_data_dir("edgespec", appauthor=False))


def config_dir() -> Path:
    """Where what the user writes lies: the platform's folder for settings, or EDGESPEC_HOME."""
    if os.environ.get("EDGESPEC_HOME"):
        return home()
    return Path(platformdirs.user_config_dir("edgespec", appauthor=False))


def user_path(name: str) -> Path:
    """The path that a person means by a name; "~" is the home folder, "~someone" theirs if there is such a one."""
    path = Path(name)
    if not name.startswith("~"):
        return path
    try:
        return path.expanduser()
    except (RuntimeError, ValueError):  # nobody's home, or no name that anybody can have
        return path


def models_dir() -> Path:
    """Where model files that we fetched lie."""
    return home() / "models"


def cache_dir() -> Path:
    """Measurements that can be made again: the kernel probe, cost tables, the fastest settings."""
    return home() / "cache"


def write_whole(path: Path, text: str, *, private: bool = False) -> None:
    """Write a file, with its folder, so that readers find all of it or none; its mode stays. Raises OSError.

    private: a new one is for the user alone.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    if private:
        temporary.touch(mode=0o600)
    temporary.write_text(text, "utf-8")
    if path.exists():
        temporary.chmod(path.stat().st_mode)
    temporary.replace(path)
