"""DP-Kernel: random features and their kernel, the noisy function, its gradient, the generator."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from bench import Budget, InputError, sampled_gaussian
from bench.data.dataset import Dataset
from bench.methods.generative.dp_kernel import DpKernel, random_embedding
from bench.plugins.method import Spec
from bench.plugins.release import Release
from bench.plugins.source import build_dataset
from bench.privacy.ledger import Ledger
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private
from tests.support.tables import ToyImages, ToySurvival, ToyTable

TABLE, SURVIVAL, IMAGES = (
    build_dataset(source)
    for source in (ToyTable(negatives=3000, positives=2000), ToySurvival(), ToyImages())
)


def made(
    method: DpKernel, dataset: Dataset, epsilon: float, ipc: int = 10, seed: int = 0
) -> tuple[Release, Ledger]:
    budget = Budget(epsilon, 1e-5)
    noise = SeededNoise(np.random.default_rng(seed))
    private, ledger = open_private(dataset, budget, noise, check_rows=True)
    rng = np.random.default_rng(seed + 1)
    return method.synthesize(private, Spec(dataset.task, ipc, budget), rng), ledger


def test_inner_products_approach_the_mixture_of_gaussian_kernels() -> None:
    rng = np.random.default_rng(0)
    rows, scales = rng.uniform(-1, 1, (8, 6)).astype(np.float32), (3.0, 8.0, 20.0)
    vectors = random_embedding(6, 60_000, scales, rng).of_rows(rows).astype(np.float64)
    distances = np.square(rows[:, None] - rows[None]).sum(axis=2)
    lengths = np.asarray(scales) * math.sqrt(6 / 784)
    wanted = np.exp(-distances[..., None] / (2 * lengths**2)).mean(axis=2)
    assert np.abs(vectors @ vectors.T - wanted).max() < 0.02
    assert wanted.min() < 0.5
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1.0, abs=1e-5)


def test_the_noise_is_a_gaussian_process_of_the_kernel() -> None:
    """Values of phi(y) u for Gaussian u, over many draws: their covariance is the kernel matrix."""
    rng = np.random.default_rng(1)
    points = rng.uniform(-1, 1, (5, 4)).astype(np.float32)
    paths = []
    for _ in range(3000):
        phi = random_embedding(4, 20, (10.0,), rng).of_rows(points)
        paths.append(phi @ rng.standard_normal(20))
    distances = np.square(points[:, None] - points[None]).sum(axis=2)
    wanted = np.exp(-distances / (2 * 100 * 4 / 784))
    assert np.abs(np.cov(np.array(paths).T) - wanted).max() < 0.12


def test_the_generators_gradient_is_that_of_the_noisy_function() -> None:
    """With the exact mean in place of the noisy one, the loss is another number and gradient."""
    rng = np.random.default_rng(2)
    phi = random_embedding(3, 40, (10.0,), rng)
    noisy = torch.from_numpy(rng.standard_normal(40)).float()
    rows = torch.zeros(6, 3).uniform_(-1, 1, generator=torch.Generator().manual_seed(0))
    rows.requires_grad_(True)
    loss = (phi.of_tensor(rows).mean(dim=0) - noisy).square().sum()
    (gradient,) = torch.autograd.grad(loss, rows)
    step = 1e-2
    for row, column in ((0, 0), (3, 2), (5, 1)):
        ends = []
        for sign in (-1, 1):
            moved = rows.detach().clone()
            moved[row, column] += sign * step
            function = phi.of_tensor(moved) @ noisy
            squared = phi.of_tensor(moved).mean(dim=0).square().sum()
            ends.append(float(squared - 2 * function.mean()))
        assert float(gradient[row, column]) == pytest.approx(
            (ends[1] - ends[0]) / (2 * step), rel=0.05, abs=1e-3
        )


@pytest.mark.parametrize("dataset", [TABLE, SURVIVAL, IMAGES], ids=["table", "survival", "images"])
def test_every_step_is_charged_in_advance(dataset: Dataset) -> None:
    release, ledger = made(DpKernel(features=20, steps=5), dataset, 1.0)
    proof = ledger.proof()
    assert 0.99 < proof.epsilon <= 1.0 and not proof.trust
    assert not any(entry.adaptive for entry in ledger.entries)
    assert release.rows is not None
    classes = len(dataset.schema.classes)
    assert np.bincount(release.rows.labels.astype(int)).tolist() == [10] * classes


def test_a_step_is_one_sampled_gaussian_per_class() -> None:
    method = DpKernel(features=20, steps=3, noise_multiplier=5.0, group_size=40.0)
    _, ledger = made(method, TABLE, 10.0)
    counts = np.bincount(TABLE.train.rows.labels.astype(int))
    budget = Budget(10.0, 1e-5)
    private, _ = open_private(TABLE, budget, SeededNoise(np.random.default_rng(0)))
    events = {entry.event for entry in ledger.entries}
    expected = {
        sampled_gaussian(part.rate(40.0), 5.0) for part in private.partition("class").values()
    }
    assert events == expected and len(counts) == len(expected) == 2


def test_rows_of_a_class_are_like_those_of_the_class() -> None:
    method = DpKernel(features=200, steps=250, batch=100, learning_rate=0.01, scales=(16.0,))
    release, _ = made(method, TABLE, 50.0, ipc=200)
    assert release.rows is not None
    for label in (0, 1):
        own = TABLE.train.rows.values[TABLE.train.rows.labels == label].mean(axis=0)
        other = TABLE.train.rows.values[TABLE.train.rows.labels != label].mean(axis=0)
        ours = release.rows.values[release.rows.labels == label].mean(axis=0)
        assert np.linalg.norm(ours - own) < np.linalg.norm(ours - other)


@pytest.mark.parametrize("wrong", [{"features": 1}, {"scales": ()}, {"scales": (0.0,)}])
def test_parameters_are_checked(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError, match="dp-kernel"):
        DpKernel(**wrong)  # type: ignore[arg-type]
