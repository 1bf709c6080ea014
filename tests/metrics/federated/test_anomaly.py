"""Detection of anomalies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binomtest
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score

from bench.data.dataset import Dataset
from bench.errors import NotComputable
from bench.metrics.federated import anomaly
from bench.metrics.federated.anomaly import AnomalyDetection, fit_autoencoder
from bench.plugins.release import Detector, Release, Rows
from bench.plugins.source import build_dataset
from tests.metrics.helpers import Answers, evaluate, named, release_of
from tests.support.tables import ToyTable


@pytest.fixture(scope="module")
def far() -> Dataset:
    """Two classes whose markers are far apart."""
    return build_dataset(ToyTable(separation=8.0))


def test_four_rows_on_a_line():
    """Rows (t, t): one component; the error of a row is its distance to the line."""
    line = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
    detector = fit_autoencoder(line, np.ones(4))
    assert detector.components.shape == (1, 2)
    errors = detector.predict(np.array([[5.0, 5.0], [1.0, -1.0], [0.0, 2.0]]))
    np.testing.assert_allclose(errors, [0.0, np.sqrt(2), np.sqrt(2)], atol=1e-12)


def test_the_reconstruction_is_that_of_principal_components():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 6)) @ rng.normal(size=(6, 6))
    peer = PCA(n_components=anomaly.EXPLAINED).fit(rows)
    detector = fit_autoencoder(rows, np.ones(300))
    assert len(detector.components) == peer.n_components_
    fresh = rng.normal(size=(50, 6))
    back = peer.inverse_transform(peer.transform(fresh))
    np.testing.assert_allclose(
        detector.predict(fresh), np.linalg.norm(fresh - back, axis=1), atol=1e-9
    )


def test_weights_are_repetitions():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(40, 3)) * [3, 1, 0.2]
    times = rng.integers(1, 4, 40)
    weighted = fit_autoencoder(rows, times.astype(float))
    repeated = fit_autoencoder(np.repeat(rows, times, axis=0), np.ones(times.sum()))
    fresh = rng.normal(size=(20, 3))
    np.testing.assert_allclose(weighted.predict(fresh), repeated.predict(fresh), atol=1e-9)


def test_scores_of_a_released_detector_are_taken_as_they_are(table):
    model = Answers(lambda values: values[:, 1])
    scores = AnomalyDetection().compute(evaluate(table, Release(model=model)))
    marker, label = (table.test.rows.values[:, 1], table.test.rows.labels)
    assert named(scores, "anomaly/auc").value == pytest.approx(roc_auc_score(label, marker))
    validation = table.validation.rows
    usual = validation.values[validation.labels == 0, 1].astype(np.float64)
    flagged = marker > usual.mean() + 2 * usual.std()
    caught = int((flagged & (label == 1)).sum())
    precision, recall = named(scores, "anomaly/precision"), named(scores, "anomaly/recall")
    assert precision.value == caught / flagged.sum()
    assert recall.value == caught / label.sum()
    exact = binomtest(caught, int(label.sum())).proportion_ci(0.95, "exact")
    assert (recall.low, recall.high) == pytest.approx((exact.low, exact.high))
    details = scores.details["anomaly"]
    assert details[["trained", "deviations"]].to_numpy().tolist() == [
        ["released", 2.0],
        ["released", 3.0],
        ["real", 2.0],
        ["real", 3.0],
        ["isolation forest", 2.0],
        ["isolation forest", 3.0],
    ]


@final
@dataclass(frozen=True)
class Marker(Detector):
    """The toy's marker as the score, with a threshold."""

    limit: float

    @property
    def threshold(self) -> float:
        return self.limit

    def predict(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        return np.asarray(values[:, 1], dtype=np.float64)


def test_a_detector_is_judged_by_its_own_threshold(table):
    scores = AnomalyDetection().compute(evaluate(table, Release(model=Marker(0.15))))
    marker, label = (table.test.rows.values[:, 1], table.test.rows.labels)
    flagged = marker > 0.15
    caught = int((flagged & (label == 1)).sum())
    assert named(scores, "anomaly/precision").value == caught / flagged.sum()
    assert named(scores, "anomaly/recall").value == caught / label.sum()
    details = scores.details["anomaly"]
    assert details["trained"].tolist()[:3] == ["released"] * 3
    assert details["threshold"][0] == 0.15 and np.isnan(details["deviations"][0])
    with pytest.raises(NotComputable, match="threshold nan"):
        AnomalyDetection().compute(evaluate(table, Release(model=Marker(np.nan))))


def test_the_forest_on_real_rows_knows_the_normal_class_only(far):
    details = AnomalyDetection().compute(evaluate(far, far.train)).details["anomaly"]
    areas = details.groupby("trained")["auc"].first()
    assert areas["isolation forest"] > 0.9
    rows = far.train.rows
    normal = far.train.rows.values[rows.labels == 0].astype(np.float64)
    # On both classes it would not distinguish the second one so well.
    both = IsolationForest(random_state=0).fit(rows.values.astype(np.float64))
    alone = IsolationForest(random_state=0).fit(normal)
    test = far.test.rows.values.astype(np.float64)
    mixed, apart = (
        roc_auc_score(far.test.rows.labels, -forest.score_samples(test)) for forest in (both, alone)
    )
    assert mixed < apart == pytest.approx(areas["isolation forest"], abs=0.03)
    assert mixed < areas["isolation forest"]


def test_a_class_far_away_is_caught_and_one_alike_is_not(far):
    scores = AnomalyDetection().compute(evaluate(far, far.train))
    assert named(scores, "anomaly/auc").low > 0.9
    null = build_dataset(ToyTable(separation=0.0))
    # The toy's age and smoking still differ a little by class.
    score = named(AnomalyDetection().compute(evaluate(null, null.train)), "anomaly/auc")
    assert abs(score.value - 0.5) < 0.12


def test_only_released_normal_rows_train_the_detector(far):
    rows = far.train.rows
    values = rows.values.copy()
    values[rows.labels == 1] = np.random.default_rng(0).uniform(
        -1, 1, values[rows.labels == 1].shape
    )
    spoilt = AnomalyDetection().compute(evaluate(far, Release(Rows(values, rows.labels))))
    honest = AnomalyDetection().compute(evaluate(far, far.train))
    assert spoilt.scores == honest.scores


def test_the_more_frequent_class_is_normal():
    assert anomaly.normal_class((3, 7)) == 1
    assert anomaly.normal_class((5, 5)) == 0


def test_weights_of_the_release_are_used(far):
    noise = np.random.default_rng(0).uniform(-1, 1, far.train.rows.values.shape)
    values = np.concatenate([far.train.rows.values, noise])
    labels = np.concatenate([far.train.rows.labels, np.zeros(len(noise), dtype=np.int64)])
    weights = np.repeat([1.0, 0.0], len(noise))
    given = AnomalyDetection().compute(evaluate(far, Release(Rows(values, labels, weights))))
    plain = AnomalyDetection().compute(evaluate(far, far.train))
    assert named(given, "anomaly/auc") == named(plain, "anomaly/auc")


def test_absent_cases(table, far):
    two_columns = Answers(lambda values: np.zeros((len(values), 2)))
    with pytest.raises(NotComputable, match="a classifier"):
        AnomalyDetection().compute(evaluate(table, Release(model=two_columns)))
    broken = Answers(lambda values: np.full(len(values), np.nan))
    with pytest.raises(NotComputable, match="NaN"):
        AnomalyDetection().compute(evaluate(table, Release(model=broken)))
    rows = table.train.rows
    sick = Release(Rows(rows.values, np.ones_like(rows.labels)))
    with pytest.raises(NotComputable, match="0 normal rows"):
        AnomalyDetection().compute(evaluate(table, sick))
    same = Release(Rows(np.zeros_like(rows.values), rows.labels))
    with pytest.raises(NotComputable, match="alike"):
        AnomalyDetection().compute(evaluate(table, same))
    nobody = replace(table.validation, rows=table.validation.rows.take(np.arange(0)))
    scores = AnomalyDetection().compute(
        evaluate(replace(table, validation=nobody), release_of(table.train))
    )
    assert "no threshold" in named(scores, "anomaly/precision").reason
    assert "no threshold" in named(scores, "anomaly/recall").reason
    assert named(scores, "anomaly/auc").value is not None
    never = Answers(lambda values: -np.abs(np.arange(len(values)) % 2.0))
    scores = AnomalyDetection().compute(evaluate(table, Release(model=never)))
    assert "above the threshold" in named(scores, "anomaly/precision").reason
    assert named(scores, "anomaly/recall").value == 0.0
    healthy = np.flatnonzero(table.test.rows.labels == 0)
    one = replace(table, test=replace(table.test, rows=table.test.rows.take(healthy)))
    with pytest.raises(NotComputable, match="one class only"):
        AnomalyDetection().compute(evaluate(one, table.train))
