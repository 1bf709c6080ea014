"""DP-NTK: tangent features, the kernel that they approach, the noisy embedding, the generator."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from bench import Budget, InputError, gaussian
from bench.data.dataset import Dataset
from bench.methods.generative.dp_ntk import DpNtk, TangentFeatures
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


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def made(
    method: DpNtk, dataset: Dataset, epsilon: float, ipc: int = 10, seed: int = 0
) -> tuple[Release, Ledger]:
    budget = Budget(epsilon, 1e-5)
    noise = SeededNoise(np.random.default_rng(seed))
    private, ledger = open_private(dataset, budget, noise, check_rows=True)
    rng = np.random.default_rng(seed + 1)
    return method.synthesize(private, Spec(dataset.task, ipc, budget), rng), ledger


# Features -----------------------------------------------------------------------------------------


def test_whole_features_are_the_gradient_that_autograd_computes() -> None:
    features = TangentFeatures.draw(3, 7, 4, False, seeded())
    rows = torch.randn(5, 3, generator=seeded(1))
    weights, outer = features.weights.clone(), features.outer.clone()
    for row, ours in zip(rows, features.gradients(rows), strict=True):
        parameters = (weights.requires_grad_(True), outer.requires_grad_(True))
        hidden = torch.relu(torch.cat([row, torch.ones(1)]) @ weights)
        output = math.sqrt(2 / 7) * (hidden * outer).sum()
        inner, last = torch.autograd.grad(output, parameters)
        assert torch.allclose(ours, torch.cat([inner.T.flatten(), last]), atol=1e-6)


@pytest.mark.parametrize("directions", [1, 3, 5])
def test_inner_products_approach_the_neural_tangent_kernel(directions: int) -> None:
    """The closed form of one hidden layer, by the arc-cosine kernels of Cho and Saul (2009)."""
    rows = torch.rand(6, 4, generator=seeded(1)) * 2 - 1
    features = TangentFeatures.draw(4, 60_000, directions, False, seeded(2)).gradients(rows)
    inputs = torch.cat([rows, torch.ones(6, 1)], dim=1).double()
    norms = inputs.norm(dim=1)
    lengths = norms[:, None] * norms[None]
    cosines = (inputs @ inputs.T / lengths).clamp(-1, 1)
    angles = torch.arccos(cosines)
    wanted = lengths * (2 * (math.pi - angles) * cosines + torch.sin(angles)) / math.pi
    ours = (features @ features.T).double()
    assert torch.allclose(ours, wanted, atol=0.05 * float(wanted.max()))
    # The off-diagonal differences are larger than the tolerance: the test can fail.
    assert float(wanted.max() - wanted.min()) > 0.3 * float(wanted.max())


@pytest.mark.parametrize("dataset", [TABLE, SURVIVAL, IMAGES], ids=["table", "survival", "images"])
def test_every_row_has_norm_one(dataset: Dataset) -> None:
    width = dataset.encoder.width
    image = dataset.schema.image_shape is not None
    features = TangentFeatures.draw(width, 50, 1, image, seeded())
    vectors = features.at_encoded(dataset.train.rows)
    assert vectors.shape == (len(dataset.train.rows.values), 100) and features.width == 100
    assert vectors.norm(dim=1).numpy() == pytest.approx(np.ones(len(vectors)), abs=1e-5)
    assert not vectors.requires_grad
    nobody = dataset.train.rows.take(np.array([], dtype=np.intp))
    assert features.at_encoded(nobody).shape == (0, 100)


def test_the_dimension_is_that_of_the_parameters_where_nothing_is_projected() -> None:
    assert TangentFeatures.draw(3, 7, 4, False, seeded()).width == 7 * 4 + 7
    assert TangentFeatures.draw(3, 7, 3, False, seeded()).width == 7 * 3 + 7
    assert TangentFeatures.draw(784, 800, 1, True, seeded()).width == 1600


def test_pixels_are_seen_from_zero_to_one() -> None:
    """A black image has no gradient but that of the bias."""
    features = TangentFeatures.draw(4, 7, 5, True, seeded())
    black = features.gradients(torch.full((1, 4), -1.0))[:, : 7 * 5].reshape(7, 5)
    assert torch.equal(black[:, :4], torch.zeros(7, 4)) and bool((black[:, 4] != 0).any())


# The method ---------------------------------------------------------------------------------------


def test_each_class_is_asked_once_for_one_gaussian_sum() -> None:
    """Analytic Gaussian mechanism, epsilon 1, delta 1e-5: multiplier 3.7307 (Balle and Wang)."""
    release, ledger = made(DpNtk(units=20, steps=2), TABLE, 1.0)
    noise = release.notes["noise_multiplier"]
    assert noise == pytest.approx(3.7307, abs=0.01)
    assert {entry.event for entry in ledger.entries} == {gaussian(noise)}
    assert sum(ledger.entries.values()) == 2
    assert 0.99 < ledger.proof().epsilon <= 1.0


def test_with_a_budget_too_large_to_matter_the_means_of_each_class_come_back() -> None:
    made_rows = made(DpNtk(units=200, steps=400), TABLE, 1e3, ipc=400)[0].rows
    rows = TABLE.train.rows
    assert made_rows is not None
    for label in (0, 1):
        real = rows.values[rows.labels == label].mean(axis=0)
        ours = made_rows.values[made_rows.labels == label].mean(axis=0)
        assert ours == pytest.approx(real, abs=0.15)


def test_generated_images_are_nearest_to_their_own_class() -> None:
    release, _ = made(DpNtk(units=200, steps=300), IMAGES, 50.0, ipc=20)
    real, ours = IMAGES.train.rows, release.rows
    assert ours is not None and np.bincount(ours.labels).tolist() == [20, 20, 20]
    centres = np.stack([real.values[real.labels == label].mean(axis=0) for label in range(3)])
    distances = ((ours.values[:, None] - centres[None]) ** 2).sum(axis=2)
    assert (distances.argmin(axis=1) == ours.labels).mean() > 0.8


@pytest.mark.parametrize("dataset", [TABLE, SURVIVAL, IMAGES], ids=["table", "survival", "images"])
def test_the_same_seed_gives_the_same_bytes(dataset: Dataset) -> None:
    method = DpNtk(units=20, steps=3)
    first, again, other = (made(method, dataset, 1.0, seed=seed)[0].rows for seed in (0, 0, 3))
    assert first.values.tobytes() == again.values.tobytes()
    assert first.values.tobytes() != other.values.tobytes()


def test_a_network_without_units_is_refused() -> None:
    with pytest.raises(InputError, match="dp-ntk: units=0 is not a positive number"):
        DpNtk(units=0)
