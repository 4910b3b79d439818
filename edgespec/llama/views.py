"""Rows of numbers in llama.cpp's memory, seen from Python without a copy."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DecodeError
from ..scoring import Rows


class RowsView:
    """Of one buffer, which llama.cpp may move or grow from decode to decode."""

    def __init__(self, width: int, what: str) -> None:
        """width: numbers of one row.  what: their name, for the error where there are none."""
        self._width, self._what = width, what
        self._seen: tuple[int, Rows] | None = None

    def rows(self, pointer: Any, count: int) -> Rows:
        """The first `count` rows, shape (count, width), float32; overwritten by the next decode. Raises DecodeError."""
        address = ctypes.cast(pointer, ctypes.c_void_p).value
        if not address:
            raise DecodeError(f"llama.cpp gave no {self._what}")
        if self._seen is None or self._seen[0] != address or len(self._seen[1]) < count:
            numbers = (ctypes.c_float * (count * self._width)).from_address(address)
            flat: NDArray[np.float32] = np.ctypeslib.as_array(numbers)
            self._seen = (address, flat.reshape(count, self._width))
        return self._seen[1][:count]
