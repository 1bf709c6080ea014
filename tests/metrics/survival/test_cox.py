"""The Cox model against lifelines, against closed forms and against leaving rows out."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter
from lifelines.exceptions import StatisticalWarning

from bench.errors import NotComputable
from bench.metrics.survival._cox import fit_weighted_cox, independent_columns

EXACT = {"precision": 1e-12, "r_precision": 1e-15, "step_size": 1.0}


def _rows(count=300, ties=True, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(count, 3)) * [0.3, 1.0, 5.0]
    times = rng.exponential(10 * np.exp(-2 * features[:, 0]))
    return features, np.ceil(times) if ties else times, rng.random(count) < 0.6, rng


def _lifelines(features, times, events, weights, penalty, **options):
    frame = pd.DataFrame(features, columns=list("abc"))
    frame["time"], frame["event"], frame["weight"] = times, events, weights
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StatisticalWarning)  # weights need not be whole numbers
        return CoxPHFitter(penalizer=penalty).fit(
            frame, "time", "event", weights_col="weight", fit_options=EXACT, **options
        )


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("penalty", [0.0, 0.1, 2.0])
def test_coefficients_are_those_of_lifelines(ties, penalty):
    features, times, events, _ = _rows(ties=ties)
    ones = np.ones(len(times))
    fit = fit_weighted_cox(features, times, events, ones, penalty)
    expected = _lifelines(features, times, events, ones, penalty)
    np.testing.assert_allclose(fit.coefficients, expected.params_, atol=1e-6)
    np.testing.assert_allclose(fit.naive, expected.standard_errors_, rtol=1e-6)


@pytest.mark.parametrize("ties", [False, True])
def test_weighted_coefficients_and_robust_errors_are_those_of_lifelines(ties):
    features, times, events, rng = _rows(ties=ties)
    weights = rng.uniform(0.5, 2.0, len(times))
    fit = fit_weighted_cox(features, times, events, weights, 0.0)
    expected = _lifelines(features, times, events, weights / weights.mean(), 0.0, robust=True)
    np.testing.assert_allclose(fit.coefficients, expected.params_, atol=1e-6)
    # lifelines takes the residuals of tied rows without Efron's correction.
    tolerance = 0.02 if ties else 1e-6
    np.testing.assert_allclose(fit.standard_errors, expected.standard_errors_, rtol=tolerance)


@pytest.mark.parametrize("penalty", [0.0, 0.1])
def test_the_covariance_is_that_of_leaving_single_rows_out(penalty):
    """The jackknife needs no derivative; it is larger by the order of 1 / n."""
    features, times, events, rng = _rows()
    weights = rng.uniform(0.5, 2.0, len(times))
    fit = fit_weighted_cox(features, times, events, weights, penalty)
    left_out = []
    for row in range(len(times)):
        kept = np.arange(len(times)) != row
        left_out.append(
            fit_weighted_cox(
                features[kept], times[kept], events[kept], weights[kept], penalty
            ).coefficients
        )
    spread = np.array(left_out) - np.mean(left_out, axis=0)
    np.testing.assert_allclose(fit.standard_errors, np.sqrt((spread**2).sum(axis=0)), rtol=0.07)


def test_the_covariance_is_that_of_small_changes_of_the_weights():
    """Sum over rows of (w_i db / dw_i)^2, by differences."""
    features, times, events, rng = _rows(150, ties=False)
    weights = rng.uniform(0.5, 2.0, len(times))
    fit = fit_weighted_cox(features, times, events, weights, 0.0)
    slopes = []
    for row in range(len(times)):
        ends = []
        for change in (1e-3, -1e-3):
            changed = weights.copy()
            changed[row] *= 1 + change
            ends.append(fit_weighted_cox(features, times, events, changed, 0.0).coefficients)
        slopes.append((ends[0] - ends[1]) / 2e-3)
    np.testing.assert_allclose(
        fit.standard_errors, np.sqrt((np.array(slopes) ** 2).sum(axis=0)), rtol=1e-5
    )


def test_three_rows_have_a_closed_form():
    """Only the first event compares: log L = b - log(e^b + 2), minus the penalty."""
    member = np.array([[1.0], [0.0], [0.0]])
    times, events = np.array([1.0, 2.0, 3.0]), np.array([True, True, True])

    fit = fit_weighted_cox(member, times, events, np.ones(3), 0.1)
    scale = member.std(ddof=1)
    ratio = np.exp(fit.coefficients[0])
    assert 1 - ratio / (ratio + 2) == pytest.approx(
        0.1 * 3 * fit.coefficients[0] * scale**2, abs=1e-9
    )


def test_constant_columns_say_nothing():
    features, times, events, _ = _rows()
    wide = np.column_stack([features[:, 0], np.ones(len(times)), features[:, 1:]])
    fit = fit_weighted_cox(wide, times, events, np.ones(len(times)), 0.1)
    alone = fit_weighted_cox(features, times, events, np.ones(len(times)), 0.1)
    np.testing.assert_allclose(fit.coefficients[[0, 2, 3]], alone.coefficients, rtol=1e-10)
    assert fit.coefficients[1] == fit.standard_errors[1] == 0.0
    assert fit.naive[1] == np.inf
    assert fit.varying.tolist() == [True, False, True, True]


def test_separated_rows_stay_finite_with_a_tiny_penalty():
    features, times, events, _ = _rows()
    never = (np.arange(len(times)) % 10 == 0).astype(float)
    events = events & (never == 0)
    fit = fit_weighted_cox(
        np.column_stack([features, never]), times, events, np.ones(len(times)), 1e-8
    )
    assert fit.coefficients[3] < -5
    assert fit.naive[3] * never.std() > 5 > (fit.naive[:3] * features.std(axis=0)).max()


def test_no_model_without_events_or_without_features():
    features, times, events, _ = _rows()
    with pytest.raises(NotComputable, match="no training row has the event"):
        fit_weighted_cox(features, times, events & False, np.ones(len(times)), 0.1)
    with pytest.raises(NotComputable, match="constant"):
        fit_weighted_cox(0 * features, times, events, np.ones(len(times)), 0.1)


def test_redundant_columns_are_found_in_order():
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(2, 50))
    table = np.column_stack([left, np.full(50, 3.0), right, left - 2 * right + 1, left**2])
    assert independent_columns(table, np.ones(50)).tolist() == [True, False, True, False, True]
