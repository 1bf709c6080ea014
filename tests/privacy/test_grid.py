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
