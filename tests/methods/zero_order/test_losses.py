"""Losses of zero-order condensation by hand, and their gradients against central differences."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from bench.methods.zero_order._losses import (
    CompositeLoss,
    CrossEntropy,
    MatchingLoss,
    PartialLikelihood,
    SmoothL1,
    event_edges,
    event_strata,
)

Array = np.ndarray


def central(function: Callable[[Array], float], point: Array, step: float = 1e-6) -> Array:
    gradient = np.zeros_like(point)
    for place in np.ndindex(point.shape):
        ahead, behind = point.copy(), point.copy()
        ahead[place] += step
        behind[place] -= step
        gradient[place] = (function(ahead) - function(behind)) / (2 * step)
    return gradient


def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def test_binary_cross_entropy_of_two_rows_by_hand() -> None:
    loss, gradient = CrossEntropy(np.array([0, 1])).at(np.array([[0.2], [0.5]]))
    assert loss == pytest.approx(-(math.log(0.8) + math.log(0.5)) / 2)
    assert gradient.ravel() == pytest.approx([1 / 0.8 / 2, -1 / 0.5 / 2])


def test_cross_entropy_of_two_classes_is_the_same_with_one_or_two_outputs() -> None:
    labels, p = np.array([0, 1, 1]), np.array([[0.2], [0.6], [0.9]])
    assert CrossEntropy(labels).at(p)[0] == pytest.approx(
        CrossEntropy(labels).at(np.hstack([1 - p, p]))[0]
    )


def test_certain_and_wrong_predictions_have_a_finite_loss() -> None:
    loss, gradient = CrossEntropy(np.array([1])).at(np.array([[0.0]]))
    assert np.isfinite(loss) and np.isfinite(gradient).all()


def test_partial_likelihood_of_three_rows_by_hand() -> None:
    # Events at 1 and 2, censored at 2: all are at risk at 1, the last two at 2.
    scores = np.array([[0.5], [-1.0], [0.2]])
    loss, _ = PartialLikelihood(np.array([1.0, 2.0, 2.0]), np.array([1, 1, 0])).at(scores)
    e = np.exp(scores[:, 0])
    expected = -(0.5 - math.log(e.sum())) - (-1.0 - math.log(e[1] + e[2]))
    assert loss == pytest.approx(expected)


def test_partial_likelihood_equals_the_double_sum_with_ties() -> None:
    generator = rng()
    times = generator.integers(1, 6, 30).astype(float)
    events = generator.integers(0, 2, 30)
    scores = generator.normal(size=(30, 1))
    expected = -sum(
        scores[i, 0] - math.log(np.exp(scores[times >= times[i], 0]).sum())
        for i in range(30)
        if events[i]
    )
    assert PartialLikelihood(times, events).at(scores)[0] == pytest.approx(expected)


def test_smooth_l1_is_quadratic_near_zero_and_linear_beyond() -> None:
    loss, gradient = SmoothL1(np.zeros(3)).at(np.array([[0.5], [-3.0], [1.0]]))
    assert loss == pytest.approx((0.125 + 2.5 + 0.5) / 3)
    assert gradient.ravel() == pytest.approx([0.5 / 3, -1 / 3, 1 / 3])


def test_matching_of_two_classes_by_hand() -> None:
    matching = MatchingLoss(np.array([0, 0, 1]), np.array([True, True]))
    loss, gradient = matching.at(np.array([[0.1], [0.3], [0.9]]), np.array([[0.1], [0.95]]))
    assert loss == pytest.approx(0.1 + 0.05)
    assert gradient.ravel() == pytest.approx([0.5, 0.5, -1.0])


def test_strata_without_real_rows_are_not_matched() -> None:
    matching = MatchingLoss(np.array([0, 1]), np.array([True, False]), factor=0.5)
    loss, gradient = matching.at(np.array([[1.0], [7.0]]), np.array([[0.0], [0.0]]))
    assert loss == pytest.approx(0.5)
    assert gradient.ravel() == pytest.approx([0.5, 0.0])


@pytest.mark.parametrize("kind", ["binary", "classes", "cox", "aft"])
def test_the_gradient_is_that_of_the_composite_loss_with_alpha_held(kind: str) -> None:
    generator = rng()
    times = generator.integers(1, 9, 24).astype(float)
    if kind in ("binary", "classes"):
        outputs = 1 if kind == "binary" else 3
        labels = generator.integers(0, max(2, outputs), 24)
        predictions = generator.uniform(0.05, 0.95, (24, outputs))
        real = generator.uniform(0.05, 0.95, (max(2, outputs), outputs))
        supervision, groups, factor = CrossEntropy(labels), labels, 1.0
    else:
        labels = generator.integers(0, 2, 24)
        predictions = generator.normal(size=(24, 1))
        real = generator.normal(size=(4, 1))
        groups = event_strata(times, labels, event_edges(times, labels, 4))
        supervision = PartialLikelihood(times, labels) if kind == "cox" else SmoothL1(np.log(times))
        factor = 0.25
    composite = CompositeLoss(
        supervision, MatchingLoss(groups, np.ones(len(real), bool), factor), 0.1
    )
    value = composite.at(predictions, real)
    expected = central(lambda p: composite.at(p, real, alpha=value.alpha).total, predictions)
    assert value.gradient == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_matching_has_the_share_rho_of_the_loss() -> None:
    labels = np.array([0, 1, 1])
    composite = CompositeLoss(CrossEntropy(labels), MatchingLoss(labels, np.ones(2, bool)), 0.1)
    value = composite.at(np.array([[0.4], [0.6], [0.7]]), np.array([[0.1], [0.8]]))
    assert value.alpha * value.matching / value.total == pytest.approx(0.1)


def test_strata_are_the_censored_rows_and_quantiles_of_the_event_times() -> None:
    times = np.array([1.0, 2.0, 3.0, 4.0, 9.0, 9.0])
    events = np.array([1, 1, 1, 1, 0, 0])
    edges = event_edges(times, events, 3)
    assert edges.tolist() == [2.5]
    assert event_strata(times, events, edges).tolist() == [1, 1, 2, 2, 0, 0]
