"""C-index of a release."""

from __future__ import annotations

import numpy as np
import pytest
from lifelines.utils import concordance_index

from bench.errors import NotComputable
from bench.metrics._shared import bootstrap
from bench.metrics._shared.c_index import concordance
from bench.metrics.survival.c_index import AftConcordance, CoxConcordance
from bench.plugins.release import Release, Rows
from tests.metrics.helpers import Answers, evaluate, named


def only(scores):
    """Value, low and high of the C-index itself."""
    score = scores.scores[0]
    assert score.metric in ("c-index/cox", "c-index/aft")
    return score.value, score.low, score.high


METRICS = [(CoxConcordance, "risks-cox"), (AftConcordance, "risks-aft")]


@pytest.mark.parametrize("metric, table", METRICS)
def test_models_of_the_training_rows_rank_risk_and_lifelines_agrees(patients, metric, table):
    scores = metric().compute(evaluate(patients, patients.train))
    value, low, high = only(scores)
    assert 0.6 < low < value < high < 1.0
    risks = scores.details[table]
    frame = patients.test.frame
    assert value == pytest.approx(
        concordance_index(frame["months"], -risks["risk"], frame["death"]), abs=1e-9
    )
    np.testing.assert_allclose(risks["time"], frame["months"], atol=1e-4)


@pytest.mark.parametrize("metric, table", METRICS)
def test_times_in_random_order_give_chance(patients, metric, table):
    rows = patients.train.rows
    order = np.random.default_rng(1).permutation(len(rows))
    values = rows.values.copy()
    values[:, -1] = values[order, -1]
    release = Release(Rows(values, rows.labels[order]))
    value, _, _ = only(metric().compute(evaluate(patients, release)))
    assert value < 0.6


@pytest.mark.parametrize("metric, table", METRICS)
def test_a_release_without_events_has_no_score(patients, metric, table):
    rows = patients.train.rows
    with pytest.raises(NotComputable, match="no training row has the event"):
        metric().compute(evaluate(patients, Release(Rows(rows.values, 0 * rows.labels))))


@pytest.mark.parametrize("metric, table", METRICS)
def test_a_released_model_is_asked_directly(patients, metric, table):
    model = Answers(lambda values: values[:, 0])
    value, _, _ = only(metric().compute(evaluate(patients, Release(model=model))))
    frame = patients.test.frame
    assert value == pytest.approx(
        concordance_index(frame["months"], -frame["risk"], frame["death"]), abs=1e-4
    )


@pytest.mark.parametrize("metric, table", METRICS)
def test_the_stored_risks_reproduce_the_interval(patients, metric, table):
    """Later paired tests need nothing but the table; rows are drawn without regard to events."""
    evaluation = evaluate(patients, patients.train)
    scores = metric().compute(evaluation)
    risks = scores.details[table]
    estimate = bootstrap.bootstrap(
        concordance(risks["time"], risks["event"], risks["risk"]),
        np.zeros(len(risks)),
        bootstrap.of_dataset(evaluation),
    )
    assert only(scores) == (estimate.value, *estimate.interval)


def test_the_training_rows_are_as_good_as_themselves(patients):
    ratio = named(CoxConcordance().compute(evaluate(patients, patients.train)), "c-index/cox-ratio")
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((1.0, 1.0, 1.0), abs=1e-4)
    trees = named(AftConcordance().compute(evaluate(patients, patients.train)), "c-index/aft-ratio")
    assert trees.value == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("metric, table", METRICS)
def test_the_ratio_is_paired(patients, metric, table):
    """A better or worse model by the same test rows: resamples move both together."""
    evaluation = evaluate(patients, patients.validation)
    scores = metric().compute(evaluation)
    risks, (value, low, high) = scores.details[table], only(scores)
    real = concordance_index(risks["time"], -risks["real-risk"], risks["event"])
    ratio = named(scores, f"{metric.name}-ratio")
    assert ratio.value == pytest.approx(value / real, abs=1e-9)
    assert ratio.low <= ratio.value <= ratio.high
    assert ratio.high - ratio.low < (high - low) / value


@pytest.mark.parametrize("metric, table", METRICS)
def test_a_released_model_is_compared_with_the_model_of_the_real_rows(patients, metric, table):
    scores = metric().compute(evaluate(patients, Release(model=Answers(lambda v: -v[:, 0]))))
    assert named(scores, f"{metric.name}-ratio").high < 0.7
