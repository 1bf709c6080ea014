"""The grid: every row is clipped and rounded from that row alone, and sums are exact."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

from bench.privacy.grid import Grid, clip_before_rounding
from bench.privacy.noise import SeededNoise

EXTREMES = [1e-12, 1e-6, 0.01, 1.0, 37.5, 1e6, 1e12]


CLIP = 7.0
VECTORS = np.random.default_rng(3).uniform(-1, 1, (4000, 64)).astype(np.float32).astype(np.float64)
"""Numbers of 24 bits: many lie half-way between points of the grid, where the last bit decides."""


def silent(scale: float, size: int) -> npt.NDArray[np.int64]:
    return np.zeros(size, dtype=np.int64)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_row_that_is_not_finite_changes_no_bit_of_the_sum(bad: float) -> None:
    """Rows in the same batch as a bad one must be rounded as they are without it."""
    grid = Grid.of(1.0, CLIP, 64)
    worse = np.vstack([VECTORS, np.ones((1, 64))])
    worse[-1, 3] = bad
    assert (grid.sum(worse, CLIP) == grid.sum(VECTORS, CLIP)).all()


def test_a_row_whose_squares_overflow_adds_its_clipped_vector_and_nothing_else() -> None:
    grid = Grid.of(1.0, CLIP, 64)
    huge = np.zeros((1, 64))
    huge[0, :4] = 1e200, -1e200, 1e200, 1.0
    alone = grid.sum(huge, CLIP)
    assert (grid.sum(np.vstack([huge, VECTORS]), CLIP) == grid.sum(VECTORS, CLIP) + alone).all()
    assert np.linalg.norm(alone * 2.0**grid.exponent) == pytest.approx(CLIP, rel=1e-4)
    assert alone[0] == -alone[1] == alone[2] > 0 == alone[3]


@pytest.mark.parametrize("columns", [1, 3, 64, 67])
def test_the_sum_is_that_of_the_rows_alone_in_any_order(columns: int) -> None:
    """Also where rows lie at other addresses: half of the rows are clipped."""
    vectors = np.random.default_rng(1).normal(size=(300, columns))
    grid, clip = Grid.of(1.0, 0.8 * math.sqrt(columns), columns), 0.8 * math.sqrt(columns)
    alone = [grid.sum(vectors[index : index + 1], clip) for index in range(300)]
    assert (grid.sum(vectors, clip) == np.sum(alone, axis=0)).all()
    assert (grid.sum(np.asfortranarray(vectors[::-1]), clip) == np.sum(alone, axis=0)).all()


@pytest.mark.parametrize("noise", EXTREMES)
@pytest.mark.parametrize("clip", [1e-100, 1e-9, 0.3, 8.0, 1e9, 1e100])
@pytest.mark.parametrize("columns", [1, 5, 1000])
def test_no_row_moves_the_sum_by_more_than_the_clip(
    noise: float, clip: float, columns: int
) -> None:
    """|g q| <= C in exact arithmetic, whatever the ratio of noise and clip."""
    rng = np.random.default_rng(2)
    grid = Grid.of(noise * clip, clip, columns)
    for vector in (
        np.full(columns, clip),
        rng.normal(size=columns) * clip,
        rng.normal(size=columns) * clip / math.sqrt(columns),
        rng.normal(size=columns) * 1e150,
        np.full(columns, 1e300),
    ):
        integers = grid.sum(vector[None], clip)
        moved = sum(int(entry) ** 2 for entry in integers) * Fraction(2) ** (2 * grid.exponent)
        assert moved <= Fraction(clip) ** 2
        assert np.abs(integers).max() < 2**37
    answer = grid.answer(integers, SeededNoise(np.random.default_rng(0)).normal)
    assert np.isfinite(answer).all()


def test_what_rounding_leaves_of_the_clip() -> None:
    """Nearly all of it, unless the noise is millions of times the clip: then nothing."""
    for columns in (1, 64, 10_000):
        for noise in (1e-6, 1.0, 1e4):
            exponent = Grid.of(noise, 1.0, columns).exponent
            assert 1.0 - 2.0**-8 < clip_before_rounding(exponent, 1.0, columns) < 1.0
    exponent = Grid.of(1e12, 1.0, 64).exponent
    assert clip_before_rounding(exponent, 1.0, 64) == 0.0
    grid = Grid.of(1e12, 1.0, 64)
    assert (grid.sum(np.ones((50, 64)), 1.0) == 0).all()


def test_sums_of_millions_of_rows_do_not_overflow() -> None:
    """The finest grid, the largest entries: before, 2^22 rows wrapped around."""
    rows, clip = 2**22 + 2**16, 1.9999
    grid = Grid.of(1e-12, clip, 1)
    vectors = np.broadcast_to(np.array([[clip]]), (rows, 1))
    assert grid.answer(grid.sum(vectors, clip), silent)[0] == pytest.approx(rows * clip, rel=1e-6)


def test_sums_beyond_the_whole_numbers_of_doubles_are_exact() -> None:
    """Entries of up to 2^37 of the grid, 2^18 rows: above 2^53 a sum in doubles rounds."""
    grid = Grid.of(1e-12, 1.99, 1)
    integers = np.random.default_rng(0).integers(2**36, 1.98 * 2**36, 2**18)
    vectors = (integers * 2.0**grid.exponent)[:, None]
    assert grid.exponent == -36
    assert grid.sum(vectors, 1.99).tolist() == [sum(integers.tolist())]
    in_doubles = int(np.add.accumulate(integers.astype(np.float64))[-1])
    assert in_doubles != sum(integers.tolist()) > 2**53


def test_large_counts_do_not_overflow() -> None:
    grid = Grid.of_counts(1e-9)
    assert grid.answer(grid.counts(np.array([2**25, 0, 7])), silent).tolist() == [2.0**25, 0.0, 7.0]


def test_zero_has_no_sign() -> None:
    """A sign of zero would tell on which side of zero the sum was before the noise."""
    grid = Grid.of(1.0, 1.0, 2)
    integers = grid.sum(np.array([[-0.0, 0.0], [-1e-30, 1e-30]]), 1.0)
    answer = grid.answer(integers, silent)
    assert not np.signbit(answer).any()
    one = grid.sum(np.array([[-0.5, 0.5]]), 1.0)
    assert not np.signbit(grid.answer(one, lambda scale, size: -one)).any()


@pytest.mark.parametrize("columns", [1, 2, 3, 4, 64, 1000])
@pytest.mark.parametrize("clip", [1.0, 1.5, 3e-5, 700.0, 2.0**10])
def test_the_grid_is_the_largest_that_noise_and_rounding_allow(clip: float, columns: int) -> None:
    """g <= 2^-20 s and g sqrt(d) <= 2^-8 C, but above 2^-32 s and 2^-37 C; by trying all."""
    for ratio in (1e-9, 1e-3, 0.1, 1.0, 2.0, 30.0, 1e5, 1e9):
        noise = ratio * clip
        allowed = [
            k
            for k in range(-120, 60)
            if Fraction(2) ** k <= Fraction(noise) / 2**20
            and Fraction(2) ** (2 * k) * columns <= Fraction(clip) ** 2 / 2**16
        ]
        least = [
            k
            for k in range(-120, 60)
            if Fraction(2) ** k > Fraction(noise) / 2**32
            and Fraction(2) ** k > Fraction(clip) / 2**37
        ]
        grid = Grid.of(noise, clip, columns)
        assert grid.exponent == max(max(allowed), min(least))
        assert grid.scale == noise


def test_counts_are_on_their_grid() -> None:
    """A grid coarser than 1 would round them; finer than 2^-36 it would leave no room for them."""
    counts = np.array([0, 1, 3, 12345])
    for scale, exponent in ((1e9, 0), (2.0**20, 0), (2.0**19, -1), (1.0, -20), (1e-30, -36)):
        grid = Grid.of_counts(scale)
        assert (grid.exponent, grid.scale) == (exponent, scale)
        assert grid.answer(grid.counts(counts), silent).tolist() == counts.tolist()


def test_the_noise_is_a_little_more_than_what_is_recorded() -> None:
    drawn = []

    def draw(scale: float, size: int) -> npt.NDArray[np.int64]:
        drawn.append((scale, size))
        return np.zeros(size, dtype=np.int64)

    for noise in (1.0, 0.1, 3.7e-5, 12345.678):
        grid = Grid.of(noise, 1.0, 4)
        grid.answer(np.zeros((2, 4), dtype=np.int64), draw)
        scale, size = drawn.pop()
        exact = Fraction(noise) / Fraction(2) ** grid.exponent
        assert size == 8 and exact < Fraction(scale) <= exact * (1 + Fraction(2) ** -49)


def test_the_clip_before_rounding_is_the_formula_rounded_down() -> None:
    """C' = (C (1 - 2^-50) - g sqrt(d) / 2) (1 - (d + 16) 2^-52), for whole roots of d."""
    unit = Fraction(2) ** -52
    for clip, exponent, root in ((1.0, -20, 2), (1.0, -9, 1), (4.0, -30, 3), (0.5, -12, 4)):
        columns = root * root
        rounding = Fraction(2) ** exponent * root / 2
        exact = (Fraction(clip) * (1 - 4 * unit) - rounding) * (1 - (columns + 16) * unit)
        computed = Fraction(clip_before_rounding(exponent, clip, columns))
        assert abs(computed - exact) <= exact * unit / 2
        # Without the safety factor for the difference it would still be at most this.
        assert computed < (Fraction(clip) - rounding) * (1 - (columns + 16) * unit)


def test_vectors_within_a_small_clip_are_unchanged() -> None:
    """Below a norm of one as well as above it."""
    for clip in (0.3, 3.0, 300.0):
        grid = Grid.of(1e-6 * clip, clip, 2)
        vector = np.array([[0.4 * clip, -0.5 * clip]])
        total = grid.answer(grid.sum(vector, clip), silent)
        assert total == pytest.approx(vector[0], rel=1e-5)
        beyond = grid.answer(grid.sum(10.0 * vector, clip), silent)
        assert beyond == pytest.approx(vector[0] / math.hypot(0.4, 0.5), rel=0.01)
        assert beyond == pytest.approx(
            clip_before_rounding(grid.exponent, clip, 2) * vector[0] / np.linalg.norm(vector),
            rel=1e-6,
        )
