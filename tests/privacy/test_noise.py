"""Noise on the integers: its law, how it is decided, and samples of rows."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats
from scipy.special import ndtri

from bench.privacy import noise as sampling
from bench.privacy.noise import (
    NoiseSource,
    SeededNoise,
    SystemNoise,
    bernoulli_sample,
    rounded_laplace,
    rounded_normal,
)

DRAWS = 40_000


def seeded(seed: int = 0) -> SeededNoise:
    return SeededNoise(np.random.default_rng(seed))


def goodness_of_fit(
    values: npt.NDArray[np.int64], cdf: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]
) -> float:
    """p-value of a chi-square test against P(K = k) = F(k + 1/2) - F(k - 1/2)."""
    low, high = int(np.quantile(values, 0.01)), int(np.quantile(values, 0.99))
    edges = np.unique(np.linspace(low, high, 60).astype(int)) + 0.5
    cuts = np.array([-np.inf, *edges, np.inf])
    expected = np.diff(cdf(cuts)) * len(values)
    counted = np.histogram(values, cuts)[0]
    return float(stats.chisquare(counted, expected).pvalue)


@pytest.mark.parametrize("scale", [0.3, 1.0, 17.25, 2.0**20 * 1.37, 2.0**31])
@pytest.mark.parametrize("source", [seeded(1), SystemNoise()], ids=["seeded", "system"])
def test_noise_has_the_law_of_a_rounded_number(scale: float, source: NoiseSource) -> None:
    normal = source.normal(scale, DRAWS)
    assert goodness_of_fit(normal, stats.norm(scale=scale).cdf) > 1e-6
    laplace = source.laplace(scale, DRAWS)
    assert goodness_of_fit(laplace, stats.laplace(scale=scale).cdf) > 1e-6


def test_the_stated_error_of_the_inverse_is_far_above_the_measured_one() -> None:
    rng = np.random.default_rng(0)
    points = rng.random(2000) * 10.0 ** (-15.0 * rng.random(2000))
    with mpmath.workprec(120):
        exact = [float(mpmath.sqrt(2) * mpmath.erfinv(1 - mpmath.mpf(u))) for u in points]
    error = np.abs(-ndtri(0.5 * points) - exact)
    assert (error <= sampling._RELATIVE / 16 * (np.array(exact) + 1.0)).all()


@pytest.mark.parametrize("draw", [rounded_normal, rounded_laplace])
def test_what_doubles_cannot_decide_is_decided_the_same_way(
    draw: Callable[..., npt.NDArray[np.int64]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a huge error bound every number is decided in multiple precision: equal numbers."""
    rng = np.random.default_rng(3)
    words = rng.integers(2**64, size=200, dtype=np.uint64)
    further = np.random.default_rng(4)

    def bits(count: int) -> npt.NDArray[np.uint64]:
        if count == len(words):
            return words
        return further.integers(2**64, size=count, dtype=np.uint64)

    quick = draw(1000.5, len(words), bits)
    monkeypatch.setattr(sampling, "_RELATIVE", 0.01)
    assert (draw(1000.5, len(words), bits) == quick).all()


def test_a_number_on_a_boundary_is_decided_by_further_bits() -> None:
    """U begins with all the bits of a boundary between two steps; what follows decides."""
    steps = sampling._Laplace(4.0)
    with mpmath.workprec(400):
        boundary = mpmath.exp(-mpmath.mpf(1) / 2 / 4)  # y(u) = 1
        first = int(mpmath.floor(boundary * 2**63))
        second = int(mpmath.floor((boundary * 2**63 - first) * 2**64))

    def decided(further: int) -> int:
        words = iter([further])
        return sampling._decide(
            steps, first, 63, 0, 3, lambda count: np.array([next(words)], dtype=np.uint64)
        )

    # A larger U is a smaller number.
    assert decided(second - 5) == 1
    assert decided(second + 5) == 0


@pytest.mark.parametrize("source", [seeded(2), SystemNoise()], ids=["seeded", "system"])
@pytest.mark.parametrize("rate", [0.02, 0.5, 0.97])
def test_a_sample_holds_each_row_independently(source: NoiseSource, rate: float) -> None:
    rows, draws = 40, 3000
    included = np.zeros((draws, rows))
    for number in range(draws):
        sample = source.poisson_sample(rows, rate)
        assert len(np.unique(sample)) == len(sample)
        included[number, sample] = 1.0
    deviation = math.sqrt(rate * (1 - rate) / draws)
    assert np.abs(included.mean(axis=0) - rate).max() < 6.5 * deviation
    sizes = included.sum(axis=1)
    assert stats.binomtest(int(sizes.sum()), draws * rows, rate).pvalue > 1e-6
    assert sizes.var() == pytest.approx(rows * rate * (1 - rate), rel=0.2)
    # Pairs of rows: the share of samples that hold both, over all 780 pairs.
    both = (included.T @ included)[np.triu_indices(rows, 1)]
    smallest = min(
        stats.binomtest(int(count), draws, rate * rate).pvalue for count in np.unique(both)
    )
    assert smallest > 1e-6 / len(both)


def test_samples_of_no_rows_and_of_all_rows() -> None:
    assert len(bernoulli_sample(0, 0.5, seeded().words)) == 0
    assert (bernoulli_sample(7, 1.0, seeded().words) == np.arange(7)).all()
