"""The model trained directly with DP-SGD, and the subset of real rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from bench import Budget
from bench.data.dataset import Split
from bench.data.encoder import EncodedRows
from bench.data.schema import Task
from bench.errors import NotApplicable
from bench.methods import dp_sgd
from bench.methods.dp_sgd import DpSgd
from bench.methods.subset import Subset
from bench.plugins.method import Spec
from bench.plugins.source import build_dataset
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private
from tests.support.tables import ToySurvival, ToyTable

RNG = np.random.default_rng(0)


def rows(width: int, classes: int, count: int = 6) -> EncodedRows:
    return EncodedRows(
        RNG.uniform(-1, 1, (count, width)),
        RNG.integers(0, classes, count),
        np.zeros(count, dtype=np.int64),
        RNG.random(count),
    )


def differences(function, weights: np.ndarray, step: float = 1e-6) -> np.ndarray:
    """Central differences of one number per row."""
    shifts = np.eye(len(weights)) * step
    return np.column_stack(
        [(function(weights + s) - function(weights - s)) / (2 * step) for s in shifts]
    )


@pytest.mark.parametrize("hidden", [0, 4])
def test_gradients_of_the_classifier_are_those_of_the_log_likelihood(hidden: int) -> None:
    network = dp_sgd._Classifier(5, hidden, 3)
    data = rows(5, 3)
    weights = RNG.normal(size=len(network.initial(RNG)))

    def log_likelihood(at: np.ndarray) -> np.ndarray:
        chances = network.trained(at).predict(data.values)
        return np.log(chances[np.arange(len(data)), data.labels])

    expected = differences(log_likelihood, weights)
    assert network.gradients(weights, data) == pytest.approx(expected, abs=1e-7)


def test_gradients_of_the_hazard_are_those_of_the_log_likelihood() -> None:
    """The likelihood is computed the long way: log hazard at the event, minus the integral."""
    network = dp_sgd._PiecewiseHazard(3)
    data = rows(4, 2)
    weights = RNG.normal(size=8 + 3)

    def log_likelihood(at: np.ndarray) -> np.ndarray:
        values = []
        for row, label in zip(data.values, data.labels, strict=True):
            share = (row[3] + 1) / 2
            hazards = np.exp(at[:8] + row[:3] @ at[8:])
            edges = np.linspace(0, 1, 9)
            inside = np.maximum(0, np.minimum(share, edges[1:]) - edges[:-1])
            piece = np.searchsorted(edges, share, side="right") - 1
            values.append(label * np.log(hazards[piece]) - inside @ hazards)
        return np.array(values)

    expected = differences(log_likelihood, weights)
    assert network.gradients(weights, data) == pytest.approx(expected, abs=1e-6)


def test_with_a_budget_too_large_to_matter_it_is_logistic_regression() -> None:
    dataset = build_dataset(ToyTable(negatives=1500, positives=1500))
    private, _ = open_private(dataset, Budget(1e3, 1e-5), SeededNoise(np.random.default_rng(0)))
    method = DpSgd(steps=400, clip=10.0, learning_rate=20.0)
    release = method.synthesize(private, Spec(Task.CLASSIFICATION, None, None), RNG)
    test = dataset.test.rows
    train = dataset.train.rows
    plain = LogisticRegression(C=1e6, max_iter=1000).fit(train.values, train.labels)
    ours, theirs = release.model.predict(test.values), plain.predict_proba(test.values)
    assert np.abs(ours - theirs).mean() < 0.02


def test_with_a_budget_too_large_to_matter_the_hazard_ratios_are_the_true_ones() -> None:
    dataset = build_dataset(ToySurvival(rows=3000))
    private, ledger = open_private(
        dataset, Budget(1e3, 1e-5), SeededNoise(np.random.default_rng(0))
    )
    release = DpSgd(clip=20.0).synthesize(private, Spec(Task.SURVIVAL, None, private.budget), RNG)
    risk, arm = release.model.predict(np.eye(2))
    # Encoded, the risk spans [-1, 1] for [-4, 4], and the arm is -1 or 1.
    assert risk == pytest.approx(4 * 0.8, rel=0.1)
    assert arm == pytest.approx(-0.2, abs=0.1)
    assert ledger.proof().epsilon <= 1e3


def test_a_subset_holds_training_rows_and_repeats_small_classes() -> None:
    dataset = build_dataset(ToyTable(negatives=300, positives=30))
    private, ledger = open_private(dataset, None, SeededNoise(np.random.default_rng(0)))
    release = Subset().synthesize(private, Spec(Task.CLASSIFICATION, 50, None), RNG)
    assert np.bincount(release.rows.labels).tolist() == [50, 50]
    real = {row.tobytes() for row in dataset.train.rows.values}
    assert all(row.tobytes() in real for row in release.rows.values)
    # 50 of one class, and all of the other, of which there are fewer.
    few = dataset.training_class_counts[1]
    assert few < 50 and len({row.tobytes() for row in release.rows.values}) == 50 + few
    assert ledger.proof().epsilon == np.inf


def test_no_training_row_leaves_nothing_to_draw_a_subset_from() -> None:
    dataset = build_dataset(ToyTable())
    nobody = Split(dataset.train.frame[:0], dataset.train.rows.take(np.arange(0)))
    private, _ = open_private(
        replace(dataset, train=nobody), None, SeededNoise(np.random.default_rng(0))
    )
    with pytest.raises(NotApplicable, match="there are none"):
        Subset().synthesize(private, Spec(Task.CLASSIFICATION, 50, None), RNG)
