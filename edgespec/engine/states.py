"""KV states of conversations on disk: after a restart the next turn need not read its history again.

One file for each conversation and model, in a folder that only its user can read; the least recently used go where all
would take more than a cap. llama.cpp trusts a state that it is given, and a damaged one kills the process. So a file is
used only if its digest fits all of it, and it was made by this build, of this model file, at these settings.

    magic, digest of all that follows, length of the header, header (MessagePack), state as llama.cpp wrote it
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from edgespec.models.identity import file_identity

from ..errors import DecodeError
from ..llama import Context
from ..llama.binding import version
from ..scoring import common_prefix
from .state_files import SUFFIX, file_name, forget

log = logging.getLogger(__name__)

CAP_BYTES = 2 << 30
_MAGIC = b"EdgeSpec state 1\n"
_DIGEST_BYTES = 32
_LEAST_TOKENS = 64  # fewer are read faster than a file
_MOST_HEADER = 64 << 20


@dataclass(frozen=True, slots=True)
class Kept:
    """What the cache holds of a conversation."""

    conversation: str
    tokens: tuple[int, ...]


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """identity: of model file, build and settings.  tokens: what the state is of, uint32 little-endian."""

    identity: str
    tokens: bytes

    @property
    def ids(self) -> list[int]:
        return _unpacked(self.tokens)


class States:
    """Saved states in a folder. Use it from one thread, but for forget(). folder None: nothing is kept."""

    def __init__(self, folder: Path | None, cap_bytes: int = CAP_BYTES) -> None:
        self._folder, self._cap = folder, cap_bytes
        self._turn = threading.Lock()
        self._context: Context | None = None
        self._identity = ""
        self._writing: threading.Thread | None = None

    def use(self, context: Any) -> None:
        """States are of this context from now on. One that is no llama.cpp context, or None: of none."""
        self._wait()
        usable = isinstance(context, Context) and (context.can_trim or context.model.recurrent)
        self._context = context if usable and self._folder is not None else None
        if self._context is not None:
            self._identity = _identity(self._context)

    def keep(self, kept: Kept) -> None:
        """Save what the cache still holds of a conversation; the disk is written to in a thread of its own."""
        context, folder = self._context, self._folder
        if context is None or folder is None:
            return
        sequence = context.sequence(kept.tokens)
        try:
            held = list(sequence.cached)
            if len(held) < _LEAST_TOKENS or common_prefix(held, kept.tokens) < len(held):
                return
            state = sequence.save()
        finally:
            sequence.close()
        self._wait()
        path = folder / file_name(kept.conversation, self._identity)
        header = msgspec.msgpack.encode(_Header(self._identity, _packed(held)))
        self._writing = threading.Thread(target=self._write, args=(path, header, state), name="edgespec-states")
        self._writing.start()

    def resume(self, sequence: Any, prompt: Sequence[int]) -> bool:
        """Put the saved state with the longest common prefix into a sequence, if that beats what its cache holds."""
        context = self._context
        if context is None or len(prompt) < _LEAST_TOKENS:
            return False
        best, most, ids = None, common_prefix(sequence.cached, prompt) + _LEAST_TOKENS - 1, [0]
        for path, header in self._headers():
            tokens = header.ids
            shared = common_prefix(tokens, prompt[:-1])
            if shared > most and (context.can_trim or shared == len(tokens)):
                best, most, ids = path, shared, tokens
        if best is None:
            return False
        self._wait()
        state = self._read(best, ids)
        if state is None:
            return False
        try:
            sequence.restore(state, ids)
        except DecodeError as error:
            log.info("%s is of no use: %s", best.name, error)
            best.unlink(missing_ok=True)
            return False
        with contextlib.suppress(OSError):
            os.utime(best)
        return True

    def forget(self, conversation: str) -> None:
        """Delete what is saved of a conversation, of any model."""
        self._wait()
        if self._folder is not None:
            with self._turn:
                forget(self._folder, conversation)

    def close(self) -> None:
        """Wait for the disk."""
        self._wait()

    def _wait(self) -> None:
        writing = self._writing
        if writing is not None:
            writing.join()
            self._writing = None

    def _headers(self) -> Iterator[tuple[Path, _Header]]:
        """Files of this model whose headers can be read; they are not verified yet."""
        assert self._folder is not None
        for path in self._folder.glob(f"*-{self._identity[:16]}{SUFFIX}"):
            try:
                with path.open("rb") as file:
                    start = file.read(len(_MAGIC) + _DIGEST_BYTES + 4)
                    (size,) = struct.unpack("<I", start[-4:])
                    if not start.startswith(_MAGIC) or size > _MOST_HEADER:
                        raise ValueError("not a state")
                    header = msgspec.msgpack.decode(file.read(size), type=_Header)
                if header.identity == self._identity and len(header.tokens) % 4 == 0:
                    yield path, header
            except (OSError, ValueError, struct.error, msgspec.MsgspecError) as error:
                log.info("%s is not used: %s", path.name, error)

    def _read(self, path: Path, ids: list[int]) -> memoryview | None:
        """The state in a file, once all of it is known to be whole; a damaged file is deleted."""
        try:
            data = memoryview(path.read_bytes())
        except OSError:
            return None
        body = data[len(_MAGIC) + _DIGEST_BYTES :]
        digest = hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest()
        if digest != data[len(_MAGIC) : len(_MAGIC) + _DIGEST_BYTES]:
            log.warning("%s is damaged; it was deleted, and the conversation is read anew", path.name)
            path.unlink(missing_ok=True)
            return None
        (size,) = struct.unpack("<I", body[:4])
        header = msgspec.msgpack.decode(body[4 : 4 + size], type=_Header)
        return body[4 + size :] if header.ids == ids else None  # another process wrote a newer one meanwhile

    def _write(self, path: Path, header: bytes, state: bytes) -> None:
        size = len(header) + len(state)
        with self._turn:
            try:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                if size > self._cap or size > shutil.disk_usage(path.parent).free // 2:
                    return
                digest = hashlib.blake2b(struct.pack("<I", len(header)), digest_size=_DIGEST_BYTES)
                digest.update(header)
                digest.update(state)
                temporary = path.with_suffix(f".{os.getpid()}.tmp")
                with open(temporary, "wb", opener=_private) as file:  # the opener sets the mode
                    file.write(_MAGIC + digest.digest() + struct.pack("<I", len(header)))
                    file.write(header)
                    file.write(state)
                temporary.replace(path)
                self._make_room(path.parent)
            except OSError as error:
                log.info("the state of a conversation was not kept: %s", error)

    def _make_room(self, folder: Path) -> None:
        """Delete the least recently used beyond the cap, and what killed programs left unfinished."""
        for left in folder.glob("*.tmp"):
            left.unlink(missing_ok=True)
        found = sorted(((p.stat().st_mtime, p.stat().st_size, p) for p in folder.glob(f"*{SUFFIX}")), reverse=True)
        total = 0
        for _, size, path in found:
            total += size
            if total > self._cap:
                path.unlink(missing_ok=True)


def _identity(context: Context) -> str:
    """What a state depends on, beside its tokens."""
    header, settings = context.model.header, context.settings
    original = header.metadata.get(f"{header.arch}.rope.scaling.original_context_length")
    parts = (
        file_identity(header),
        version(),
        settings.kv_type,
        settings.flash_attention,
        settings.sequences if settings.split else 0,  # llama.cpp refuses states of another number of caches
        isinstance(original, int) and context.n_ctx > original,  # such models turn positions in another way
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _packed(tokens: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(tokens)}I", *tokens)


def _unpacked(data: bytes) -> list[int]:
    return list(struct.unpack(f"<{len(data) // 4}I", data))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_EXCL, 0o600)
