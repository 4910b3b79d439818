"""One file of the Hub to one file on this disk: goes on where an earlier try stopped, and is checked once whole."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import DamagedDownloadError, NoSpaceError
from .hub_client import HubClient, Interrupted, NotTheHubError, RemoteFile
from .hub_name import HubName
from .quoting import quoted
from .reader import looks_like

Report = Callable[[str, int], None]  # stage ("download" or "check"), bytes done of this file

_CHUNK = 1 << 20  # bytes
_PROGRESS = 1 << 16  # bytes that a try must bring, or it counts as one of the failures in a row
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


def download(client: HubClient, name: HubName, file: RemoteFile, partial: Path, report: Report) -> None:
    """Make `partial` the whole, checked file, on the disk for good. What is in it already is taken as its beginning.

    Raises DamagedDownloadError where other bytes came and NoSpaceError, both without `partial` left behind; with it
    DownloadError, ModelNotFoundError, NotTheHubError, KeyboardInterrupt and OSError.
    """
    while True:
        begun = _size(partial) > 0
        try:
            _fill(client, name, file, partial, report)
            check(file, partial, report)
            return
        except NotTheHubError:  # says nothing about what had arrived before
            raise
        except DamagedDownloadError:
            partial.unlink(missing_ok=True)
            if not begun:
                raise
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            partial.unlink(missing_ok=True)
            raise NoSpaceError(
                f"the disk is full: {quoted(file.path)} has {file.size / 1e6:.0f} MB; free some space or point"
                " HF_HUB_CACHE at another disk. Nothing was kept"
            ) from error


def _fill(client: HubClient, name: HubName, file: RemoteFile, partial: Path, report: Report) -> None:
    try:
        with partial.open("ab") as output:
            _complete(client, name, file, output, report)
            output.flush()
            os.fsync(output.fileno())
    finally:
        if _size(partial) == 0:
            partial.unlink(missing_ok=True)


def check(file: RemoteFile, path: Path, report: Report) -> None:
    """Raise DamagedDownloadError unless what is on the disk has the size and the hash that the Hub gives.

    Read back rather than summed up on the way: what counts is what is there, whoever wrote it.
    """
    size = _size(path)
    if size != file.size:
        raise _damaged(file, f"it has {size:,} bytes, not {file.size:,}")
    digests = [hashlib.sha256()]
    if len(file.etag) == 40:  # a file that git itself keeps; some mirrors give the plain hash instead
        digests = [hashlib.sha1(f"blob {size}\0".encode()), hashlib.sha1()]
    with path.open("rb") as content:
        done = 0
        while chunk := content.read(_CHUNK):
            for digest in digests:
                digest.update(chunk)
            done += len(chunk)
            report("check", done)
    if file.etag not in [digest.hexdigest() for digest in digests]:
        raise _damaged(file, f"its hash is {digests[0].hexdigest()}, not {file.etag}")


def _complete(client: HubClient, name: HubName, file: RemoteFile, output: BinaryIO, report: Report) -> None:
    """Append what is missing, in as many tries as it takes while they get on."""
    failures = 0
    while (before := output.tell()) < file.size:
        try:
            _receive(client, name, file, output, report)
            if output.tell() >= file.size:
                break
            raise Interrupted("the connection ended early")
        except Interrupted as error:
            failures = 0 if output.tell() - before >= _PROGRESS else failures + 1
            if failures >= client.patience.tries:
                output.flush()
                raise client.give_up(error, kept=output.tell()) from error
            client.patience.pause(max(1, failures), error.wait_s)
    if output.tell() > file.size:
        raise _damaged(file, f"more than its {file.size:,} bytes came")


def _receive(client: HubClient, name: HubName, file: RemoteFile, output: BinaryIO, report: Report) -> None:
    """One try. Appends to `output`, or begins it anew where the server cannot go on from its end."""
    with client.open(name, file, output.tell()) as response:
        start, size = _place(response)
        if response.status_code == 416 or start not in (0, output.tell()):
            _begin_anew(output)
            raise Interrupted("the server cannot go on from the middle of the file")
        if size is not None and size != file.size:
            raise _damaged(file, f"the server has {size:,} bytes of it, not {file.size:,}")
        if start != output.tell():
            _begin_anew(output)
        for chunk in response.iter_bytes():
            if output.tell() == 0 and not chunk.startswith(b"GGUF"[: len(chunk)]):
                raise _damaged(file, f"what came is {looks_like(chunk[:64])}")
            output.write(chunk)
            report("download", min(output.tell(), file.size))
            if output.tell() > file.size:
                return


def _place(response: Any) -> tuple[int, int | None]:
    """(where in the file the answer begins, the size that the server says the file has), bytes."""
    if response.status_code == 206:
        match = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if match is None:
            raise Interrupted("the server sent a part of the file and did not say which")
        return int(match[1]), None if match[2] == "*" else int(match[2])
    length = response.headers.get("Content-Length", "")
    packed = response.headers.get("Content-Encoding", "identity") != "identity"
    return 0, None if packed or not length.isdecimal() else int(length)


def _begin_anew(output: BinaryIO) -> None:
    output.seek(0)
    output.truncate()


def _damaged(file: RemoteFile, what: str) -> DamagedDownloadError:
    return DamagedDownloadError(
        f"the download of {quoted(file.path)} is not the file that the Hub describes: {what}; nothing was kept, try"
        " again or use another network"
    )


def _size(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size
    return 0
