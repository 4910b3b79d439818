"""Every error EdgeSpec raises on purpose, as one tree.

    EdgeSpecError                 base: catch this to catch them all (CLI exit code 1)
    ├── BadRequestError           a parameter or an input is wrong, nothing was run (exit 2)
    ├── ModelNotFoundError        no such file or name, or it is not on this disk (exit 3)
    ├── ModelLoadError            the file is not usable: not GGUF, truncated, unsupported (exit 4)
    │   └── VocabMismatchError    draft and target do not share a vocabulary (exit 4)
    ├── ContextFullError          the prompt does not fit the context window (exit 5)
    ├── DecodeError               llama.cpp refused or failed a decode (exit 1)
    └── Cancelled                 the caller asked for a stop; partial text is kept (exit 130)

Messages are one line: what is wrong, then how to fix it.
"""

from __future__ import annotations


class EdgeSpecError(Exception):
    """Base of all errors raised by EdgeSpec."""

    exit_code = 1


class BadRequestError(EdgeSpecError):
    """A parameter or an input cannot be used; nothing was run."""

    exit_code = 2


class ModelNotFoundError(EdgeSpecError):
    """The named model is not on this disk."""

    exit_code = 3


class ModelLoadError(EdgeSpecError):
    """The model file exists but cannot be used."""

    exit_code = 4


class VocabMismatchError(ModelLoadError):
    """The draft model's vocabulary is not the target's."""


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


class DecodeError(EdgeSpecError):
    """llama.cpp could not run a decode."""


class Cancelled(EdgeSpecError):
    """The caller asked to stop."""

    exit_code = 130
