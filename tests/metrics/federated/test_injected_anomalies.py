"""Detection of injected anomalies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binomtest, chisquare
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score

from bench.data.dataset import Dataset
from bench.data.encoder import Encoder
from bench.data.schema import Categorical, Numeric, Role, Schema, Task
from bench.errors import NotComputable
from bench.metrics.federated import anomaly, injected_anomalies
from bench.metrics.federated.injected_anomalies import InjectedAnomalies, injected, recombined
from bench.plugins.release import Detector, Release, Rows
from bench.plugins.source import build_dataset
from tests.metrics.helpers import Answers, evaluate, named, release_of
from tests.support.tables import ToyTable


@final
@dataclass(frozen=True)
class Distance(Detector):
    """How far a row lies from a point; flagged beyond `limit`."""

    limit: float
    point: float = 0.0

    @property
    def threshold(self) -> float:
        return self.limit

    def predict(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        return np.linalg.norm(np.asarray(values, dtype=np.float64) - self.point, axis=1)


@pytest.fixture(scope="module")
def toy() -> Dataset:
    return build_dataset(ToyTable())


def test_anomalies_are_legal_rows_that_differ_in_a_share_of_the_columns():
    columns = (
        *(Numeric(name=f"n{n}", low=0, high=3, integer=True) for n in range(8)),
        Categorical(name="b", categories=("no", "yes")),
        Categorical(name="c", categories=("x", "y", "z")),
        Categorical(name="label", categories=("0", "1"), role=Role.TARGET),
    )
    encoder = Encoder(Schema(columns, Task.CLASSIFICATION))
    # A row whose numbers are no legal integer, so that what was drawn anew can be told.
    start = np.array([[0.1] * 8 + [-1.0, 1.0, 0.0, 0.0]])
    rows = injected(encoder, start, 4000, np.random.default_rng(0))
    numbers = rows[:, :8]
    anew = numbers != 0.1
    assert np.allclose(np.unique(numbers[anew]), [-1, -1 / 3, 1 / 3, 1])
    assert chisquare(np.unique(numbers[anew], return_counts=True)[1]).pvalue > 1e-4
    assert set(np.unique(rows[:, 8])) == {-1.0, 1.0}
    assert (rows[:, 9:].sum(axis=1) == 1).all() and set(np.unique(rows[:, 9:])) == {0.0, 1.0}
    # 20% of 10 columns: two of them, each column as often as any other.
    assert anew.sum(axis=1).max() == 2
    assert anew.mean() == pytest.approx(0.2, abs=0.01)
    assert chisquare(anew.sum(axis=0)).pvalue > 1e-4
    # Half of what is drawn anew in a binary column, two thirds in one of three, differs.
    assert (rows[:, 8] == 1).mean() == pytest.approx(0.2 / 2, abs=0.02)
    assert (rows[:, 9] == 0).mean() == pytest.approx(0.2 * 2 / 3, abs=0.02)


def test_at_least_one_column_is_drawn(toy, monkeypatch):
    monkeypatch.setattr(injected_anomalies, "REDRAWN", 0.01)
    start = toy.test.rows.values[:1]
    rows = injected(toy.encoder, start, 400, np.random.default_rng(0))
    assert rows.shape == (400, toy.encoder.feature_width)
    # One of four columns: two numbers always change, a binary one half, three-way two thirds.
    changed = (np.abs(rows - start) > 1e-6).any(axis=1).mean()
    assert changed == pytest.approx((1 + 1 + 1 / 2 + 2 / 3) / 4, abs=0.07)


def test_recombined_rows_have_the_values_of_other_rows_column_by_column():
    columns = (
        *(Numeric(name=f"n{n}", low=0, high=9) for n in range(4)),
        Categorical(name="c", categories=("x", "y", "z")),
        Categorical(name="label", categories=("0", "1"), role=Role.TARGET),
    )
    encoder = Encoder(Schema(columns, Task.CLASSIFICATION))
    rng = np.random.default_rng(0)
    # Every number occurs once, so that the row it came from can be told; categories follow the row.
    start = np.column_stack([rng.permutation(300).reshape(3, 100).T / 300] * 2)[:, :4]
    start = np.column_stack([start, np.eye(3)[np.arange(100) % 3]])
    rows = recombined(encoder, start, 20_000, np.random.default_rng(1))
    donor = np.stack([np.searchsorted(np.sort(start[:, n]), rows[:, n]) for n in range(4)], axis=1)
    origin = np.stack([np.argsort(start[:, n])[donor[:, n]] for n in range(4)], axis=1)
    assert all(np.isin(rows[:, n], start[:, n]).all() for n in range(4))
    assert set(map(tuple, rows[:, 4:])) == set(map(tuple, np.eye(3)))
    # One of five columns, each as often: a row's other numbers are of one and the same row.
    strange = [max(np.bincount(row)) for row in origin]
    assert set(strange) == {3, 4}
    assert np.mean(np.array(strange) == 3) == pytest.approx(4 / 5 * 99 / 100, abs=0.01)


def test_recombined_anomalies_are_harder_than_those_of_the_schema(toy):
    scores = InjectedAnomalies().compute(evaluate(toy, toy.train))
    table = scores.details["injected-scores"]
    forest = named(scores, "injected/forest")
    flags = table["anomaly"].to_numpy() == 1
    assert forest.value == pytest.approx(roc_auc_score(flags, table["isolation_forest"]))
    assert named(scores, "injected/auc").value / forest.value == pytest.approx(
        named(scores, "injected/auc-ratio").value
    )
    hard = named(scores, "injected/forest-recombined")
    assert hard.low <= hard.value <= hard.high < forest.value


def test_numbers_of_a_released_detector_are_those_of_its_own_threshold(toy):
    scores = InjectedAnomalies().compute(evaluate(toy, Release(model=Distance(1.5))))
    table = scores.details["injected-scores"]
    labels, distances = table["anomaly"].to_numpy(), table["released"].to_numpy()
    usual = toy.test.rows.values[toy.test.rows.labels == 0]
    assert (labels == 0).sum() == len(usual) and (labels == 1).sum() == 500
    np.testing.assert_allclose(distances[labels == 0], np.linalg.norm(usual, axis=1), rtol=1e-6)
    assert named(scores, "injected/auc").value == pytest.approx(roc_auc_score(labels, distances))
    flagged = distances > 1.5
    caught, alarms = flagged[labels == 1], flagged[labels == 0]
    recall = named(scores, "injected/recall")
    assert recall.value == caught.mean()
    exact = binomtest(int(caught.sum()), 500).proportion_ci(0.95, "exact")
    assert (recall.low, recall.high) == pytest.approx((exact.low, exact.high))
    # Bayes: 2% of all rows are anomalies.
    precision = named(scores, "injected/precision")
    true, false = 0.02 * caught.mean(), 0.98 * alarms.mean()
    assert precision.value == pytest.approx(true / (true + false))
    assert precision.low is not None and precision.high is not None
    assert precision.low < precision.value < precision.high
    forest = roc_auc_score(labels, table["isolation_forest"])
    assert named(scores, "injected/auc-ratio").value == pytest.approx(
        roc_auc_score(labels, distances) / forest
    )
    details = scores.details["injected-anomalies"]
    assert details["trained"].tolist() == [
        *["released"] * 3,
        *["real"] * 2,
        *["isolation forest"] * 2,
    ]
    assert details["deviations"].isna().tolist() == [True] + [False] * 6
    assert details["threshold"][0] == 1.5


def test_the_forest_is_that_of_another_library(toy):
    rows = toy.train.rows.values[toy.train.rows.labels == 0]
    forest = anomaly.fit_forest(rows, np.random.default_rng(0))
    seed = int(np.random.default_rng(0).integers(2**32))
    peer = IsolationForest(max_samples=min(256, len(rows)), random_state=seed).fit(
        rows.astype(np.float64)
    )
    fresh = toy.test.rows.values.astype(np.float64)
    np.testing.assert_array_equal(forest.predict(fresh), -peer.score_samples(fresh))
    assert forest.predict(fresh[:0]).shape == (0,)
    with pytest.raises(NotComputable, match="1 real rows"):
        anomaly.fit_forest(rows[:1], np.random.default_rng(0))


def test_released_real_rows_score_as_the_real_detector(toy):
    scores = InjectedAnomalies().compute(evaluate(toy, toy.train))
    table = scores.details["injected-scores"]
    np.testing.assert_allclose(table["released"], table["real"])
    assert named(scores, "injected/auc").value > 0.55


def test_a_useless_release_is_at_one_half_and_a_spoilt_one_below_the_real(toy):
    blind = Answers(lambda values: np.zeros(len(values)))
    scores = InjectedAnomalies().compute(evaluate(toy, Release(model=blind)))
    assert named(scores, "injected/auc").value == 0.5
    assert named(scores, "injected/auc-recombined").value == 0.5
    assert "above the threshold" in named(scores, "injected/precision").reason
    assert named(scores, "injected/recall").value == 0.0
    rows = toy.train.rows
    noise = np.random.default_rng(0).uniform(-1, 1, rows.values.shape)
    spoilt = InjectedAnomalies().compute(evaluate(toy, Release(Rows(noise, rows.labels))))
    honest = InjectedAnomalies().compute(evaluate(toy, toy.train))
    assert named(spoilt, "injected/auc").value < named(honest, "injected/auc").value


def test_the_seed_decides_which_anomalies_are_injected(toy):
    first, again, other = (
        InjectedAnomalies().compute(evaluate(toy, toy.train, seed)) for seed in (0, 0, 1)
    )
    assert first.scores == again.scores != other.scores
    # The reference is the same for all: it depends on the rows alone.
    thresholds = [found.details["injected-anomalies"]["threshold"][4] for found in (first, other)]
    assert thresholds[0] == thresholds[1]


def test_a_large_test_set_has_two_percent(toy, monkeypatch):
    monkeypatch.setattr(injected_anomalies, "AT_LEAST", 1)
    scores = InjectedAnomalies().compute(evaluate(toy, toy.train))
    table = scores.details["injected-scores"]
    usual = int((toy.test.rows.labels == 0).sum())
    assert table["anomaly"].sum() == round(usual * 0.02 / 0.98)


def test_absent_cases(toy):
    classifier = Answers(lambda values: np.zeros((len(values), 2)))
    with pytest.raises(NotComputable, match="a classifier"):
        InjectedAnomalies().compute(evaluate(toy, Release(model=classifier)))
    with pytest.raises(NotComputable, match="threshold inf"):
        InjectedAnomalies().compute(evaluate(toy, Release(model=Distance(np.inf))))
    nobody = replace(toy.validation, rows=toy.validation.rows.take(np.arange(0)))
    without = replace(toy, validation=nobody)
    scores = InjectedAnomalies().compute(evaluate(without, release_of(toy.train)))
    assert "no threshold" in named(scores, "injected/precision").reason
    assert "no threshold" in named(scores, "injected/recall").reason
    alone = InjectedAnomalies().compute(evaluate(without, Release(model=Distance(1.5))))
    assert named(alone, "injected/recall").value is not None
    sick = np.flatnonzero(toy.test.rows.labels == 1)
    rare = replace(toy, test=replace(toy.test, rows=toy.test.rows.take(sick)))
    with pytest.raises(NotComputable, match="nothing to inject into"):
        InjectedAnomalies().compute(evaluate(rare, toy.train))
