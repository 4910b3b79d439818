"""A model that is being fetched, for a screen that shows how far it is and may stop it."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

from ..errors import Cancelled
from ..models.pulling import fetch, wanted
from .labels import byte_size, line

_STAGES = {"wait": "waiting for another program that fetches", "check": "checking", "download": "fetching"}


class Fetching:
    """progress: what to show, bytes done, bytes in all.  stopped: whether it was told to stop."""

    def __init__(self, name: str, *, with_draft: bool) -> None:
        self._name, self._with_draft = name, with_draft
        self._stop = threading.Event()
        self.progress: tuple[str, int, int] = (f"asking for {line(name, 60)}", 0, 0)

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        """End soon; what has arrived is kept for the next try."""
        self._stop.set()

    def run(self) -> Path:
        """Fetch; returns the model's file. Raises as models.pulling.fetch, and Cancelled."""
        paths = []
        for item in wanted(self._name, with_draft=self._with_draft):
            paths.append(fetch(item, progress=partial(self._at, item.name)))
        return paths[0]

    def _at(self, name: str, stage: str, done: int, total: int) -> None:
        if self._stop.is_set():
            raise Cancelled("stopped")
        size = f" {byte_size(done)} of {byte_size(total)}" if total else ""
        self.progress = (f"{_STAGES.get(stage, stage)} {line(name, 60)}{size}", done, total)
