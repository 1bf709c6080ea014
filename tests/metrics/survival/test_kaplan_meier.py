"""Agreement of survival curves, of rows and of predictions."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from lifelines import KaplanMeierFitter
from lifelines.exceptions import StatisticalWarning

from bench.errors import NotComputable
from bench.metrics.survival.kaplan_meier import KaplanMeier, PredictedSurvival
from bench.plugins.metric import Direction
from bench.plugins.registry import build_source
from bench.plugins.release import Release, Rows
from bench.plugins.source import build_dataset
from tests.metrics.helpers import Answers, evaluate, named, release_of
from tests.support.real_data import real_folder


def _balanced(dataset, seed=0, share=0.2):
    """All events, and a part of the censored rows."""
    rows = dataset.train.rows
    rng = np.random.default_rng(seed)
    kept = (rows.labels == 1) | (rng.random(len(rows)) < share)
    return Rows(rows.values[kept], rows.labels[kept])


def _shorter(dataset, factor):
    """Every released time is a part of the real one."""
    rows = dataset.train.rows
    values = rows.values.copy()
    values[:, -1] = factor * (values[:, -1] + 1) - 1
    return Release(Rows(values, rows.labels))


def _lifelines(dataset, rows, weights, grid):
    times = dataset.encoder.decode(rows.values, rows.labels)["months"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StatisticalWarning)  # weights need not be whole numbers
        fitted = KaplanMeierFitter().fit(times, rows.labels, weights=weights)
    return fitted.predict(grid).to_numpy()


def test_the_training_rows_agree_with_themselves(patients):
    scores = KaplanMeier().compute(evaluate(patients, patients.train))
    for name in ("km/gap", "km/area"):
        score = named(scores, name)
        assert score.value == score.low == 0.0
        assert 0 < score.high < 0.06
    assert named(scores, "km/follow-up").value == 1.0
    p_value = named(scores, "km/log-rank-p")
    assert p_value.value == pytest.approx(1.0)
    assert p_value.direction is Direction.NEUTRAL


def test_fresh_rows_agree_and_shorter_times_do_not(patients):
    fresh = KaplanMeier().compute(evaluate(patients, patients.test))
    wrong = KaplanMeier().compute(evaluate(patients, _shorter(patients, 0.5)))
    for name in ("km/gap", "km/area"):
        assert named(fresh, name).low == 0.0
        assert named(wrong, name).low > named(fresh, name).high
    assert named(fresh, "km/log-rank-p").value > 0.05
    assert named(wrong, "km/log-rank-p").value < 1e-6
    assert named(wrong, "km/follow-up").value < 0.6


def test_gap_and_area_are_those_of_the_curves_of_lifelines(patients):
    rows = patients.test.rows
    scores = KaplanMeier().compute(evaluate(patients, patients.test))
    times = {
        name: patients.encoder.decode(split.rows.values, split.rows.labels)["months"].to_numpy()
        for name, split in (("real", patients.train), ("released", patients.test))
    }
    horizon = min(np.sort(times["real"])[-10], times["released"].max())
    grid = np.unique(np.concatenate([[0.0], *times.values()]))
    grid = grid[grid <= horizon]
    ones = np.ones(len(patients.train))
    weights = np.where(
        rows.labels == 1,
        patients.train.rows.labels.mean() / rows.labels.mean(),
        (1 - patients.train.rows.labels.mean()) / (1 - rows.labels.mean()),
    )
    released = _lifelines(patients, rows, weights, grid)
    differences = np.abs(released - _lifelines(patients, patients.train.rows, ones, grid))
    assert named(scores, "km/gap").value == pytest.approx(differences.max(), abs=1e-9)
    area = np.diff(np.append(grid, horizon)) @ differences / horizon
    assert named(scores, "km/area").value == pytest.approx(area, abs=1e-9)


def test_a_balanced_release_is_weighted_to_the_declared_shares(patients):
    """Without weights the curve falls much faster; with weights it is that of the real rows."""
    rows = _balanced(patients)
    scores = KaplanMeier().compute(evaluate(patients, Release(rows)))
    assert named(scores, "km/gap").low < 0.01 < 0.1 > named(scores, "km/gap").value
    assert named(scores, "km/log-rank-p").value > 0.05
    grid = np.linspace(0, 100, 50)
    plain = _lifelines(patients, rows, np.ones(len(rows)), grid)
    real = _lifelines(patients, patients.train.rows, np.ones(len(patients.train)), grid)
    assert np.abs(plain - real).max() > 2 * named(scores, "km/gap").value


def test_arbitrary_censoring_times_are_seen(patients):
    """Weights correct the shares, not the times of the censored rows."""
    rows = _balanced(patients)
    values = rows.values.copy()
    values[rows.labels == 0, -1] = -0.95
    scores = KaplanMeier().compute(evaluate(patients, Release(Rows(values, rows.labels))))
    assert named(scores, "km/gap").low > 0.1


def test_weights_of_the_release_count_as_copies(patients):
    rows = patients.test.rows
    counts = 1 + np.arange(len(rows)) % 3
    weighted = KaplanMeier().compute(
        evaluate(patients, release_of(patients.test, weights=counts.astype(float)))
    )
    copied = Rows(np.repeat(rows.values, counts, axis=0), np.repeat(rows.labels, counts))
    repeated = KaplanMeier().compute(evaluate(patients, Release(copied)))
    for name in ("km/gap", "km/area"):
        assert named(weighted, name).value == pytest.approx(named(repeated, name).value, abs=1e-9)


def test_the_stored_curves_are_those_that_were_compared(patients):
    table = KaplanMeier().compute(evaluate(patients, patients.train)).details["km"]
    assert table.iloc[0].tolist() == [0.0, 1.0, 1.0]
    np.testing.assert_array_equal(table["real"], table["released"])
    assert (table["real"].diff().dropna() <= 0).all()


def test_curves_of_models_agree_for_good_rows_and_not_for_bad_ones(patients):
    good = PredictedSurvival().compute(evaluate(patients, patients.test))
    bad = PredictedSurvival().compute(evaluate(patients, _shorter(patients, 0.4)))
    for model in ("cox", "aft"):
        for name in ("gap", "area", "observed-area"):
            output = f"predicted-km/{model}-{name}"
            score = named(good, output)
            assert score.low <= score.value <= score.high
            assert score.high < named(bad, output).value
    same = PredictedSurvival().compute(evaluate(patients, patients.train))
    assert named(same, "predicted-km/cox-gap").value == pytest.approx(0, abs=1e-12)


def test_predicted_curves_of_a_balanced_release_are_those_of_the_real_rows(patients):
    scores = PredictedSurvival().compute(evaluate(patients, Release(_balanced(patients))))
    assert named(scores, "predicted-km/cox-area").value < 0.02
    assert named(scores, "predicted-km/cox-observed-area").value < 0.05


def test_the_mean_cox_curve_follows_the_rows_it_was_fitted_to(patients):
    """On its own rows Breslow's hazard makes the expected events equal to the observed ones."""
    table = PredictedSurvival().compute(evaluate(patients, patients.train)).details["predicted-km"]
    assert np.abs(table["cox-real"] - table["observed"]).max() < 0.08
    assert table["cox-real"].iloc[0] == table["observed"].iloc[0] == 1.0


