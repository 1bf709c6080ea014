"""Success rates, residual risk, and rates on more rows than were seen."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from bench.metrics._shared import intervals
from bench.metrics._shared.record_distance import Records

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
    main, other = (
        intervals.success_rate(successes, attacks),
        intervals.success_rate(on_control, attacks),
    )
    for computed, (value, error) in ((main, rate), (other, against)):
        assert computed.value == pytest.approx(value)
        assert (computed.low, computed.high) == pytest.approx(
            (value - error, value + error), abs=1e-12
        )
    risk = intervals.residual_risk(main, other)
    value, error = residual
    assert risk.value == pytest.approx(value, abs=1e-12)
    assert (risk.low, risk.high) == pytest.approx((value - error, value + error))


def test_the_interval_of_a_rate_is_wilson_s():
    for successes in (0, 3, 20):
        expected = binomtest(successes, 20).proportion_ci(0.95, "wilson")
        rate = intervals.success_rate(successes, 20)
        assert (rate.low, rate.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_no_risk_is_above_one():
    risk = intervals.residual_risk(intervals.success_rate(10, 10), intervals.success_rate(9, 10))
    assert risk.low < risk.value <= risk.high == 1.0


def test_the_lower_end_uses_the_ends_that_make_the_risk_lower():
    main, control = intervals.Interval(0.5, 0.4, 0.5), intervals.Interval(0.2, 0.2, 0.2)
    risk = intervals.residual_risk(main, control)
    assert risk.value == pytest.approx(0.375)
    assert (risk.low, risk.high) == pytest.approx((0.375 - 0.1 / 0.8, 0.375))
    risk = intervals.residual_risk(
        intervals.Interval(0.5, 0.5, 0.5), intervals.Interval(0.2, 0.2, 0.3)
    )
    assert (risk.low, risk.high) == pytest.approx((0.375 - 0.1 * 0.5 / 0.64, 0.375))


def test_a_rate_needs_attacks():
    with pytest.raises(ValueError, match="needs attacks"):
        intervals.success_rate(0, 0)


def test_a_record_counts_once():
    records = Records(np.array([[2.0], [1.0], [2.0]]), np.array([[0], [1], [0]], dtype=np.int32))
    assert sorted(records.take(records.distinct[0]).numbers[:, 0]) == [1.0, 2.0]
