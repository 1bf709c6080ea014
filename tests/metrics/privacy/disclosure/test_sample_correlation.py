"""Correlations of rows and ranks of columns, against numpy and scipy."""

from __future__ import annotations

import numpy as np
import pytest

from bench.data.dataset import Dataset
from bench.errors import NotComputable
from bench.metrics.fidelity.columns import KruskalWallis
from bench.metrics.privacy.disclosure import sample_correlation
from bench.metrics.privacy.disclosure.sample_correlation import (
    SampleCorrelation,
)
from bench.plugins.metric import Evaluation, Scores
from bench.plugins.release import Release, Rows
from tests.metrics.helpers import Answers, evaluate, named


def values(scores: Scores) -> dict[str, float | None]:
    return {score.metric.split("/")[1]: score.value for score in scores.scores}


def correlations(dataset: Dataset, rows: np.ndarray) -> np.ndarray:
    """By numpy's own correlation: released rows by training rows."""
    train = dataset.train.rows.values.astype(np.float64)
    mean, spread = train.mean(axis=0), train.std(axis=0)
    both = np.concatenate([(rows - mean) / spread, (train - mean) / spread])
    matrix: np.ndarray = np.corrcoef(both)[: len(rows), len(rows) :]
    return matrix


def noisy(dataset: Dataset, rows: int, seed: int = 0) -> Rows:
    train, rng = dataset.train.rows, np.random.default_rng(seed)
    made = train.values[:rows] + rng.normal(0, 0.4, (rows, train.values.shape[1]))
    return Rows(made.astype(np.float32), np.asarray(train.labels[:rows]))


@pytest.mark.parametrize("name", ["table", "patients"])
def test_every_pair_is_counted_as_numpy_does(name: str, request: pytest.FixtureRequest) -> None:
    dataset: Dataset = request.getfixturevalue(name)
    rows = noisy(dataset, 70)
    matrix = correlations(dataset, rows.values.astype(np.float64))
    scores = SampleCorrelation().compute(evaluate(dataset, Release(rows)))
    value = values(scores)
    # Single precision may put a pair at the threshold on the other side.
    assert value["below-half"] == pytest.approx((np.abs(matrix) < 0.5).mean(), abs=2 / matrix.size)
    assert value["above-filter"] == (matrix.max(axis=1) > 0.75).mean()
    assert value["closest"] == pytest.approx(np.median(matrix.max(axis=1)), abs=1e-5)


def test_the_histogram_holds_each_pair_once_by_class(table: Dataset) -> None:
    rows = noisy(table, 50)
    scores = SampleCorrelation().compute(evaluate(table, Release(rows)))
    histogram = scores.details["sample-correlation"].query("rows == 'released'")
    assert histogram["same_class"].sum() + histogram["different_class"].sum() == pytest.approx(1.0)
    same = (rows.labels[:, None] == table.train.rows.labels).mean()
    assert histogram["same_class"].sum() == pytest.approx(same)
    matrix = correlations(table, rows.values.astype(np.float64))
    expected, _ = np.histogram(matrix, bins=80, range=(-1.0, 1.0))
    both = (histogram["same_class"] + histogram["different_class"]).to_numpy() * matrix.size
    assert np.abs(both - expected).sum() < 5  # pairs at an edge


def test_training_rows_are_found_by_the_largest_but_not_by_the_share(table: Dataset) -> None:
    value = values(SampleCorrelation().compute(evaluate(table, table.train)))
    assert value["closest"] == pytest.approx(1.0, abs=1e-5)
    assert value["above-filter"] == 1.0
    assert value["below-half"] == pytest.approx(value["below-half-control"], abs=0.05)


def test_control_rows_are_compared_as_released_ones_would_be(table: Dataset) -> None:
    value = values(SampleCorrelation().compute(evaluate(table, table.control)))
    assert value["below-half"] == value["below-half-control"]
    assert value["above-filter"] == value["above-filter-control"]


def test_many_rows_are_sampled(table: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = noisy(table, 200)
    whole = named(
        SampleCorrelation().compute(evaluate(table, Release(rows))), "sample-correlation/below-half"
    )
    monkeypatch.setattr(sample_correlation, "PAIRS_AT_MOST", 100 * len(table.train))
    part = SampleCorrelation().compute(evaluate(table, Release(rows)))
    again = SampleCorrelation().compute(evaluate(table, Release(rows)))
    assert part.scores == again.scores
    half = named(part, "sample-correlation/below-half")
    assert half.value != whole.value
    assert half.value is not None
    assert half.value == pytest.approx(whole.value, abs=0.05)
    assert half.low is not None
    assert half.high is not None
    assert half.low < half.value < half.high


def test_rows_without_weight_do_not_count(table: Dataset) -> None:
    rows = noisy(table, 40)
    weights = np.where(np.arange(40) < 20, 1.0, 0.0)
    first = SampleCorrelation().compute(
        evaluate(table, Release(Rows(rows.values, rows.labels, weights)))
    )
    second = SampleCorrelation().compute(
        evaluate(table, Release(Rows(rows.values[:20], rows.labels[:20])))
    )
    assert first.scores == second.scores


@pytest.mark.parametrize("metric", [SampleCorrelation(), KruskalWallis()])
def test_a_model_has_no_rows(metric: SampleCorrelation | KruskalWallis, table: Dataset) -> None:
    model = Release(model=Answers(lambda rows: np.zeros((len(rows), 2))))
    with pytest.raises(NotComputable, match="a model"):
        metric.compute(Evaluation(table, model, 0))
