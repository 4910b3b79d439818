"""Reading GGUF primitives from a file that may be damaged or hostile.

Every length is compared with what is left of the file before anything is read or allocated. The file is read through
one window of a megabyte rather than mapped: a file that shrinks meanwhile is then an error instead of a SIGBUS, and on
Windows nothing stays locked.
"""

from __future__ import annotations

import struct
from typing import BinaryIO, NoReturn

from ..errors import ModelLoadError

WINDOW = 1 << 20  # bytes
MAX_STRING = 16 << 20  # bytes of one string; the longest real ones are chat templates of some 100 kB

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class Reader:
    """A forward cursor over `file` (size bytes), little endian. `label` names the file in messages."""

    def __init__(self, file: BinaryIO, size: int, label: str) -> None:
        self.pos = 0
        self.size = size
        self.label = label
        self._file = file
        self._window = b""
        self._base = 0  # file offset of the window's first byte

    def fail(self, what: str) -> NoReturn:
        """Raise ModelLoadError for a header that cannot be right."""
        raise ModelLoadError(f"{self.label} has a damaged GGUF header: {what}; download it again")

    def require(self, nbytes: int) -> None:
        """Raise ModelLoadError unless `nbytes` more bytes exist."""
        if nbytes > self.size - self.pos:
            raise ModelLoadError(
                f"{self.label} is truncated or damaged: its header needs {self.pos + nbytes:,} bytes,"
                f" the file has {self.size:,}; download it again"
            )

    def take(self, nbytes: int) -> bytes:
        """The next `nbytes` bytes."""
        start = self._at(nbytes)
        self.pos += nbytes
        return self._window[start : start + nbytes]

    def u32(self) -> int:
        """The next unsigned 32-bit number."""
        value: int = _U32.unpack(self.take(4))[0]
        return value

    def u64(self) -> int:
        """The next unsigned 64-bit number."""
        value: int = _U64.unpack(self.take(8))[0]
        return value

    def raw_string(self, limit: int = MAX_STRING) -> bytes:
        """The next string, undecoded; longer than `limit` bytes is an error."""
        nbytes = self.u64()
        self.require(nbytes)
        if nbytes > limit:
            self.fail(f"a string of {nbytes:,} bytes at offset {self.pos:,} (at most {limit:,} are expected)")
        return self.take(nbytes)

    def text(self, limit: int = MAX_STRING) -> str:
        """The next string, which must be UTF-8."""
        at = self.pos
        try:
            return self.raw_string(limit).decode("utf-8")
        except UnicodeDecodeError:
            self.fail(f"the string at offset {at:,} is not UTF-8")

    def skip(self, nbytes: int) -> None:
        """Pass over `nbytes` bytes."""
        self.require(nbytes)
        self.pos += nbytes

    def skip_strings(self, count: int) -> None:
        """Pass over `count` strings: vocabularies have hundreds of thousands, so the loop does nothing but add."""
        unpack = _U64.unpack_from
        while count:
            start = at = self._at(8)
            window = self._window
            try:
                while count:
                    at += unpack(window, at)[0] + 8
                    count -= 1
            except (struct.error, OverflowError):
                pass  # the next length lies beyond the window (or, in a damaged file, anywhere)
            self.skip(at - start)

    def _at(self, nbytes: int) -> int:
        """The cursor's place in the window, which is moved unless it holds the next `nbytes` bytes."""
        start = self.pos - self._base
        if 0 <= start <= len(self._window) - nbytes:
            return start
        self.require(nbytes)
        self._file.seek(self.pos)
        self._window = self._file.read(min(max(nbytes, WINDOW), self.size - self.pos))
        self._base = self.pos
        if len(self._window) < nbytes:
            raise ModelLoadError(f"{self.label} became shorter while it was read; wait for its download to finish")
        return 0


def looks_like(head: bytes) -> str:
    """What a file that is not a GGUF seems to be, from its first bytes (64 are enough; none: an empty file)."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if not head:
        return "an empty file"
    if text.startswith((b"<!doctype", b"<html", b"<head", b"<?xml")):
        return "a web page (an error or login page saved in place of the model)"
    if text.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer (the model itself was not downloaded)"
    if len(head) > 8 and head[8:9] == b"{" and 1 < int.from_bytes(head[:8], "little") < 1 << 32:
        return "a safetensors file"
    if head.startswith(b"PK\x03\x04"):
        return "a zip archive (perhaps a PyTorch checkpoint or a wheel)"
    if head.startswith(b"\x1f\x8b"):
        return "a gzip archive"
    if head[:4] in (b"tjgg", b"fmgg", b"lmgg", b"algg"):
        return "a GGML file from before GGUF"
    if head.startswith(b"\x80") and head[1:2] in b"\x02\x03\x04\x05":
        return "a Python pickle (perhaps a PyTorch checkpoint)"
    if head.startswith((b"\x7fELF", b"MZ")):
        return "a program or library"
    if text.startswith((b"{", b"[")):
        return "a JSON file"
    if not any(head):
        return "a file of zero bytes (a download that did not finish)"
    if all(byte in b"\t\r\n" or 32 <= byte < 127 for byte in head):
        return "a text file"
    return "a file of another kind"
