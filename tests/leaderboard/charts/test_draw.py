"""The Pareto front against its definition, point by point."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bench.leaderboard.charts.draw import pareto


def _by_definition(costs: list[float], gains: list[float]) -> set[int]:
    points = list(zip(costs, gains, strict=True))
    return {
        place
        for place, (cost, gain) in enumerate(points)
        if not any(
            other_cost <= cost and other_gain >= gain and (other_cost < cost or other_gain > gain)
            for other_cost, other_gain in points
        )
    }


@pytest.mark.parametrize("seed", range(20))
def test_as_the_definition_says(seed: int) -> None:
    random = np.random.default_rng(seed)
    # Few different values: ties in one respect and in both.
    costs = random.integers(0, 6, 40).astype(float).tolist()
    gains = random.integers(0, 6, 40).astype(float).tolist()
    assert set(pareto(costs, gains)) == _by_definition(costs, gains)


def test_by_hand() -> None:
    costs = [1.0, 1.0, 2.0, 3.0, 3.0, 4.0]
    gains = [0.5, 0.4, 0.5, 0.7, 0.7, 0.6]
    assert pareto(costs, gains) == (0, 3, 4)


def test_cheapest_first() -> None:
    assert pareto([3.0, 1.0, 2.0], [3.0, 1.0, 2.0]) == (1, 2, 0)


def test_what_is_no_number_is_not_on_it() -> None:
    assert pareto([math.nan, 1.0, 0.5], [1.0, 0.5, math.nan]) == (1,)
    assert pareto([], []) == ()
