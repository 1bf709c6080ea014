"""The operating point against its definition, and the rates against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score, precision_score, recall_score

from bench.errors import NotComputable
from bench.metrics.utility import _thresholds


def _value(statistic, rows):
    return statistic(np.ones((rows, 1)))[0]


def test_threshold_of_a_hand_table():
    labels, scores = [1, 1, 1, 1, 0, 0], [0.9, 0.8, 0.4, 0.2, 0.85, 0.1]
    # 0.85 of four positives are 3.4: all four. 0.75 are three, 0.7 as well.
    assert _thresholds.threshold(labels, scores) == 0.2
    assert _thresholds.threshold(labels, scores, 0.75) == 0.4
    assert _thresholds.threshold(labels, scores, 0.7) == 0.4
    assert _thresholds.threshold(labels, scores, 0.25) == 0.9
    assert _thresholds.threshold(labels, scores, 1.0) == 0.2


def test_the_declared_share_of_the_rows_is_called_positive():
    scores = np.array([0.9, 0.8, 0.4, 0.2, 0.85, 0.1])

    def called(share):
        return (scores > _thresholds.prevalence_threshold(scores, share)).tolist()

    assert called(0.5) == [True, True, False, False, True, False]
    assert called(0.49) == [True, False, False, False, True, False]
    assert not any(called(0.0))
    assert all(called(1.0))
    tied = _thresholds.prevalence_threshold([0.5, 0.5, 0.5, 0.1], 0.5)
    assert tied == 0.5  # two of three tied rows would fit: none is called
    with pytest.raises(NotComputable, match="no validation rows"):
        _thresholds.prevalence_threshold([], 0.5)
    with pytest.raises(ValueError, match=r"got 1\.5"):
        _thresholds.prevalence_threshold(scores, 1.5)


@pytest.mark.parametrize("sensitivity", [0.07, 0.14, 0.28, 0.29, 0.56, 0.57, 0.58, 0.85])
def test_rounding_does_not_ask_for_one_positive_too_many(sensitivity):
    """0.07 x 100 is 7.000000000000001."""
    scores = np.arange(100, 0, -1)
    wanted = round(100 * sensitivity)
    assert _thresholds.threshold(np.ones(100), scores, sensitivity) == 101 - wanted


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 8)), min_size=1, max_size=30),
    st.sampled_from([0.05, 0.5, 0.8, 0.85, 0.9, 1.0]),
)
def test_threshold_is_the_largest_that_reaches_the_sensitivity(rows, sensitivity):
    labels, scores = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    if not labels.any():
        with pytest.raises(NotComputable, match="no positive"):
            _thresholds.threshold(labels, scores, sensitivity)
        return
    reached = [
        value
        for value in np.unique(scores)
        if (scores[labels] >= value).sum() >= sensitivity * labels.sum() - 1e-9
    ]
    assert _thresholds.threshold(labels, scores, sensitivity) == max(reached)


@pytest.mark.parametrize("sensitivity", [0.0, -0.1, 1.1])
def test_a_sensitivity_is_a_share(sensitivity):
    with pytest.raises(ValueError, match="sensitivity"):
        _thresholds.threshold([1, 0], [0.3, 0.2], sensitivity)


def test_rates_of_a_hand_table():
    """TP 3, FN 1, FP 2, TN 4."""
    labels = [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]
    decided = [1, 1, 1, 0, 1, 1, 0, 0, 0, 0]
    found = {name: _value(rate, 10) for name, rate in _thresholds.rates(labels, decided).items()}
    assert found == pytest.approx(
        {
            "sensitivity": 3 / 4,
            "specificity": 4 / 6,
            "ppv": 3 / 5,
            "npv": 4 / 5,
            "f1": 2 * 3 / (4 + 5),
        }
    )


def test_rates_equal_scikit_learn_for_any_weights():
    rng = np.random.default_rng(0)
    labels, decided = rng.integers(0, 2, 100), rng.integers(0, 2, 100)
    weights = rng.integers(0, 4, (100, 8)).astype(float)
    found = {name: rate(weights) for name, rate in _thresholds.rates(labels, decided).items()}
    for column, counts in enumerate(weights.T):
        expected = {
            "sensitivity": recall_score(labels, decided, sample_weight=counts),
            "specificity": recall_score(1 - labels, 1 - decided, sample_weight=counts),
            "ppv": precision_score(labels, decided, sample_weight=counts),
            "npv": precision_score(1 - labels, 1 - decided, sample_weight=counts),
            "f1": f1_score(labels, decided, sample_weight=counts),
        }
        assert {name: values[column] for name, values in found.items()} == pytest.approx(expected)


def test_macro_f1_equals_scikit_learn_for_any_weights():
    rng = np.random.default_rng(1)
    labels, decided = rng.integers(0, 3, 100), rng.integers(0, 3, 100)
    weights = rng.integers(0, 4, (100, 8)).astype(float)
    found = _thresholds.macro_f1(labels, decided, 3)(weights)
    for value, counts in zip(found, weights.T, strict=True):
        assert value == pytest.approx(
            f1_score(labels, decided, average="macro", sample_weight=counts)
        )


def test_a_rate_of_nothing_has_no_value():
    """Everything is called positive: no negative call to be right about."""
    found = _thresholds.rates([1, 0, 0], [1, 1, 1])
    assert np.isnan(_value(found["npv"], 3))
    assert _value(found["specificity"], 3) == 0.0
    assert _value(found["ppv"], 3) == pytest.approx(1 / 3)
