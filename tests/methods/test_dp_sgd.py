"""The model trained directly with DP-SGD, and the subset of real rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from bench import Budget, compose_events, rdp_epsilon, sampled_gaussian
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


# By Opacus ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rate, noise, steps", [(0.01, 1.0, 1000), (0.05, 2.0, 300), (0.2, 6.0, 300)]
)
def test_both_accountants_have_the_same_epsilon(rate, noise, steps) -> None:
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    accountant.history = [(noise, rate, steps)]
    ours = rdp_epsilon(compose_events([(sampled_gaussian(rate, noise), steps)]), 1e-5)
    assert accountant.get_epsilon(1e-5) == pytest.approx(ours, abs=1e-3)


@pytest.mark.parametrize("hidden", [0, 6])
def test_opacus_takes_the_steps_of_the_kernel(hidden) -> None:
    """Without noise and sampling, both engines are the same descent of clipped gradients."""
    data = build_dataset(ToyTable())
    settings = DpSgd(steps=20, expected_batch=1e9, hidden=hidden, engine="opacus")
    network = dp_sgd._Classifier(data.encoder.feature_width, hidden, len(data.schema.classes))
    rows = data.train.rows
    weights = dp_sgd._opacus_weights(settings, network, rows, 1.0, 0.0, np.random.default_rng(3))

    rng = np.random.default_rng(3)
    rng.integers(2**63)
    current = network.initial(rng)
    velocity, mean = np.zeros_like(current), np.zeros_like(current)
    for step in range(20):
        gradients = network.gradients(current, rows)
        norms = np.linalg.norm(gradients, axis=1, keepdims=True)
        total = (gradients * np.minimum(1.0, settings.clip / norms)).sum(axis=0)
        velocity = settings.momentum * velocity + total / len(rows)
        current = current + settings.learning_rate * (1 - settings.momentum) * velocity
        if step >= 10:
            mean += current / 10
    np.testing.assert_allclose(weights, mean, atol=1e-4)


def test_opacus_claims_its_budget_and_proves_nothing() -> None:
    data = build_dataset(ToyTable())
    budget = Budget(1.0, 1e-5)
    private, ledger = open_private(data, budget, SeededNoise(np.random.default_rng(0)))
    state = torch.get_rng_state()
    release = DpSgd(engine="opacus", steps=40).synthesize(
        private, Spec(data.task, None, budget), np.random.default_rng(1)
    )
    assert torch.equal(state, torch.get_rng_state())
    assert release.claim is not None and release.claim.epsilon == 1.0
    assert ledger.proof().reasons == (dp_sgd.OPACUS_REASON,)
    features = data.test.rows.values[:, : data.encoder.feature_width]
    assert roc_auc_score(data.test.rows.labels, release.model.predict(features)[:, 1]) > 0.7


def test_opacus_does_not_train_hazards() -> None:
    data = build_dataset(ToySurvival())
    budget = Budget(1.0, 1e-5)
    private, _ = open_private(data, budget, SeededNoise(np.random.default_rng(0)))
    with pytest.raises(NotApplicable, match="trains classifiers"):
        DpSgd(engine="opacus").synthesize(
            private, Spec(data.task, None, budget), np.random.default_rng(1)
        )
