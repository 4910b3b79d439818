"""Where EdgeSpec keeps its own files: one folder, EDGESPEC_HOME or the platform's user data folder."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def home() -> Path:
    """The folder of all our state (the shared Hub cache is not in it)."""
    override = os.environ.get("EDGESPEC_HOME")
    return Path(override).expanduser() if override else Path(platformdirs.user_data_dir("edgespec", appauthor=False))


def models_dir() -> Path:
    """Where model files that we fetched lie."""
    return home() / "models"


def cache_dir() -> Path:
    """Measurements that can be made again: the kernel probe, cost tables."""
    return home() / "cache"
