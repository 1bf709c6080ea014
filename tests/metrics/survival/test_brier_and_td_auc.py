"""Integrated Brier score and time-dependent AUC against scikit-survival and lifelines."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter
from sksurv.metrics import cumulative_dynamic_auc, integrated_brier_score
from sksurv.util import Surv

from bench.errors import NotComputable
from bench.metrics._shared import bootstrap, downstream_models
from bench.metrics.survival import _survival_models
from bench.metrics.survival.brier_and_td_auc import (
    CensoredRows,
    IntegratedBrier,
    TimeDependentAuc,
    censored_rows,
)
from bench.plugins.release import Release, Rows
from bench.plugins.source import build_dataset
from tests.metrics.helpers import Answers, evaluate, named
from tests.support.tables import ToySurvival

METRICS = [IntegratedBrier, TimeDependentAuc]


def _judged(ties: bool, count: int = 300):
    rng = np.random.default_rng(2)
    risk = rng.normal(size=count).round(1)  # some risks are tied
    times, followed = rng.exponential(10 * np.exp(-risk)), rng.uniform(1, 30, count)
    events = times <= followed
    times = np.minimum(times, followed)
    if ties:
        times = np.ceil(times)
    grid = np.linspace(*np.quantile(times[events], [0.1, 0.9]), 12)
    survival = np.exp(-np.exp(risk)[:, None] * grid / 12)
    return CensoredRows.of(times, events, grid), risk, survival


def _as_scikit_survival_sees_it(judged):
    """It takes G(T) for G(T-): with ties, events a little earlier make it the same."""
    return Surv.from_arrays(judged.events, judged.times - 1e-9 * judged.events)


@pytest.mark.parametrize("ties", [False, True])
def test_brier_is_that_of_scikit_survival(ties):
    judged, _, survival = _judged(ties)
    truth = _as_scikit_survival_sees_it(judged)
    expected = integrated_brier_score(truth, truth, survival, judged.grid)
    losses = judged.squared_errors(survival)
    assert (losses @ judged.trapezoid).mean() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("ties", [False, True])
def test_auc_is_that_of_scikit_survival(ties):
    judged, risk, _ = _judged(ties)
    truth = _as_scikit_survival_sees_it(judged)
    expected, mean_expected = cumulative_dynamic_auc(truth, truth, risk, judged.grid)
    mean, by_time = judged.areas(risk)
    np.testing.assert_allclose(by_time, expected, atol=1e-12)
    assert mean(np.ones((len(risk), 1)))[0] == pytest.approx(mean_expected, abs=1e-12)


def test_four_rows_by_hand():
    """Nobody is censored before 3: plain squared errors, and all pairs but one in order."""
    times, events = np.array([1.0, 2.0, 3.0, 4.0]), np.array([True, True, False, True])
    judged = CensoredRows.of(times, events, np.array([1.5, 2.5]))
    survival = np.array([[0.2, 0.1], [0.6, 0.3], [0.9, 0.8], [0.7, 0.5]])
    at = judged.squared_errors(survival).mean(axis=0)
    np.testing.assert_allclose(
        at, [(0.04 + 0.16 + 0.01 + 0.09) / 4, (0.01 + 0.09 + 0.04 + 0.25) / 4]
    )
    _, by_time = judged.areas(np.array([0.9, 0.3, 0.1, 0.5]))
    np.testing.assert_allclose(by_time, [1.0, 3 / 4])


def test_resampled_weights_are_duplicated_rows():
    judged, risk, survival = _judged(ties=True)
    drawn = np.random.default_rng(0).integers(0, len(risk), len(risk))
    counts = np.bincount(drawn, minlength=len(risk)).astype(float)[:, None]
    mean, _ = judged.areas(risk)
    again = CensoredRows(
        judged.times[drawn],
        judged.events[drawn],
        judged.grid,
        judged.event_weights[drawn],
        judged.later_weights,
        judged.drops,
    )
    assert mean(counts)[0] == pytest.approx(
        again.areas(risk[drawn])[0](np.ones((len(risk), 1)))[0], abs=1e-12
    )
    losses = judged.squared_errors(survival) @ judged.trapezoid
    assert bootstrap.mean(losses)(counts)[0] == pytest.approx(losses[drawn].mean(), abs=1e-12)


def test_the_cox_curve_is_that_of_lifelines(patients):
    evaluation = evaluate(patients, patients.train)
    features = patients.train.rows.values[:, :2].astype(float)
    frame = pd.DataFrame(features, columns=["x0", "x1"])
    rows = patients.train.rows
    frame["t"] = patients.encoder.decode(rows.values, rows.labels)["months"]
    frame["e"] = rows.labels
    # It stops a millionth away from the optimum by default.
    precise = {"precision": 1e-12, "r_precision": 1e-13}
    fitted = CoxPHFitter(penalizer=downstream_models.COX_PENALTY).fit(
        frame, "t", "e", fit_options=precise
    )
    # Between event times lifelines draws straight lines.
    grid = np.sort(frame.loc[frame["e"] == 1, "t"])[::50]
    tested = patients.test.rows.values[:, :2]
    expected = fitted.predict_survival_function(
        pd.DataFrame(tested.astype(float), columns=["x0", "x1"]), times=grid
    )
    survival = _survival_models.released_survival(evaluation, "cox").at(tested, grid)
    np.testing.assert_allclose(survival, expected.to_numpy().T, atol=1e-6)


def test_the_median_of_the_aft_curve_is_the_predicted_time(patients):
    evaluation = evaluate(patients, patients.train)
    survival = _survival_models.released_survival(evaluation, "aft")
    tested = patients.test.rows.values[:5, :2]
    medians = survival.scale * np.exp(-survival.model.predict(tested))
    np.testing.assert_allclose(np.diag(survival.at(tested, medians)), 0.5, atol=1e-6)
    events = patients.train.frame.loc[patients.train.frame["death"] == 1, "months"]
    low, high = np.quantile(events, [0.25, 0.75])
    assert survival.scale == pytest.approx(high - low, rel=1e-4)


def test_with_the_real_shares_the_aft_model_is_that_of_the_c_index(patients):
    evaluation = evaluate(patients, patients.train)
    tested = patients.test.rows.values[:, :2]
    survival = _survival_models.released_survival(evaluation, "aft")
    np.testing.assert_array_equal(
        survival.model.predict(tested), downstream_models.tree_survival(evaluation).predict(tested)
    )


def test_models_of_the_training_rows_beat_the_curve_without_covariates():
    """Some 800 test rows: the intervals are narrower than the gains for any split."""
    patients = build_dataset(ToySurvival(rows=4000))
    scores = IntegratedBrier().compute(evaluate(patients, patients.train))
    table = scores.details["brier"].groupby(["model", "trained-on"])["value"].mean()
    plain = table["kaplan-meier", "real"]
    for model in ("cox", "aft"):
        score = named(scores, f"brier/{model}")
        assert score.low < score.value < score.high < plain
    assert table["cox", "released"] == pytest.approx(table["cox", "real"], abs=1e-12)


@pytest.mark.parametrize("model", ["cox", "aft"])
def test_times_in_random_order_are_worse(patients, model):
    rows = patients.train.rows
    order = np.random.default_rng(1).permutation(len(rows))
    values = rows.values.copy()
    values[:, -1] = values[order, -1]
    release = Release(Rows(values, rows.labels[order]))
    for metric, worse in ((IntegratedBrier, 1), (TimeDependentAuc, -1)):
        good, bad = (
            named(metric().compute(evaluate(patients, what)), f"{metric.name}/{model}").value
            for what in (patients.train, release)
        )
        assert worse * (bad - good) > 0.02


def test_a_balanced_release_is_judged_as_the_cohort_it_stands_for(patients):
    """A tenth of the censored rows: the death rate of the rows themselves is far too high."""
    rows = patients.train.rows
    rng = np.random.default_rng(0)
    kept = (rows.labels == 1) | (rng.random(len(rows)) < 0.1)
    release = Release(Rows(rows.values[kept], rows.labels[kept]))
    evaluation = evaluate(patients, release)
    score = named(IntegratedBrier().compute(evaluation), "brier/cox")
    whole = named(IntegratedBrier().compute(evaluate(patients, patients.train)), "brier/cox")
    assert score.value == pytest.approx(whole.value, abs=0.01)
    judged, tested = censored_rows(evaluation), patients.test.rows.values[:, :2]
    naive = _survival_models._cox_survival(
        downstream_models.released_examples(evaluation), _survival_models.released_cox(evaluation)
    )
    unweighted = judged.squared_errors(naive.at(tested, judged.grid)) @ judged.trapezoid
    assert unweighted.mean() > whole.value + 0.008


def test_a_released_risk_is_ranked_but_has_no_brier_score(patients):
    evaluation = evaluate(patients, Release(model=Answers(lambda values: values[:, 0])))
    for score in IntegratedBrier().compute(evaluation).scores:
        assert score.value is None
        assert "a risk only" in score.reason
    first, second = TimeDependentAuc().compute(evaluation).scores
    assert first.value == second.value > 0.7


@pytest.mark.parametrize("metric", METRICS)
def test_a_release_without_events_has_no_score(patients, metric):
    rows = patients.train.rows
    scores = metric().compute(evaluate(patients, Release(Rows(rows.values, 0 * rows.labels))))
    assert [score.value for score in scores.scores] == [None, None]
    assert all("no training row has the event" in score.reason for score in scores.scores)


@pytest.mark.parametrize("metric", METRICS)
def test_constant_features_leave_the_cox_model_absent(patients, metric):
    rows = patients.train.rows
    values = rows.values.copy()
    values[:, :2] = 0.0
    scores = metric().compute(evaluate(patients, Release(Rows(values, rows.labels))))
    assert "constant" in named(scores, f"{metric.name}/cox").reason
    assert named(scores, f"{metric.name}/aft").value is not None


def test_few_test_events_give_no_score():
    dataset = build_dataset(ToySurvival(rows=40))
    with pytest.raises(NotComputable, match="test rows have the event"):
        IntegratedBrier().compute(evaluate(dataset, dataset.train))
