"""What requests teach about a model and its draft, kept on disk: numbers only, no text and no token.

How well a source fits depends on the pair and on the temperature more than on the text, so a request starts from what
those before it saw. What is recalled weighs little, so that this conversation soon counts for more.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Mapping
from pathlib import Path

from ..acceptance import Acceptance, Prior

log = logging.getLogger(__name__)

Sums = tuple[tuple[int, float, float], ...]

_MOST = 3.0  # tokens that a recalled estimate weighs, by feature
_TEMPERATURES = 4  # steps of a unit that are told apart


def circumstance(temperature: float, *, seed_exact: bool) -> str:
    """Under which requests are alike: acceptance falls with the temperature, and differs by rule."""
    if temperature == 0:
        return "greedy"
    return f"{'seed' if seed_exact else 'sampled'} {round(temperature * _TEMPERATURES) / _TEMPERATURES:g}"


class Knowledge:
    """Acceptance of every source by circumstance. path None: kept in memory alone."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._turn = threading.Lock()
        self._known: dict[str, dict[str, Sums]] = _read(path) if path is not None else {}
        self._changed = False

    def recall(self, circumstance: str, priors: Mapping[str, Prior]) -> dict[str, Acceptance]:
        """An estimate for each name of `priors`, from what is known of it."""
        with self._turn:
            known = self._known.get(circumstance, {})
            found = {name: Acceptance(prior) for name, prior in priors.items()}
            for name, acceptance in found.items():
                acceptance.recall(known.get(name, ()), _MOST)
            return found

    def learn(self, circumstance: str, seen: Mapping[str, Acceptance]) -> None:
        """What a request that was started by recall() has seen by its end."""
        with self._turn:
            known = self._known.setdefault(circumstance, {})
            known.update({name: acceptance.sums for name, acceptance in seen.items() if acceptance.sums})
            self._changed = True

    def save(self) -> None:
        """Write to disk what changed. A full or read-only disk costs the knowledge, nothing else."""
        with self._turn:
            if self._path is None or not self._changed:
                return
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                temporary = self._path.with_suffix(f".{os.getpid()}.tmp")
                temporary.write_text(json.dumps(self._known), "utf-8")
                temporary.replace(self._path)
                self._changed = False
            except OSError as error:
                log.info("acceptance is not remembered: %s", error)


def _read(path: Path) -> dict[str, dict[str, Sums]]:
    """The file's content, or nothing where it is missing or damaged."""
    try:
        record = json.loads(path.read_text("utf-8"))
        found = {
            str(circumstance): {
                str(name): tuple((int(f), float(hits), float(seen)) for f, hits, seen in sums)
                for name, sums in sources.items()
            }
            for circumstance, sources in record.items()
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
    sums = [entry for sources in found.values() for entries in sources.values() for entry in entries]
    return found if all(0 <= hits <= seen + 1e-9 < 1e9 for _, hits, seen in sums) else {}
