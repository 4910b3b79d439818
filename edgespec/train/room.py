"""Is there room for a training, on the disk and in memory? What to say where there is not."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgespec.models.quoting import quoted

from ..errors import EdgeSpecError, NoSpaceError
from ..machine import free_memory
from .data import TOP
from .settings import TrainSettings

_SPARE = 100e6  # bytes of disk that stay free
_AGAIN = "give the same command again: it goes on where it was"


def require_space(folder: Path, n_embd: int, settings: TrainSettings, weights: int) -> None:
    """Raise NoSpaceError where texts and weights do not fit: now, twice their averages, the best, and once more.

    weights: how many numbers are learned.
    """
    needed = settings.tokens * (2 * n_embd + 6 * TOP) + 5 * 4 * weights + _SPARE
    place = next(place for place in (folder, *folder.parents) if place.exists())
    free = shutil.disk_usage(place).free
    if free < needed:
        raise NoSpaceError(
            f"training needs {needed / 1e6:.0f} MB free in {quoted(place)}, which has {free / 1e6:.0f} MB; free some "
            "space, give fewer --tokens, or point EDGESPEC_HOME at another disk"
        )


def require_memory(tokens: int, n_embd: int, weights: int, working: int) -> None:
    """Raise EdgeSpecError where learning from so many tokens takes more than is free.

    weights: how many numbers are learned.  working: bytes that the form of heads takes beside these and the texts.
    """
    needed, free = tokens * (2 * n_embd + 16 * TOP) + working + 6 * 4 * weights, free_memory()
    if free < needed:
        raise EdgeSpecError(
            f"learning needs {needed / 1e6:.0f} MB of memory and {free / 1e6:.0f} MB are free; close other programs "
            f"and {_AGAIN}; or give a smaller --vocabulary or fewer --tokens"
        )


@contextmanager
def on_disk(folder: Path) -> Iterator[None]:
    """A disk or a memory that fills up loses nothing that is on the disk."""
    try:
        yield
    except MemoryError as error:
        raise EdgeSpecError(f"the memory is full; close other programs and {_AGAIN}") from error
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise NoSpaceError(f"the disk of {quoted(folder)} is full; free some space and {_AGAIN}") from error
