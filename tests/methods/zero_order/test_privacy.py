"""Clipping, noise levels and the two published ways to count, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from bench.methods.zero_order._privacy import (
    LEVELS,
    base_noise,
    clipped,
    noise_level,
    steps_epsilon,
)
from bench.privacy.accounting import Budget, compose_events, rdp_epsilon
from bench.privacy.events import sampled_gaussian


def test_rows_longer_than_the_norm_are_shortened_and_others_left() -> None:
    gradients = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    assert clipped(gradients, 1.0) == pytest.approx(np.array([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]))


def test_the_largest_level_with_a_ratio_of_at_least_one_is_taken() -> None:
    gradients = np.array([[0.8, 0.0], [0.0, 0.4]])  # a mean norm of 0.6
    assert noise_level(gradients, clip=1.0, base=1.0) == 0.5
    assert noise_level(gradients, clip=1.0, base=0.3) == 2.0
    assert noise_level(gradients, clip=2.0, base=1.0) == 0.25
    assert noise_level(gradients, clip=1.0, base=0.6) == 1.0


def test_the_smallest_level_is_taken_where_no_ratio_is_large_enough() -> None:
    assert noise_level(np.array([[0.1, 0.0]]), clip=1.0, base=5.0) == LEVELS[0]


def test_steps_at_several_levels_compose() -> None:
    expected = rdp_epsilon(
        compose_events([(sampled_gaussian(0.1, 1.5), 3), (sampled_gaussian(0.1, 3.0), 4)]), 1e-5
    )
    assert steps_epsilon({1.5: 3, 3.0: 4}, 0.1, 1e-5) == pytest.approx(expected)
    assert steps_epsilon({1.5: 3}, 0.1, 1e-5) < expected
    assert steps_epsilon({}, 0.1, 1e-5) == 0.0


@pytest.mark.parametrize(
    ("epsilon", "rate", "counted"),
    [(0.5, 0.01, 2000), (1.0, 0.3, 2000), (3.0, 0.07, 1), (10.0, 0.3, 1), (1.0, 1.0, 50)],
)
def test_the_calibrated_noise_spends_the_target_at_the_smallest_level(
    epsilon: float, rate: float, counted: int
) -> None:
    base = base_noise(Budget(epsilon, 1e-5), rate, counted)
    spent = steps_epsilon({LEVELS[0] * base: counted}, rate, 1e-5)
    assert 0.99 * epsilon <= spent <= epsilon
    assert steps_epsilon({LEVELS[-1] * base: counted}, rate, 1e-5) < spent


def test_counting_the_first_step_alone_hides_most_of_the_budget() -> None:
    # SEER at IPC 100: 200 of 2,817 rows per step, 2,000 steps.
    least = LEVELS[0] * base_noise(Budget(1.0, 1e-5), 0.071, 1)
    assert least == pytest.approx(1.34, abs=0.02)
    assert steps_epsilon({least: 2000}, 0.071, 1e-5) > 15.0
