"""Sizes of the catalogue by arithmetic: shapes of the tensors, and the types that Q4_K_M gives them.

A size that comes without a hash cannot be checked against the file here. The same arithmetic gives the sizes that are
known exactly, so a rounded one that it gives as well is right.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from edgespec.models.catalog import catalog

# Bits of a weight. Which tensors get more than Q4_K: llama.cpp, src/llama-quant.cpp.
Q4_K, Q5_K, Q6_K = 144 * 8 / 256, 176 * 8 / 256, 210 * 8 / 256
FLOAT = 32
HEADER = 7e6  # bytes, mostly the vocabulary: 5.9 to 8 million in the files that are known


@dataclass(frozen=True, slots=True)
class Shape:
    """As the models' makers publish it. queries, values: width of the projections.  tied: one matrix for both ends.

    biases: of queries, keys and values.  values_bits: of those layers that get no more bits.
    """

    layers: int
    width: int
    feed_forward: int
    queries: int
    values: int
    vocabulary: int
    tied: bool = False
    biases: bool = False
    values_bits: float = Q4_K

    @property
    def nbytes(self) -> float:
        """Of all tensors, in Q4_K_M."""
        bits = FLOAT * self.width + Q6_K * self.vocabulary * self.width
        bits += 0 if self.tied else Q4_K * self.vocabulary * self.width
        for layer in range(self.layers):
            more = self._gets_more(layer)
            bits += Q4_K * self.width * (2 * self.queries + self.values + 2 * self.feed_forward)
            bits += (Q6_K if more else self.values_bits) * self.width * self.values
            bits += (Q6_K if more else Q4_K) * self.width * self.feed_forward
            bits += FLOAT * (2 * self.width + (self.queries + 2 * self.values if self.biases else 0))
        return bits / 8

    def _gets_more(self, layer: int) -> bool:
        eighth = self.layers // 8
        return layer < eighth or layer >= 7 * self.layers // 8 or (layer - eighth) % 3 == 2


EXACT = {
    "qwen2.5-coder-7b": Shape(28, 3584, 18944, 3584, 512, 152064, biases=True),
    "qwen3-4b": Shape(36, 2560, 9728, 4096, 1024, 151936, tied=True),
    "qwen3-8b": Shape(36, 4096, 12288, 4096, 1024, 151936),
    "qwen3-14b": Shape(40, 5120, 17408, 5120, 1024, 151936),
    "qwen3-32b": Shape(64, 5120, 25600, 8192, 1024, 151936),
    "llama-3.2-3b": Shape(28, 3072, 8192, 3072, 1024, 128256, tied=True),
    "llama-3.1-8b": Shape(32, 4096, 14336, 4096, 1024, 128256),
    "gemma-3-4b": Shape(34, 2560, 10240, 2048, 1024, 262208, tied=True),
}
ROUNDED = {
    "qwen2.5-coder-14b": Shape(48, 5120, 13824, 5120, 1024, 152064, biases=True),
    "qwen2.5-coder-32b": Shape(64, 5120, 27648, 5120, 1024, 152064, biases=True),
    "llama-3.3-70b": Shape(80, 8192, 28672, 8192, 1024, 128256, values_bits=Q5_K),
    "gemma-3-12b": Shape(48, 3840, 15360, 4096, 2048, 262208, tied=True),
    "gemma-3-27b": Shape(62, 5376, 21504, 4096, 2048, 262208, tied=True),
}


@pytest.mark.parametrize("name", [*EXACT, *ROUNDED])
def test_the_size_is_what_the_shapes_give(name: str) -> None:
    entry = catalog().find(name)
    assert entry is not None
    assert entry.size_is_exact is (name in EXACT)
    assert entry.size == pytest.approx((EXACT | ROUNDED)[name].nbytes + HEADER, rel=1e-3)


def test_every_size_without_a_hash_is_checked() -> None:
    assert {entry.name for entry in catalog().entries if not entry.size_is_exact} == set(ROUNDED)
