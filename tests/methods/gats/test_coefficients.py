"""GATS: distributions of the coefficients, and votes by weight."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from bench.methods.gats._rows import dirichlet, mixup, stick_breaking
from bench.plugins.registry import build_source
from tests.support.gats import MARKER, SMOKER, made, make, opened, private_rows


def first_coefficients(constituents: int, law: str) -> npt.NDArray[np.float64]:
    """Coefficients of the one row whose marker is 1 among rows whose marker is 0."""
    marker = np.tile(np.eye(1, constituents)[0], 2)
    count = len(marker)
    private = private_rows(
        [0] * count, marker, [1] * count, [0] * count, np.repeat([0, 1], count // 2)
    )
    rows = made(
        private, 2000, constituents=constituents, coefficients=law, mixed_share=0.0, filter="off"
    )
    return rows.values[:, MARKER].astype(np.float64)


@pytest.mark.parametrize("constituents", [2, 3, 5])
def test_dirichlet_coefficients_are_uniform_on_the_simplex(constituents: int) -> None:
    # One coordinate of a uniform point of the simplex follows Beta(1, N - 1).
    law = stats.beta(1, constituents - 1)
    assert stats.kstest(first_coefficients(constituents, "dirichlet"), law.cdf).pvalue > 0.01


def test_uniform_coefficients_are_normalised_uniforms() -> None:
    def share(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """P(u / (u + v) <= x) for two independent uniform numbers."""
        return np.where(x <= 0.5, x / (2 * (1 - x)), 1 - (1 - x) / (2 * np.maximum(x, 0.5)))

    drawn = first_coefficients(2, "uniform")
    assert stats.kstest(drawn, share).pvalue > 0.01
    assert stats.kstest(drawn, stats.uniform.cdf).pvalue < 1e-6


def test_concentrated_coefficients_follow_their_distribution() -> None:
    # One coordinate of Dirichlet(a, ..., a) follows Beta(a, (N - 1) a).
    drawn = dirichlet((4000, 5), 0.3, np.random.default_rng(0))
    assert np.allclose(drawn.sum(axis=1), 1.0)
    assert stats.kstest(drawn[:, 0], stats.beta(0.3, 1.2).cdf).pvalue > 0.01
    above = dirichlet((4000, 5), 2.0, np.random.default_rng(0))
    assert stats.kstest(above[:, 0], stats.beta(2.0, 8.0).cdf).pvalue > 0.01


@pytest.mark.parametrize("constituents", [5, 100])
def test_the_smallest_concentrations_do_not_underflow(constituents: int) -> None:
    concentration = 0.001
    drawn = dirichlet((20_000, constituents), concentration, np.random.default_rng(0))
    assert np.isfinite(drawn).all()
    squares = np.square(drawn).sum(axis=1)
    expected = (1 + concentration) / (1 + constituents * concentration)
    assert squares.mean() == pytest.approx(expected, abs=5 * squares.std() / math.sqrt(20_000))
    assert np.bincount(drawn.argmax(axis=1)).min() > 0


def test_votes_by_weight_follow_the_heaviest() -> None:
    private = private_rows(
        [0] * 6,
        [-1, -1, 1, -1, -1, 1],
        [1, 1, -1, -1, -1, 1],
        [1, 1, 2, 0, 0, 2],
        [0] * 3 + [1] * 3,
    )
    rows = made(private, constituents=3, votes="weights", mixed_share=0.0, filter="off")
    # The third row of each class alone has a marker of 1: it wins with more than half the weight.
    heavy = rows.values[:, MARKER] > 0
    assert 0.1 < heavy.mean() < 0.4
    assert ((rows.values[:, 5] == 1) == heavy).all()
    assert ((rows.values[:, SMOKER] == 1) == (heavy ^ (rows.labels == 0))).all()


def test_one_dominant_constituent_gives_near_copies_that_the_filter_rejects() -> None:
    private, _ = opened(build_source("breast-cancer"))
    parameters = {"concentration": 0.001, "votes": "weights", "mixed_share": 0.0}
    real = private.raw("test").values
    rows = made(private, 50, filter="off", **parameters)
    distance = np.abs(rows.values[:, None] - real).max(axis=2).min(axis=1)
    assert (distance < 1e-3).mean() > 0.9
    notes = make(private, 50, max_retries=0, **parameters).notes
    assert isinstance(notes["acceptance_rate"], float)
    assert notes["acceptance_rate"] < 0.1


def test_mixup_coefficients_are_those_of_the_iteration() -> None:
    drawn = mixup((500, 4), 0.5, np.random.default_rng(3))
    shares = np.random.default_rng(3).beta(0.5, 0.5, size=(500, 3))
    expected = np.empty((500, 4))
    for row, lambdas in enumerate(shares):
        mixed = np.eye(4)[0]
        for step, share in enumerate(lambdas, start=1):
            mixed = share * mixed + (1.0 - share) * np.eye(4)[step]
        expected[row] = mixed
    assert np.allclose(drawn, expected)
    assert np.allclose(drawn.sum(axis=1), 1.0)


@pytest.mark.parametrize("constituents", [1, 2, 100])
def test_the_last_constituent_of_mixup_carries_half_whatever_their_number(
    constituents: int,
) -> None:
    drawn = mixup((4000, constituents), 0.1, np.random.default_rng(0))
    assert np.allclose(drawn.sum(axis=1), 1.0)
    if constituents == 1:
        assert (drawn == 1.0).all()
        return
    assert stats.kstest(drawn[:, -1], stats.beta(0.1, 0.1).cdf).pvalue > 0.01


def test_broken_sticks_follow_their_distribution() -> None:
    drawn = stick_breaking((4000, 6), 0.5, np.random.default_rng(0))
    assert np.allclose(drawn.sum(axis=1), 1.0)
    assert stats.kstest(drawn[:, -1], stats.beta(1.0, 0.5).cdf).pvalue > 0.01
    # The second piece is a share of the rest: E = a / (1 + a) * 1 / (1 + a).
    assert drawn[:, -2].mean() == pytest.approx((0.5 / 1.5) * (1 / 1.5), abs=0.015)


def test_mixup_keeps_foreign_constituents_for_the_small_coefficients() -> None:
    # Rows of class 0 have the marker 0, those of class 1 the marker 1: the marker of a row made
    # for class 0 is the weight of its foreign constituents, which come first.
    count = 40
    private = private_rows(
        [0] * count, [0] * 20 + [1] * 20, [1] * count, [0] * count, [0] * 20 + [1] * 20
    )
    rows = made(
        private,
        2000,
        constituents=4,
        mixed_share=1.0,
        mixed_ratio=0.5,
        coefficients="mixup",
        concentration=1.0,
        filter="off",
    )
    foreign = rows.values[rows.labels == 0][:, MARKER].astype(np.float64)
    # Two foreign rows, then two of the class: the product of two uniform numbers, mean 1/4.
    assert foreign.mean() == pytest.approx(0.25, abs=0.02)
