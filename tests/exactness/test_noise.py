"""The noise of seed-exact mode: a fixed function of (seed, position, token id), and as good as random."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from edgespec import noise
from edgespec.distribution import Distribution
from edgespec.noise import Noise, splitmix64, stream_key, token_bits

Bits = Callable[[int, int, NDArray[np.int64]], NDArray[np.uint64]]

IDS = np.arange(2_000, dtype=np.int64)
SEEDS = (0, 1, 2)
EXTREME = (0, 1, 2**32 - 1, 2**63, 2**64 - 1)


# ---- which function it is -----------------------------------------------------------------------------------


def test_the_generator_is_splitmix64() -> None:
    """The outputs published for seed 0."""
    assert [splitmix64(0, i) for i in range(4)] == [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
        0xF88BB8A8724C81EC,
    ]


@pytest.mark.parametrize("seed", EXTREME)
def test_arrays_and_whole_numbers_agree(seed: int) -> None:
    """The array code wraps at 64 bits as the arithmetic of whole numbers does, without a warning."""
    ids = np.array([0, 1, 2, 151_935, 2**31 - 1], dtype=np.int64)
    for position in (0, 1, 4_095, 2**31):
        state = stream_key(seed, position)
        assert token_bits(seed, position, ids).tolist() == [splitmix64(state, int(i)) for i in ids]


def test_the_noise_of_a_seed_never_changes() -> None:
    """A release that changed it would change what everybody's seeds mean."""
    assert token_bits(7, 3, np.array([0, 1, 31_999])).tolist() == [
        0x5F694CC017D13271,
        0x7312EBABFD6BE2BD,
        0x1AE85DBEF1CC9727,
    ]
    flat = Distribution(np.arange(50), np.full(50, 0.02))
    assert [Noise(7).choose(flat, i) for i in range(12)] == [2, 25, 31, 10, 1, 37, 16, 6, 7, 35, 5, 16]


def test_positions_are_counted_from_the_end_of_the_prompt() -> None:
    for index in range(5):
        assert np.array_equal(Noise(3, 100).uniforms(100 + index, IDS), Noise(3).uniforms(index, IDS))


@pytest.mark.parametrize("bits", [0, 2**64 - 1, 1, 2**63])
def test_uniforms_are_strictly_inside(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "token_bits", lambda *_: np.array([bits], dtype=np.uint64))
    (u,) = Noise(0).uniforms(0, IDS[:1])
    assert 0 < u < 1
    assert np.isfinite(Noise(0).gumbel(0, IDS[:1])).all()


# ---- what is chosen -----------------------------------------------------------------------------------------


def test_the_choice_is_the_argmax_of_log_p_and_gumbel_noise() -> None:
    rng = np.random.default_rng(0)
    for seed in range(300):
        ids = np.sort(rng.choice(1_000, size=int(rng.integers(1, 40)), replace=False))
        distribution = Distribution(ids, rng.dirichlet(np.full(len(ids), 0.3)) + 1e-12)
        g = Noise(seed, 4).gumbel(9, ids)
        assert Noise(seed, 4).choose(distribution, 9) == ids[np.argmax(np.log(distribution.probs) + g)]


def test_the_noise_of_a_token_does_not_depend_on_the_other_candidates() -> None:
    """Else a drafter with another top-k would have other noise."""
    some = np.array([3, 17, 1_999])
    assert np.array_equal(Noise(5).uniforms(2, some), Noise(5).uniforms(2, IDS)[some])


