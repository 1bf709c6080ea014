"""DPMix: sums by hand, labels on the simplex, rows dealt to classes."""

from __future__ import annotations

import numpy as np
import pytest

from bench import Budget
from bench.data.schema import Task
from bench.methods.dpmix import DpMix, deal, to_simplex
from bench.plugins.method import Spec
from bench.plugins.source import build_dataset
from bench.privacy.noise import NoiseSource, SeededNoise
from bench.privacy.opening import open_private
from tests.support.tables import ToyTable

DATASET = build_dataset(ToyTable(negatives=30, positives=20))


class Silent(NoiseSource):
    """Samples the first three rows and adds no noise."""

    def poisson_sample(self, rows: int, rate: float) -> np.ndarray:
        return np.arange(rows) < 3

    def words(self, count: int) -> np.ndarray:
        return np.zeros(count, dtype=np.uint64)

    def normal(self, scale: float, size: int) -> np.ndarray:
        return np.zeros(size, dtype=np.int64)

    def generator(self) -> np.random.Generator:
        return np.random.default_rng(0)


def test_a_mixture_is_the_sum_of_the_sampled_rows_over_the_expected_number() -> None:
    private, _ = open_private(DATASET, Budget(1.0, 1e-5), Silent())
    spec = Spec(Task.CLASSIFICATION, 2, private.budget)
    made = DpMix(group_size=4.0).synthesize(private, spec, np.random.default_rng(0)).rows
    first = DATASET.train.rows.take(np.arange(3))
    assert made.values == pytest.approx(np.tile(first.values.sum(axis=0) / 4, (4, 1)), abs=1e-6)
    shares = np.bincount(first.labels, minlength=2) / 4
    assert made.soft_labels == pytest.approx(np.tile(to_simplex(shares[None]), (4, 1)), abs=1e-6)
    assert made.labels.tolist() == [0, 0, 1, 1]


def test_features_and_labels_have_the_same_noise_relative_to_their_sensitivity() -> None:
    private, _ = open_private(DATASET, None, SeededNoise(np.random.default_rng(0)))
    method = DpMix(group_size=1e-6, noise_multiplier=1.5)
    spec = Spec(Task.CLASSIFICATION, 1500, None)
    made = method.synthesize(private, spec, np.random.default_rng(0)).rows
    # A sample of almost never a row: what is left is noise, of scale s sqrt(2) |x|_max / L.
    expected = 1.5 * np.sqrt(2) * DATASET.encoder.max_norm / 1e-6
    assert made.values.std(axis=0) == pytest.approx(np.full(6, expected), rel=0.06)


def test_every_row_may_enter_every_mixture_and_pays_for_it() -> None:
    private, ledger = open_private(
        DATASET, Budget(1.0, 1e-5), SeededNoise(np.random.default_rng(0))
    )
    spec = Spec(Task.CLASSIFICATION, 5, private.budget)
    DpMix().synthesize(private, spec, np.random.default_rng(0))
    (entry,) = ledger.entries
    assert entry.path == (("split", "train"),)  # all training rows, no part of them
    assert ledger.proof().epsilon <= 1.0


def test_points_are_projected_onto_the_simplex() -> None:
    points = np.array([[0.2, 0.3, 0.5], [2.0, 0.0, -1.0], [0.6, 0.6, -0.5], [-1.0, -1.0, -1.0]])
    nearest = [[0.2, 0.3, 0.5], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [1 / 3] * 3]
    assert to_simplex(points) == pytest.approx(np.array(nearest))


def test_no_probability_vector_is_nearer_than_the_projection() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(20, 4))
    others = rng.dirichlet(np.ones(4), 2000)
    distances = np.linalg.norm(points - to_simplex(points), axis=1)
    best = np.linalg.norm(points[:, None] - others[None], axis=2).min(axis=1)
    assert (distances <= best + 1e-9).all()


def test_rows_are_dealt_to_the_class_they_exceed_most() -> None:
    scores = np.array([[0.9, 0.1], [0.8, 0.0], [0.7, 0.6], [0.2, 0.5]])
    assert deal(scores, (2, 2)).tolist() == [0, 0, 1, 1]
    assert deal(scores, (3, 1)).tolist() == [0, 0, 0, 1]
    assert deal(scores, (0, 4)).tolist() == [1, 1, 1, 1]