def test_what_has_no_curve_is_absent_with_the_reason(patients):
    rows = patients.train.rows
    nobody = Release(Rows(rows.values, 0 * rows.labels))
    with pytest.raises(NotComputable, match="no training row has the event"):
        KaplanMeier().compute(evaluate(patients, nobody))
    for score in PredictedSurvival().compute(evaluate(patients, nobody)).scores:
        assert score.value is None
        assert "no training row has the event" in score.reason
    model = Release(model=Answers(lambda values: values[:, 0]))
    with pytest.raises(NotComputable, match="a model, not rows"):
        KaplanMeier().compute(evaluate(patients, model))
    for score in PredictedSurvival().compute(evaluate(patients, model)).scores:
        assert "a risk only" in score.reason
    values = rows.values.copy()
    values[:, -1] = -1.0
    with pytest.raises(NotComputable, match="every released time is 0"):
        KaplanMeier().compute(evaluate(patients, Release(Rows(values, rows.labels))))


def test_events_alone_still_have_a_curve(patients):
    """The status that the release lacks cannot be weighted up."""
    rows = patients.train.rows
    kept = rows.labels == 1
    release = Release(Rows(rows.values[kept], rows.labels[kept]))
    assert named(KaplanMeier().compute(evaluate(patients, release)), "km/gap").low > 0.1


def test_real_rows_of_seer_agree_with_each_other(monkeypatch):
    real_folder("seer_breast", monkeypatch)
    dataset = build_dataset(build_source("seer-breast"))
    scores = KaplanMeier().compute(evaluate(dataset, dataset.test))
    assert named(scores, "km/gap").value < 0.03
    assert named(scores, "km/area").value < 0.01
    assert named(scores, "km/log-rank-p").value > 0.05