def test_impossible_tokens_are_never_chosen_and_the_lowest_id_wins_a_tie(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = np.array([2, 5, 8, 9])
    distribution = Distribution(ids, np.array([0.0, 0.3, 0.7, 0.0]))
    assert {Noise(seed).choose(distribution, 0) for seed in range(200)} == {5, 8}
    monkeypatch.setattr(Noise, "uniforms", lambda *_: np.full(4, 0.5))
    assert Noise(0).choose(Distribution(ids, np.array([0.1, 0.4, 0.1, 0.4])), 0) == 5


# ---- quality ------------------------------------------------------------------------------------------------


def chi_square(counts: NDArray[np.int64]) -> float:
    """Standard deviations by which the chi-square statistic of equally likely cells exceeds its mean."""
    expected = counts.sum() / counts.size
    freedom = counts.size - 1
    return float((((counts - expected) ** 2 / expected).sum() - freedom) / np.sqrt(2 * freedom))


def worst(bits: Bits) -> dict[str, float]:
    """For each property the largest deviation found, in standard deviations (or near enough)."""
    # (seed, position, id)
    u = np.array([[bits(s, i, IDS) for i in range(60)] for s in SEEDS]) / 2.0**64
    flat = u.ravel()
    found = {
        "bins": abs(chi_square(np.bincount((flat * 1_000).astype(int), minlength=1_000))),
        "low bits": abs(chi_square(np.bincount((flat * 2**20).astype(int) % 256, minlength=256))),
        "steps": float(np.abs(np.sort(flat) - np.linspace(0, 1, flat.size)).max() * np.sqrt(flat.size)) / 0.4,
    }
    neighbours = {
        "ids": (u[:, :, 1:], u[:, :, :-1]),
        "positions": (u[:, 1:], u[:, :-1]),
        "diagonals": (u[:, 1:, 1:], u[:, :-1, :-1]),
        "seeds 0 and 1": (u[0], u[1]),
        "seeds 1 and 2": (u[1], u[2]),
        "seeds 0 and 2": (u[0], u[2]),
    }
    for name, (a, b) in neighbours.items():
        x, y = a.ravel(), b.ravel()
        cells = np.bincount((x * 16).astype(int) * 16 + (y * 16).astype(int), minlength=256)
        found[name] = max(abs(float(np.corrcoef(x, y)[0, 1])) * np.sqrt(x.size), abs(chi_square(cells)))
    return found


def test_the_noise_is_uniform_and_neighbours_are_independent() -> None:
    found = worst(token_bits)
    assert max(found.values()) < 5, found


def weyl(seed: int, position: int, ids: NDArray[np.int64]) -> NDArray[np.uint64]:
    """A lattice: uniform, and nothing else."""
    return (ids.astype(np.uint64) + np.uint64(1 + seed + 7 * position)) * np.uint64(0x9E3779B97F4A7C15)


def seed_and_position_added(seed: int, position: int, ids: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Seed 1 is seed 0, one position on."""
    return token_bits(0, seed + position, ids)


def same_for_all_seeds(seed: int, position: int, ids: NDArray[np.int64]) -> NDArray[np.uint64]:
    return token_bits(0, position, ids)


@pytest.mark.parametrize("weak", [weyl, same_for_all_seeds])
def test_a_weak_hash_is_caught(weak: Bits) -> None:
    assert max(worst(weak).values()) > 50


@pytest.mark.parametrize("hashed", [token_bits, seed_and_position_added])
def test_no_two_of_many_cells_have_the_same_noise(hashed: Bits) -> None:
    rows = {tuple(hashed(seed, position, IDS[:4]).tolist()) for seed in range(40) for position in range(40)}
    assert (len(rows) == 1_600) == (hashed is token_bits)


def test_each_bit_of_seed_position_and_id_flips_half_the_bits() -> None:
    rng = random.Random(1)
    for which, width in (("seed", 64), ("position", 20), ("id", 20)):
        for bit in range(width):
            flipped = []
            for _ in range(120):
                at = {"seed": rng.getrandbits(64), "position": rng.getrandbits(20), "id": rng.getrandbits(20)}
                other = {**at, which: at[which] ^ (1 << bit)}
                a, b = (int(token_bits(c["seed"], c["position"], np.array([c["id"]]))[0]) for c in (at, other))
                flipped.append((a ^ b).bit_count())
            assert abs(np.mean(flipped) - 32) < 5 * 4 / np.sqrt(120), (which, bit)  # sd of one is sqrt(64) / 2
