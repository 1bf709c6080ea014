"""DP-MERF: the noisy embedding and the generator."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bench import Budget
from bench.data.dataset import Dataset
from bench.methods._shared.generator import Generator, Training
from bench.methods.generative.dp_merf import DpMerf, discrepancy, sum_kernel
from bench.plugins.method import Spec
from bench.plugins.release import Release
from bench.plugins.source import build_dataset
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private
from tests.support.tables import ToyTable

TABLE = build_dataset(ToyTable(negatives=3000, positives=2000))


def released(method: DpMerf, epsilon: float, ipc: int = 400, data: Dataset = TABLE) -> Release:
    budget = Budget(epsilon, 1e-5)
    private, ledger = open_private(data, budget, SeededNoise(np.random.default_rng(0)))
    release = method.synthesize(private, Spec(data.task, ipc, budget), np.random.default_rng(1))
    assert ledger.proof().epsilon <= epsilon
    return release


def test_a_generator_matches_a_noiseless_embedding() -> None:
    rows = TABLE.train.rows
    embedding = sum_kernel(TABLE.encoder, 100, 0.75, np.random.default_rng(0))
    means = [embedding.of_rows(rows.values[rows.labels == label]).mean(axis=0) for label in (0, 1)]
    loss = discrepancy(embedding, torch.tensor(np.array(means)))
    generator = Generator(TABLE.encoder, 5, (50, 50), torch.Generator().manual_seed(0))
    labels = torch.arange(2).repeat_interleave(2000)
    before = float(loss(generator.rows(labels).detach(), labels))
    generator.train(loss, Training(400, 500, 0.01))
    after = float(loss(generator.rows(labels).detach(), labels))
    assert after < 0.01 < 0.1 < before


def test_rows_of_the_generator_lie_within_the_schema() -> None:
    generator = Generator(TABLE.encoder, 5, (20,), torch.Generator().manual_seed(0))
    soft = generator.rows(torch.tensor([0, 1, 1])).detach().numpy()
    assert (np.abs(soft[:, :3]) <= 1).all()
    assert soft[:, 3:].sum(axis=1) == pytest.approx(np.ones(3), abs=1e-6)
    values, labels = generator.draw((4, 7), np.random.default_rng(0))
    assert np.bincount(labels).tolist() == [4, 7]
    assert set(values[:, 2]) <= {-1.0, 1.0}
    assert sorted(set(values[:, 3:].ravel())) == [0.0, 1.0]
    assert values[:, 3:].sum(axis=1).tolist() == [1.0] * 11


def test_categories_are_drawn_with_the_generators_probabilities() -> None:
    generator = Generator(TABLE.encoder, 5, (20,), torch.Generator().manual_seed(0))
    chances = generator.rows(torch.zeros(20_000, dtype=torch.int64)).detach().numpy()
    drawn, _ = generator.draw((20_000, 0), np.random.default_rng(0))
    assert drawn[:, 2:].mean(axis=0) == pytest.approx(chances[:, 2:].mean(axis=0), abs=0.02)


@pytest.mark.parametrize("kernel", ["sum", "joint"])
def test_with_a_budget_too_large_to_matter_the_means_of_each_class_come_back(kernel: str) -> None:
    method = DpMerf(features=200, steps=400, kernel=kernel)  # type: ignore[arg-type]
    made = released(method, 1e3).rows
    rows = TABLE.train.rows
    for label in (0, 1):
        real = rows.values[rows.labels == label].mean(axis=0)
        ours = made.values[made.labels == label].mean(axis=0)
        assert ours == pytest.approx(real, abs=0.12)


def test_the_noise_is_that_of_one_gaussian_mechanism() -> None:
    """Analytic Gaussian mechanism, epsilon 1, delta 1e-5: multiplier 3.7307 (Balle and Wang)."""
    release = released(DpMerf(features=20, steps=2), 1.0)
    assert release.notes["noise_multiplier"] == pytest.approx(3.7307, abs=0.01)
