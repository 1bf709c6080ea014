"""The exact test against full enumeration, and its ends against scipy."""

import math

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from bench.errors import InputError
from bench.stats.bounds import gaussian_frontier, private_frontier
from bench.stats.exact_test import (
    Frontier,
    Tally,
    exact_p_value,
    rectangle_error,
)
from bench.stats.inference import clopper_pearson_high, clopper_pearson_low

FRONTIERS = {
    "private": private_frontier(0.7, 0.01),
    "gaussian": gaussian_frontier(0.8),
    "steep": private_frontier(2.5, 0.0),
}


@pytest.mark.parametrize("count", [0, 1, 7, 39, 40])
@pytest.mark.parametrize("error", [0.025, 0.001])
def test_clopper_pearson_is_scipys(count: int, error: float) -> None:
    low = binomtest(count, 40, alternative="greater").proportion_ci(1 - error, "exact").low
    high = binomtest(count, 40, alternative="less").proportion_ci(1 - error, "exact").high
    assert clopper_pearson_low(count, 40, error) == pytest.approx(low, abs=1e-12)
    assert clopper_pearson_high(count, 40, error) == pytest.approx(high, abs=1e-12)


def _all_p_values(positives: int, negatives: int, frontier: Frontier) -> np.ndarray:
    return np.array(
        [
            [
                exact_p_value(Tally(h, positives, k, negatives), frontier)
                for k in range(negatives + 1)
            ]
            for h in range(positives + 1)
        ]
    )


@pytest.mark.parametrize("name", FRONTIERS)
@pytest.mark.parametrize("sizes", [(9, 12), (14, 6)])
def test_no_level_is_exceeded_anywhere_under_the_null(name: str, sizes: tuple[int, int]) -> None:
    """Every pair of counts enumerated: P(p <= x) <= x for all x, all rates on the frontier."""
    frontier, (positives, negatives) = FRONTIERS[name], sizes
    values = _all_p_values(positives, negatives, frontier)
    levels = np.unique(values)
    for false in np.linspace(0.0, 1.0, 301):
        true = float(frontier(np.array([false]))[0])
        masses = np.outer(
            binom.pmf(range(positives + 1), positives, true),
            binom.pmf(range(negatives + 1), negatives, false),
        )
        reached = np.array([masses[values <= level].sum() for level in levels])
        assert (reached <= levels + 1e-9).all()


@pytest.mark.parametrize("name", FRONTIERS)
def test_p_value_is_the_supremum_that_a_fine_search_finds(name: str) -> None:
    """No more than the tolerance above the largest probability of the same staircase."""
    frontier, trials = FRONTIERS[name], 25
    tally = Tally(24, trials, 1, trials)
    error = rectangle_error(tally, frontier)
    counts = np.arange(trials + 1)
    member = np.array(
        [
            [rectangle_error(Tally(h, trials, k, trials), frontier) <= error for k in counts]
            for h in counts
        ]
    )
    supremum = 0.0
    for false in np.linspace(0.0, 0.75, 600):
        true = float(frontier(np.array([false]))[0])
        masses = np.outer(binom.pmf(counts, trials, true), binom.pmf(counts, trials, false))
        supremum = max(supremum, float(masses[member].sum()))
    p_value = exact_p_value(tally, frontier)
    assert supremum <= p_value <= supremum * 1.05 + 1e-7
    assert p_value < 2 * error


def test_more_evidence_never_raises_the_p_value() -> None:
    values = _all_p_values(10, 10, FRONTIERS["private"])
    tolerance = 1.04  # of the search
    assert (values[1:] <= values[:-1] * tolerance + 1e-7).all()
    assert (values[:, :-1] <= values[:, 1:] * tolerance + 1e-7).all()


def test_sharper_than_the_rectangle_by_an_order_of_magnitude() -> None:
    """The rectangle adds two standard errors, the joint test the root of their squares."""
    tally, frontier = Tally(5000, 10_000, 4500, 10_000), private_frontier(0.05, 1e-5)
    rectangle, joint = 2 * rectangle_error(tally, frontier), exact_p_value(tally, frontier)
    z = (0.5 - math.exp(0.05) * 0.45) / math.sqrt(0.25e-4 + math.exp(0.1) * 0.2475e-4)
    assert joint == pytest.approx(math.erfc(z / math.sqrt(2)) / 2, rel=0.1)
    assert joint < rectangle / 50


def test_nothing_against_the_null_is_one() -> None:
    assert exact_p_value(Tally(5, 100, 5, 100), private_frontier(0.0, 0.0)) == 1.0
    assert exact_p_value(Tally(0, 10, 10, 10), private_frontier(1.0, 0.0)) == 1.0


def test_perfect_tally_in_closed_form() -> None:
    """max over a of (g(a) (1 - a))^n, attained by randomised response: (e/(1+e))^2n."""
    epsilon, trials = 2.0, 20
    expected = (math.exp(epsilon) / (1 + math.exp(epsilon))) ** (2 * trials)
    p_value = exact_p_value(Tally(trials, trials, 0, trials), private_frontier(epsilon, 0.0))
    assert expected <= p_value <= expected * 1.04


@pytest.mark.parametrize("counts", [(3, 2, 0, 1), (-1, 2, 0, 1), (0, 0, 0, 1), (0, 1, 2, 1)])
def test_impossible_counts_are_refused(counts: tuple[int, int, int, int]) -> None:
    with pytest.raises(InputError):
        Tally(*counts)
