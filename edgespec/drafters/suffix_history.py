"""The user's past replies as token ids, on disk and only on request: what the suffix drafter may also draw on.

One file per vocabulary, so that ids mean the same words; readable by the user alone; capped; replaced as a
whole, so that a reader or a crash never meets half a file. Processes that write at the same moment may
lose each other's latest reply, never the file.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import tempfile
import threading
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .. import paths
from .suffix_index import FixedIndex

_log = logging.getLogger(__name__)

_MAGIC = b"edgespec-suffix-1\n"
_END = -1  # after each reply
MAX_TOKENS = (1 << 18) - 64  # 1 MB of ids, indexed in a twentieth of a second: the oldest replies make room
_HEADER = len(_MAGIC) + 4  # then CRC-32 of the ids, little-endian, and the ids as int32


def history_folder() -> Path:
    """Where the files lie."""
    return paths.home() / "suffix"


def clear_history() -> int:
    """Delete all kept replies, of every vocabulary; returns how many files that were."""
    found = [path for path in history_folder().glob("*") if path.suffix in (".bin", ".tmp")]
    for path in found:
        path.unlink(missing_ok=True)
    return sum(path.suffix == ".bin" for path in found)


class SuffixHistory:
    """The kept replies of one vocabulary. Safe to use from several threads and processes.

    identity: names the vocabulary (LlamaVocab.identity).  vocab_size: ids at or past it make a file unusable.
    Nothing raises for a file that cannot be read or written: a line is logged and generation goes on.
    """

    def __init__(self, identity: str, vocab_size: int, *, max_tokens: int = MAX_TOKENS) -> None:
        self.path = history_folder() / f"{identity}.bin"
        self._vocab_size, self._max_tokens = vocab_size, max_tokens
        self._lock = threading.Lock()
        self._indexed: tuple[object, FixedIndex] | None = None

    def index(self) -> FixedIndex | None:
        """An index of what the file holds now, made again only when the file changed; None while there is none."""
        with self._lock:
            state = self._state()
            if state is None:
                self._indexed = None
            elif self._indexed is None or self._indexed[0] != state:
                self._indexed = (state, FixedIndex(self._read()))
            return self._indexed[1] if self._indexed else None

    def add(self, reply: Sequence[int]) -> None:
        """Keep one more reply: token ids, without an end token."""
        if not reply:
            return
        with self._lock:
            new = np.array([*reply[-(self._max_tokens - 1) :], _END], dtype="<i4")
            try:
                self._write(self._capped(np.concatenate([self._read(), new])))
            except OSError as error:
                _log.warning("cannot keep the reply in %s: %s", self.path, error.strerror or error)

    def _capped(self, tokens: NDArray[np.int32]) -> NDArray[np.int32]:
        """The latest whole replies that fit."""
        if len(tokens) <= self._max_tokens:
            return tokens
        ends = np.flatnonzero(tokens == _END) + 1
        return tokens[ends[ends >= len(tokens) - self._max_tokens][0] :]

    def _state(self) -> object | None:
        """Changes whenever the file does; None where there is no file."""
        try:
            now = self.path.lstat()
        except OSError:
            return None
        return (now.st_ino, now.st_mtime_ns, now.st_size)

    def _read(self) -> NDArray[np.int32]:
        """The ids in the file; none, and a logged line, where it is not one of ours or damaged."""
        nothing = np.empty(0, dtype="<i4")
        try:
            if not stat.S_ISREG(self.path.lstat().st_mode):
                raise ValueError("not a regular file")
            with self.path.open("rb") as file:
                data = file.read(_HEADER + 4 * self._max_tokens + 1)
        except FileNotFoundError:
            return nothing
        except (OSError, ValueError) as error:
            _log.warning("suffix history %s is not used: %s", self.path, error)
            return nothing
        body = memoryview(data)[_HEADER:]
        expected = _MAGIC + zlib.crc32(body).to_bytes(4, "little")
        if data[:_HEADER] == expected and len(body) % 4 == 0 and len(body) <= 4 * self._max_tokens:
            tokens: NDArray[np.int32] = np.frombuffer(body, dtype="<i4")
            ends_well = not len(tokens) or tokens[-1] == _END
            if ends_well and ((tokens >= _END) & (tokens < self._vocab_size)).all():
                return tokens
        _log.warning("suffix history %s is damaged and starts anew", self.path)
        return nothing

    def _write(self, tokens: NDArray[np.int32]) -> None:
        """Replace the file. Raises OSError."""
        folder = self.path.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if stat.S_IMODE(folder.stat().st_mode) & 0o077:
            folder.chmod(0o700)
        body = tokens.astype("<i4").tobytes()
        descriptor, name = tempfile.mkstemp(suffix=".tmp", dir=folder)  # for the user alone, from the start
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(_MAGIC + zlib.crc32(body).to_bytes(4, "little") + body)
            Path(name).replace(self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise
