"""DM: the loss of equation 3, its descent, its starts, and exact strata of survival."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from bench.data.augmentation import Augmentation
from bench.data.dataset import Dataset
from bench.errors import InputError
from bench.methods._shared.extractors import extractor
from bench.methods.ndpdc import _matching
from bench.methods.ndpdc._matching import (
    ExactMatching,
    FeatureMap,
    RandomFeatures,
    RealTarget,
    SyntheticRows,
    mean_loss,
)
from bench.methods.ndpdc._time_strata import time_edges
from bench.methods.ndpdc.dm import Dm
from bench.plugins.method import Spec
from bench.plugins.release import Rows
from bench.plugins.source import build_dataset
from bench.privacy.ledger import Ledger
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private
from bench.results.verdicts import Verdict, judge
from tests.support.tables import ToyImages, ToySurvival, ToyTable

TABLE, SURVIVAL, IMAGES = (
    build_dataset(source) for source in (ToyTable(), ToySurvival(), ToyImages())
)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def made(method: Dm, dataset: Dataset, ipc: int | None = 10, seed: int = 0) -> tuple[Rows, Ledger]:
    private, ledger = open_private(dataset, None, SeededNoise(np.random.default_rng(seed)))
    release = method.synthesize(
        private, Spec(dataset.task, ipc, None), np.random.default_rng(seed + 1)
    )
    assert release.rows is not None and release.claim is None
    return release.rows, ledger


def matching(**settings: object) -> ExactMatching:
    chosen: dict[str, object] = {
        "random": RandomFeatures("linear", (2,), 8),
        "iterations": 1,
        "batch": 256,
        "step": 0.1,
        "momentum": 0.5,
        "together": 200,
    }
    return ExactMatching(**{**chosen, **settings})  # type: ignore[arg-type]


def target(real: torch.Tensor, rows: torch.Tensor) -> RealTarget:
    return RealTarget(SyntheticRows(0, rows), real, torch.zeros_like(rows))


# The loss and its descent -------------------------------------------------------------------------


def test_the_loss_is_the_squared_distance_of_means() -> None:
    feature_map = FeatureMap(lambda values: values, None, (2,))
    value = mean_loss(torch.tensor([[3.0, 4.0], [1.0, 0.0]]), feature_map, torch.tensor([1.0, 5.0]))
    assert float(value) == pytest.approx(1.0**2 + 3.0**2)


def test_two_steps_with_momentum_by_hand() -> None:
    """Identity features, M = 2 rows, mean 1 and wanted 0: M times the gradient is 2 (mean - 0)."""
    rows = torch.tensor([[0.0, 0.0], [2.0, 0.0]])
    both = target(torch.zeros(1, 2), rows)
    feature_map = FeatureMap(lambda values: values, None, (2,))
    settings = matching()
    settings.move(both, feature_map, torch.zeros(2), seeded())
    # velocity 2, step 0.1: every row moves by -0.2
    assert rows[:, 0].tolist() == pytest.approx([-0.2, 1.8])
    settings.move(both, feature_map, torch.zeros(2), seeded())
    # velocity 0.5 * 2 + 2 * 0.8 = 2.6
    assert rows[:, 0].tolist() == pytest.approx([-0.46, 1.54])
    assert rows[:, 1].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("kind", ["convnet", "linear", "mlp"])
def test_a_step_makes_the_loss_smaller(kind: str) -> None:
    inputs = (1, 8, 8) if kind == "convnet" else (64,)
    augment = Augmentation("scale", torch.full((1, 3), 0.7)) if kind == "convnet" else None
    feature_map = FeatureMap(extractor(kind, inputs, 8, seeded()), augment, inputs)
    both = target(torch.rand(50, 64, generator=seeded(2)), torch.randn(20, 64, generator=seeded(1)))
    wanted = feature_map(both.real).mean(dim=0)
    settings = matching(momentum=0.0)
    losses = []
    for _ in range(4):
        losses.append(float(mean_loss(both.synthetic.rows, feature_map, wanted)))
        settings.move(both, feature_map, wanted, seeded())
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0]


def test_a_row_moves_as_far_in_a_large_release_as_in_a_small_one() -> None:
    feature_map = FeatureMap(lambda values: values, None, (2,))
    moved = []
    for count in (1, 150):
        both = target(torch.zeros(1, 2), torch.ones(count, 2))
        matching().move(both, feature_map, torch.zeros(2), seeded())
        moved.append(1.0 - both.synthetic.rows[0, 0].item())
    assert moved[0] == pytest.approx(moved[1]) == pytest.approx(0.2)


def test_rows_beyond_the_limit_take_turns() -> None:
    rows = torch.randn(12, 2, generator=seeded(1))
    before = rows.clone()
    feature_map = FeatureMap(lambda values: values, None, (2,))
    both = target(torch.zeros(1, 2), rows)
    matching(together=5).move(both, feature_map, torch.full((2,), 9.0), seeded(2))
    assert int((rows != before).any(dim=1).sum()) == 5


def test_mini_batches_hold_as_many_real_rows_as_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []

    class Spy:
        def __init__(self, *_: object) -> None:
            pass

        def __call__(self, rows: torch.Tensor) -> torch.Tensor:
            seen.append((len(rows), len(torch.unique(rows, dim=0))))
            return rows

    monkeypatch.setattr(_matching, "FeatureMap", Spy)
    real = torch.arange(80.0).reshape(40, 2)
    targets = [target(real, torch.randn(3, 2)), target(real[:10], torch.randn(3, 2))]
    matching(batch=16, step=1e-9).descend(targets, seeded())
    # Real, then synthetic rows of each target; no real row twice.
    assert seen == [(16, 16), (3, 3), (10, 10), (3, 3)]


def test_the_linear_extractor_matches_the_means_of_each_class() -> None:
    rows, _ = made(Dm(iterations=300), TABLE, ipc=20)
    real = TABLE.train.rows
    for label in (0, 1):
        wanted = real.values[real.labels == label].mean(axis=0)
        assert rows.values[rows.labels == label].mean(axis=0) == pytest.approx(wanted, abs=0.05)


def test_images_of_noise_become_images_of_their_class() -> None:
    """The real image nearest to the mean of a class's synthetic images has that class."""
    rows, _ = made(Dm(iterations=60), IMAGES, ipc=10)
    real = IMAGES.test.rows
    means = np.stack([rows.values[rows.labels == label].mean(axis=0) for label in range(3)])
    means = (means - means.mean(axis=0)) / means.std()
    guess = ((real.values - real.values.mean(axis=0)) @ means.T).argmax(axis=1)
    assert (guess == real.labels).mean() > 0.9


# Starts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dataset", [TABLE, SURVIVAL, IMAGES], ids=["table", "survival", "images"])
def test_a_start_from_real_rows_takes_rows_of_the_class(dataset: Dataset) -> None:
    rows, _ = made(Dm(initialisation="real", iterations=0), dataset)
    real = dataset.train.rows
    known = {(label, row.tobytes()) for row, label in zip(real.values, real.labels, strict=True)}
    assert {
        (label, row.tobytes()) for row, label in zip(rows.values, rows.labels, strict=True)
    } <= known


def test_a_start_from_noise_is_standard_normal() -> None:
    rows, _ = made(Dm(iterations=0), IMAGES, ipc=100)
    assert rows.values.mean() == pytest.approx(0.0, abs=0.02)
    assert rows.values.std() == pytest.approx(1.0, abs=0.02)


def test_an_unknown_start_is_refused() -> None:
    with pytest.raises(InputError, match="one of noise, real"):
        Dm(initialisation="zeros")  # type: ignore[arg-type]


@pytest.mark.parametrize("initialisation", ["noise", "real"])
def test_a_class_without_real_rows_keeps_its_start(initialisation: str) -> None:
    one = build_dataset(ToyTable())
    train = one.train.rows
    private, _ = open_private(one, None, SeededNoise(np.random.default_rng(0)))
    private._rows = train.take(train.labels == 0)
    method = Dm(initialisation=initialisation, iterations=5)  # type: ignore[arg-type]
    rows = method.synthesize(private, Spec(one.task, 50, None), np.random.default_rng(0)).rows
    assert rows is not None and rows.labels.tolist() == [0] * 50 + [1] * 50
    assert rows.values[rows.labels == 1].std() == pytest.approx(1.0, abs=0.2)


# Privacy and survival -----------------------------------------------------------------------------


def test_nothing_is_claimed_and_nothing_is_proven() -> None:
    _, ledger = made(Dm(iterations=1), TABLE)
    assert math.isinf(ledger.proof().epsilon)
    judged = judge(None, None, ledger.proof())
    assert judged.verdict is Verdict.NON_PRIVATE and "raw rows" in judged.reason


def test_time_edges_are_quantiles() -> None:
    times = np.array([-0.9, -0.8, -0.7, -0.6, 0.2, 0.3, 0.4, 0.5])
    assert time_edges(times, 2) == pytest.approx([-1, -0.2, 1])
    assert time_edges(times[:0], 4) == pytest.approx([-1, -0.5, 0, 0.5, 1])


def test_released_times_follow_the_quantiles_of_their_event_status() -> None:
    rows, _ = made(Dm(iterations=5, time_bins=3), SURVIVAL, ipc=30)
    real = SURVIVAL.train.rows
    for label in (0, 1):
        edges = time_edges(real.values[real.labels == label, -1], 3)
        times = rows.values[rows.labels == label, -1]
        for number in range(3):
            low, high = edges[number] - 1e-6, edges[number + 1] + 1e-6
            inside = times[10 * number : 10 * (number + 1)]
            assert (inside >= low).all() and (inside <= high).all()


def test_fewer_rows_than_time_bins_leave_bins_without_rows() -> None:
    rows, _ = made(Dm(iterations=2), SURVIVAL, ipc=2)
    assert rows.labels.tolist() == [0, 0, 1, 1]


def test_equal_times_leave_bins_without_real_rows() -> None:
    edges = time_edges(np.zeros(20), 4)
    assert edges == pytest.approx([-1, 0, 0, 0, 1])


@pytest.mark.parametrize("dataset", [IMAGES, SURVIVAL], ids=["images", "survival"])
def test_the_same_seed_gives_the_same_bytes(dataset: Dataset) -> None:
    first, again, other = (made(Dm(iterations=3), dataset, seed=seed)[0] for seed in (0, 0, 3))
    assert first.values.tobytes() == again.values.tobytes()
    assert first.values.tobytes() != other.values.tobytes()
