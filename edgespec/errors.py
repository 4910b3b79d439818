"""Every error EdgeSpec raises on purpose, as one tree.

    EdgeSpecError                 base: catch this to catch them all (CLI exit code 1)
    ├── BadRequestError           a parameter or an input is wrong, nothing was run (exit 2)
    │   └── CatalogError          the user's own catalogue of models is not in its form (exit 2)
    ├── ModelNotFoundError        no such file or name, or it is not on this disk (exit 3)
    │   ├── OfflineError          it is not here, and the network may not or cannot be used (exit 3)
    │   └── GatedError            its owner lets only some people have it (exit 3)
    ├── ModelLoadError            the file is not usable: not GGUF, truncated, unsupported (exit 4)
    │   ├── VocabMismatchError    draft and target do not share a vocabulary (exit 4)
    │   └── DamagedDownloadError  what arrived is not the file that was asked for; nothing was kept (exit 4)
    ├── DownloadError             the network failed on the way; what arrived is kept for the next try (exit 1)
    ├── NoSpaceError              the disk has no room for the file (exit 1)
    ├── ContextFullError          the prompt does not fit the context window (exit 5)
    ├── HistoryError              saved conversations cannot be read or written (exit 1)
    │   └── HistoryDamagedError   their file was damaged; it lies aside, nothing of it is deleted (exit 1)
    ├── EngineError               the engine's process cannot be started, or not be talked to (exit 1)
    │   ├── EngineDied            it ended, or did not answer, while it served this request (exit 1)
    │   ├── ServerError           a server that has the model cannot be reached, failed or broke off (exit 1)
    │   └── QueueFullError        more requests wait for it than it takes (exit 1)
    ├── DeadlineError             the request was not finished in the time that it was given (exit 1)
    ├── DecodeError               llama.cpp refused or failed a decode (exit 1)
    └── Cancelled                 the caller asked for a stop; partial text is kept (exit 130)

Messages are one line: what is wrong, then how to fix it.
"""

from __future__ import annotations

from pathlib import Path


class EdgeSpecError(Exception):
    """Base of all errors raised by EdgeSpec."""

    exit_code = 1


class BadRequestError(EdgeSpecError):
    """A parameter or an input cannot be used; nothing was run."""

    exit_code = 2


class CatalogError(BadRequestError):
    """A catalogue of models is not in its form.

    Attributes
    ----------
    file: the catalogue.  entry: the name of the entry, None outside of any.  field: None where the whole is meant.
    """

    def __init__(self, file: Path, entry: str | None, field: str | None, what: str) -> None:
        where = [f"entry {entry!r}"] if entry is not None else []
        where += [field] if field is not None else []
        super().__init__(f"the catalogue {file}{', ' if where else ''}{', '.join(where)}: {what}; correct that file")
        self.file = file
        self.entry = entry
        self.field = field


class ModelNotFoundError(EdgeSpecError):
    """The named model is not on this disk."""

    exit_code = 3


class OfflineError(ModelNotFoundError):
    """The model is not on this disk, and no network may be used or can be reached."""


class GatedError(ModelNotFoundError):
    """The model is there, but not for everyone: an account must be let in first."""


class ModelLoadError(EdgeSpecError):
    """The model file exists but cannot be used."""

    exit_code = 4


class VocabMismatchError(ModelLoadError):
    """The draft model's vocabulary is not the target's."""


class DamagedDownloadError(ModelLoadError):
    """What was downloaded is not the file that was asked for; nothing of it is kept."""


class DownloadError(EdgeSpecError):
    """A server failed, or the connection was lost too often. What has arrived is kept: a new try goes on from there."""


class NoSpaceError(EdgeSpecError):
    """The disk has no room for the file."""


class ContextFullError(EdgeSpecError):
    """The prompt needs more tokens than the context window has.

    Attributes
    ----------
    needed: tokens of the prompt.  available: tokens the context can hold for a prompt.
    """

    exit_code = 5

    def __init__(self, message: str, *, needed: int, available: int) -> None:
        super().__init__(message)
        self.needed = needed
        self.available = available


class HistoryError(EdgeSpecError):
    """The saved conversations cannot be read or written."""


class HistoryDamagedError(HistoryError):
    """The file of the saved conversations was damaged. It has been put aside, and a new one can begin."""


class EngineError(EdgeSpecError):
    """The engine's process cannot be started, or cannot be talked to."""


class EngineDied(EngineError):
    """The engine's process ended, or did not answer, while it served this request. The next use starts another."""


class ServerError(EngineError):
    """The server that has the model cannot be reached, failed on the request, or broke off. The next may succeed."""


class QueueFullError(EngineError):
    """More requests wait for the engine than it takes."""


class DeadlineError(EdgeSpecError):
    """A request was not finished in the time that it was given; what it had produced stays."""


class DecodeError(EdgeSpecError):
    """llama.cpp could not run a decode."""


class Cancelled(EdgeSpecError):
    """The caller asked to stop."""

    exit_code = 130
