"""Success rates, residual risk, and rates on more rows than were seen."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest, hypergeom

from bench.metrics._shared.distance import Records
from bench.metrics.privacy.disclosure import _risk

# anonymeter 1.1.0: successes on training and control rows, attacks, then value and error of the
# main rate, the control rate and the residual success.
ANONYMETER = [
    (
        (37, 12, 1000),
        (0.03877178917881202, 0.011810608303257288),
        (0.0138674581409509, 0.0069898103345473785),
        (0.025254547417035523, 0.013826671384328998),
    ),
    (
        (0, 0, 1000),
        (0.0019133792427775617, 0.0019133792427775617),
        (0.0019133792427775617, 0.0019133792427775617),
        (0.0, 0.002711114264858369),
    ),
    (
        (20, 31, 57),
        (0.3602926332675495, 0.12028841317594854),
        (0.5410904019801325, 0.12518354218893915),
        (-0.3939725154860581, 0.46184329916680034),
    ),
    (
        (450, 400, 500),
        (0.8969502638153791, 0.026372173447319198),
        (0.7977126978615343, 0.035001803166708256),
        (0.49057733681136684, 0.15737196192667827),
    ),
]


@pytest.mark.parametrize(("counts", "rate", "against", "residual"), ANONYMETER)
def test_rates_and_risk_are_those_of_the_paper_s_code(counts, rate, against, residual):
    successes, on_control, attacks = counts
    main, other = _risk.success_rate(successes, attacks), _risk.success_rate(on_control, attacks)
    for found, (value, error) in ((main, rate), (other, against)):
        assert found.value == pytest.approx(value)
        assert (found.low, found.high) == pytest.approx((value - error, value + error), abs=1e-12)
    risk = _risk.residual_risk(main, other)
    value, error = residual
    assert risk.value == pytest.approx(value, abs=1e-12)
    assert (risk.low, risk.high) == pytest.approx((value - error, value + error))


def test_the_interval_of_a_rate_is_wilson_s():
    for successes in (0, 3, 20):
        expected = binomtest(successes, 20).proportion_ci(0.95, "wilson")
        rate = _risk.success_rate(successes, 20)
        assert (rate.low, rate.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_no_risk_is_above_one():
    risk = _risk.residual_risk(_risk.success_rate(10, 10), _risk.success_rate(9, 10))
    assert risk.low < risk.value <= risk.high == 1.0


def test_the_lower_end_uses_the_ends_that_make_the_risk_lower():
    main, control = _risk.Rate(0.5, 0.4, 0.5), _risk.Rate(0.2, 0.2, 0.2)
    risk = _risk.residual_risk(main, control)
    assert risk.value == pytest.approx(0.375)
    assert (risk.low, risk.high) == pytest.approx((0.375 - 0.1 / 0.8, 0.375))
    risk = _risk.residual_risk(_risk.Rate(0.5, 0.5, 0.5), _risk.Rate(0.2, 0.2, 0.3))
    assert (risk.low, risk.high) == pytest.approx((0.375 - 0.1 * 0.5 / 0.64, 0.375))


def test_a_rate_needs_attacks():
    with pytest.raises(ValueError, match="needs attacks"):
        _risk.success_rate(0, 0)


def test_a_record_counts_once():
    records = Records(np.array([[2.0], [1.0], [2.0]]), np.array([[0], [1], [0]], dtype=np.int32))
    assert sorted(_risk.distinct(records).numbers[:, 0]) == [1.0, 2.0]


def test_fewer_rows_need_no_model():
    """Exactly one of 4 rows fits, given matches among 10: the mean over all subsets."""
    matches = np.array([0, 1, 2, 10])
    expected = np.mean([hypergeom.pmf(1, 10, k, 4) for k in matches])
    assert _risk.exactly_one(matches, 10, 4) == pytest.approx(expected)
    assert _risk.exactly_one(matches, 10, 10) == pytest.approx(0.25)


def test_more_rows_are_extrapolated():
    """Six times the rows: the rate is met for narrow, exponential and wide distributions."""
    rng = np.random.default_rng(1)
    for shape in (0.3, 1.0, 20.0):
        weights = np.minimum(rng.gamma(shape, 1 / (shape * 300), 100_000), 1.0)
        matches = rng.binomial(50, weights)
        truth = np.mean(rng.binomial(300, weights) == 1)
        assert _risk.exactly_one(matches, 50, 300) == pytest.approx(truth, abs=0.012)


def test_groups_that_differ_are_told_apart():
    """One column whose values never recur, one whose values do: a single mean would be far off."""
    rng = np.random.default_rng(2)
    weights = np.concatenate([np.zeros(5000), np.full(1000, 0.02)])
    groups = np.repeat([4, 9], [5000, 1000])
    matches = rng.binomial(50, weights)
    truth = np.mean(rng.binomial(300, weights) == 1)
    assert truth < 0.005
    assert _risk.exactly_one(matches, 50, 300, groups) == pytest.approx(truth, abs=0.005)
    assert _risk.exactly_one(matches, 50, 300) > 0.03


def test_groups_that_do_not_differ_stay_together():
    rng = np.random.default_rng(3)
    matches = rng.binomial(50, 1 / 3000, 1000)
    groups = np.arange(1000) % 30
    assert _risk.exactly_one(matches, 50, 300, groups) == _risk.exactly_one(matches, 50, 300)


def test_what_is_never_seen_is_never_expected():
    assert _risk.exactly_one(np.zeros(100, dtype=np.int64), 50, 300) == 0.0
