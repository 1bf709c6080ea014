"""Curves against hand-made tables, lifelines and scikit-survival."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter, KaplanMeierFitter
from lifelines.exceptions import StatisticalWarning
from lifelines.statistics import logrank_test
from scipy.stats import kstest
from sksurv.nonparametric import CensoringDistributionEstimator
from sksurv.util import Surv

from bench.errors import NotComputable
from bench.metrics.survival import _curves as curves


def _rows(count=200, seed=0, ties=True):
    rng = np.random.default_rng(seed)
    times = rng.exponential(10, count)
    return np.ceil(times) if ties else times, rng.random(count) < 0.6, rng


def test_four_rows_by_hand():
    times, events = np.array([1.0, 2.0, 2.0, 3.0]), np.array([True, True, False, True])
    curve = curves.kaplan_meier(times, events)
    np.testing.assert_allclose(curve.at([0.5, 1, 1.5, 2, 3]), [1, 3 / 4, 3 / 4, 1 / 2, 0])
    np.testing.assert_allclose(curve.before([1, 2, 3]), [1, 3 / 4, 1 / 2])
    # At time 2 the event leaves first: one of two rows at risk of censoring is censored.
    stays = curves.censoring(times, events)
    np.testing.assert_allclose(stays.at([1, 2, 3]), [1, 1 / 2, 1 / 2])
    np.testing.assert_allclose(stays.before([2, 3]), [1, 1 / 2])


@pytest.mark.parametrize("weighted", [False, True])
def test_kaplan_meier_is_that_of_lifelines(weighted):
    times, events, rng = _rows()
    weights = rng.uniform(0.2, 3.0, len(times)) if weighted else np.ones(len(times))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StatisticalWarning)
        expected = KaplanMeierFitter().fit(times, events, weights=weights)
    grid = np.linspace(0, times.max() + 1, 77)
    np.testing.assert_allclose(
        curves.kaplan_meier(times, events, weights).at(grid), expected.predict(grid), atol=1e-12
    )
    many = curves.curves_at(times, events, grid)(np.column_stack([weights, np.ones(len(times))]))
    np.testing.assert_allclose(many[:, 0], expected.predict(grid), atol=1e-12)


@pytest.mark.parametrize("ties", [False, True])
def test_censoring_is_that_of_scikit_survival(ties):
    times, events, _ = _rows(ties=ties)
    expected = CensoringDistributionEstimator().fit(Surv.from_arrays(events, times))
    inside = times[times < times.max()]
    np.testing.assert_allclose(
        curves.censoring(times, events).at(inside), expected.predict_proba(inside), atol=1e-12
    )


def test_censoring_weights_give_back_the_survival_curve():
    """The sum over events up to t of 1 / G(T-) is n (1 - S(t)), and n S(t) G(t) rows are left."""
    times, events, _ = _rows()
    survival, stays = curves.kaplan_meier(times, events), curves.censoring(times, events)
    for time in (1.0, 4.0, 9.5, 20.0):
        happened = events & (times <= time)
        total = (1 / stays.before(times[happened])).sum() / len(times)
        assert total == pytest.approx(1 - survival.at(time), abs=1e-12)
        assert (times > time).mean() == pytest.approx(survival.at(time) * stays.at(time), abs=1e-12)


def test_breslow_is_that_of_lifelines():
    times, events, rng = _rows()
    feature, weights = rng.normal(size=len(times)), rng.uniform(0.5, 2, len(times))
    frame = pd.DataFrame({"x": feature, "t": times, "e": events, "w": weights})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StatisticalWarning)
        fitted = CoxPHFitter().fit(frame, "t", "e", weights_col="w")
    log_risks = fitted.params_["x"] * (feature - feature.mean())
    baseline = curves.breslow(times, events, weights, log_risks)
    expected = fitted.baseline_cumulative_hazard_["baseline cumulative hazard"]
    np.testing.assert_allclose(baseline.at(expected.index), expected, rtol=1e-9)


def test_breslow_without_risk_is_nelson_and_aalen():
    times, events = np.array([1.0, 2.0, 2.0, 3.0]), np.array([True, True, False, True])
    baseline = curves.breslow(times, events, np.ones(4), np.zeros(4))
    np.testing.assert_allclose(baseline.at([0, 1, 2, 3]), [0, 1 / 4, 1 / 4 + 1 / 3, 4 / 3 + 1 / 4])


def test_gap_and_area_of_steps():
    times, differences = np.array([1.0, 3.0]), np.array([[-0.5], [0.25]])
    assert curves.gap(differences)[0] == 0.5
    assert curves.area(times, differences, 5.0)[0] == (2 * 0.5 + 2 * 0.25) / 5


def test_weights_restore_the_real_shares():
    labels = np.array([0, 0, 1, 1])
    weights = curves.population_weights(labels, None, (90, 10))
    np.testing.assert_allclose(weights, [1.8, 1.8, 0.2, 0.2])
    weighted = curves.population_weights(labels, np.array([1.0, 3.0, 1.0, 1.0]), (90, 10))
    np.testing.assert_allclose(weighted, [0.9, 2.7, 0.2, 0.2])
    np.testing.assert_allclose(curves.population_weights(np.array([1, 1]), None, (90, 10)), 1.0)
    with pytest.raises(NotComputable, match="no training row has"):
        curves.population_weights(np.array([1, 1]), None, (90, 0))


def test_observed_minus_expected_is_that_of_the_classical_log_rank_test():
    """Its chi-square is (O - E)^2 over the hypergeometric variance."""
    times, events, rng = _rows(ties=False)
    group = rng.random(len(times)) < 0.4
    total, p_value = curves.log_rank(times, events, group, np.ones(len(times)))
    expected, variance = 0.0, 0.0
    for time in times[events]:
        share = group[times >= time].mean()
        expected, variance = expected + share, variance + share * (1 - share)
    assert total == pytest.approx(np.count_nonzero(group & events) - expected, abs=1e-9)
    classical = logrank_test(times[group], times[~group], events[group], events[~group])
    assert total**2 / variance == pytest.approx(classical.test_statistic, rel=1e-9)
    assert 0 < p_value < 1


def test_the_p_value_is_uniform_for_fresh_rows_of_given_shares():
    """Balanced releases of the same population, weighted back. The classical test never rejects."""
    rng = np.random.default_rng(4)

    def drawn(happened: int, censored: int):
        life, followed = rng.exponential(40, 6000), rng.uniform(2, 25, 6000)
        events = life <= followed
        rows = np.concatenate(
            [np.flatnonzero(events)[:happened], np.flatnonzero(~events)[:censored]]
        )
        return np.minimum(life, followed)[rows], events[rows]

    life, followed = rng.exponential(40, 10**6), rng.uniform(2, 25, 10**6)
    share = round(300 * float((life <= followed).mean()))
    p_values = []
    for _ in range(300):
        real, released = drawn(share, 300 - share), drawn(100, 100)
        weights = curves.population_weights(released[1].astype(int), None, (300 - share, share))
        p_values.append(
            curves.log_rank(
                np.concatenate([real[0], released[0]]),
                np.concatenate([real[1], released[1]]),
                np.arange(500) >= 300,
                np.concatenate([np.ones(300), weights]),
            )[1]
        )
    assert kstest(p_values, "uniform").pvalue > 0.01


def test_alike_rows_have_no_log_rank_test():
    ones = np.ones(4)
    with pytest.raises(NotComputable, match="no variance"):
        curves.log_rank(ones, ones == 0, np.array([True, True, False, False]), ones)
