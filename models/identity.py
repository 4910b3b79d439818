"""Which file this is: what is measured of a model is kept under it, whatever the file is called."""

from __future__ import annotations

import hashlib

from .header import Header

_SAMPLED_BYTES = 1 << 16


def file_identity(header: Header) -> str:
    """A hash of size and samples of the file: reading a gigabyte at each load would cost more than it saves."""
    digest = hashlib.sha256(str(header.file_size).encode())
    with header.path.open("rb") as file:
        for place in (0, header.data_start, header.file_size // 2, header.file_size - _SAMPLED_BYTES):
            file.seek(max(0, place))
            digest.update(file.read(_SAMPLED_BYTES))
    return digest.hexdigest()
