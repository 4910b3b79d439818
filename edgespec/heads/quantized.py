"""A matrix in 8 bits: whole numbers and one factor for each row. A quarter of float32, on disk and in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import BadRequestError

Floats = NDArray[np.float32]
_MOST = 127


@dataclass(frozen=True, eq=False, slots=True)
class Quantized:
    """codes: (rows, columns) int8.  factors: (rows,) float32; row i is codes[i] * factors[i].

    Raises BadRequestError.
    """

    codes: NDArray[np.int8]
    factors: Floats

    def __post_init__(self) -> None:
        if self.codes.ndim != 2 or self.factors.shape != self.codes.shape[:1]:
            raise BadRequestError(f"a matrix of shape {self.codes.shape} has factors of shape {self.factors.shape}")
        if not np.isfinite(self.factors).all():
            raise BadRequestError("a matrix has a factor that is not finite; the file is damaged, or training failed")

    @classmethod
    def of(cls, matrix: Floats) -> Quantized:
        """The nearest to a float32 matrix. Raises BadRequestError where a number is not finite."""
        most = np.abs(matrix).max(axis=1, initial=0.0)
        if not np.isfinite(most).all():
            raise BadRequestError("a matrix has a number that is not finite; training failed")
        factors = np.where(most > 0, most / np.float32(_MOST), np.float32(1)).astype(np.float32)
        return cls(np.rint(matrix / factors[:, None]).astype(np.int8), factors)

    def whole(self) -> Floats:
        """All of it, float32."""
        return self.codes.astype(np.float32) * self.factors[:, None]

    def part(self, which: NDArray[Any]) -> Floats:
        """Some of its rows, float32."""
        found: Floats = self.codes[which].astype(np.float32) * self.factors[which, None]
        return found
