"""NDPDC with decoupled optimisation and sampling: what is bought, when, and how it is reused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bench import Budget, InputError, PrivateData, sampled_gaussian
from bench.data.dataset import Dataset
from bench.methods._shared.extractors import extractor
from bench.methods.ndpdc._matching import FeatureMap, NoisyMatching, RandomFeatures
from bench.methods.ndpdc.ndpdc_dos import BoughtSum, NdpdcDos, descend
from bench.plugins.method import Spec
from bench.plugins.release import Release
from bench.plugins.source import build_dataset
from bench.privacy.ledger import Ledger
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private
from tests.support.tables import ToyImages, ToySurvival, ToyTable

TABLE, SURVIVAL, IMAGES = (
    build_dataset(source) for source in (ToyTable(), ToySurvival(), ToyImages())
)


def made(
    method: NdpdcDos, dataset: Dataset, epsilon: float = 1.0, ipc: int = 10, seed: int = 0
) -> tuple[Release, Ledger]:
    budget = Budget(epsilon, 1e-5)
    noise = SeededNoise(np.random.default_rng(seed))
    private, ledger = open_private(dataset, budget, noise, check_rows=True)
    rng = np.random.default_rng(seed + 1)
    return method.synthesize(private, Spec(dataset.task, ipc, budget), rng), ledger


@pytest.fixture
def history(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float]]:
    """Kernel calls, each with its rate, and moves, each with its step, in the order of time."""
    happened: list[tuple[str, float]] = []
    kernel, descent = PrivateData.poisson_sum, NoisyMatching.move

    def asked(self, function, clip, noise_multiplier, rate):  # type: ignore[no-untyped-def]
        happened.append(("asked", rate))
        return kernel(self, function, clip, noise_multiplier, rate)

    def moved(self, rows, feature_map, wanted, step, generator):  # type: ignore[no-untyped-def]
        happened.append(("moved", step))
        return descent(self, rows, feature_map, wanted, step, generator)

    monkeypatch.setattr(PrivateData, "poisson_sum", asked)
    monkeypatch.setattr(NoisyMatching, "move", moved)
    return happened


def test_all_sums_are_bought_before_the_first_step_and_used_again(history: list) -> None:
    release, ledger = made(NdpdcDos(sums=4, iterations=8, table_step=0.8), TABLE)
    rates = [min(1.0, 50 / count) for count in TABLE.counts.by_class]
    assert history[:8] == [("asked", rate) for _ in range(4) for rate in rates]
    steps = [0.8 * (1 - iteration / 8) for iteration in range(8) for _ in rates]
    assert [kind for kind, _ in history[8:]] == ["moved"] * 16
    assert [step for _, step in history[8:]] == pytest.approx(steps)
    noise = release.notes["noise_multiplier"]
    assert {entry.event: count for entry, count in ledger.entries.items()} == {
        sampled_gaussian(rate, noise): 4 for rate in rates
    }
    assert 0.9 < ledger.proof().epsilon <= 1.0
    assert not any(entry.adaptive for entry in ledger.entries)


def test_more_steps_cost_nothing_and_fewer_sums_have_less_noise() -> None:
    def noise(**settings: int) -> float:
        return float(made(NdpdcDos(**settings), TABLE)[0].notes["noise_multiplier"])  # type: ignore[arg-type]

    short = noise(sums=20, iterations=1)
    assert noise(sums=20, iterations=60) == short
    assert noise(sums=5, iterations=1) < 0.7 * short


def test_each_pass_takes_every_bought_sum_once(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[float] = []
    monkeypatch.setattr(NoisyMatching, "move", lambda *given: used.append(float(given[3][0])))
    feature_map = FeatureMap(lambda rows: rows, None, (2,))
    bought = [
        [BoughtSum(torch.zeros(1, 2), feature_map, torch.full((2,), float(number)))]
        for number in range(5)
    ]
    random = RandomFeatures("linear", (2,), 2)
    matching = NoisyMatching(random, 15, 50.0, 1.0, 1.0, 1.0, True, 200, False)
    descend(matching, bought, torch.Generator().manual_seed(0))
    passes = [used[start : start + 5] for start in (0, 5, 10)]
    assert all(sorted(one) == [0, 1, 2, 3, 4] for one in passes)
    assert passes[0] != passes[1] or passes[1] != passes[2]


def test_a_descent_on_noiseless_sums_of_known_rows_brings_their_features_back() -> None:
    """Rows at one point have the sums of that point's features: the rows are moved there."""
    generator = torch.Generator().manual_seed(0)
    there = torch.tensor([[0.5, -0.3, 0.2]])
    rows = torch.randn(4, 3, generator=generator)
    random = RandomFeatures("mlp", (3,), 16)
    matching = NoisyMatching(random, 600, 4.0, 10.0, 1.0, 0.05, True, 200, False)
    bought = []
    for _ in range(20):
        feature_map = FeatureMap(extractor("mlp", (3,), 16, generator), None, (3,))
        bought.append([BoughtSum(rows, feature_map, 4.0 * feature_map(there)[0].detach())])
    before = float((rows.mean(dim=0) - there).norm())
    descend(matching, bought, generator)
    assert float((rows.mean(dim=0) - there).norm()) < 0.3 * before


def test_classes_of_a_table_are_learned_when_noise_is_negligible() -> None:
    release, _ = made(NdpdcDos(sums=40, iterations=200), TABLE, epsilon=1e4, ipc=20)
    ours = release.rows
    assert ours is not None
    marker = [ours.values[ours.labels == label, 1].mean() for label in (0, 1)]
    assert marker[1] - marker[0] > 0.1


def test_images_are_nearest_to_their_own_class_at_a_large_epsilon() -> None:
    release, _ = made(NdpdcDos(sums=40, iterations=200), IMAGES, epsilon=1e3, ipc=10)
    real, ours = IMAGES.train.rows, release.rows
    assert ours is not None and np.bincount(ours.labels).tolist() == [10, 10, 10]
    centres = np.stack([real.values[real.labels == label].mean(axis=0) for label in range(3)])
    own = np.stack([ours.values[ours.labels == label].mean(axis=0) for label in range(3)])
    distances = ((own[:, None] - centres[None]) ** 2).sum(axis=2)
    assert distances.argmin(axis=1).tolist() == [0, 1, 2]


def test_survival_rows_have_times_inside_the_bounds_and_everything_is_charged(
    history: list,
) -> None:
    release, ledger = made(NdpdcDos(sums=3, iterations=5, time_bins=3), SURVIVAL)
    rows = release.rows
    assert rows is not None and np.bincount(rows.labels).tolist() == [10, 10]
    assert (np.abs(rows.values[:, -1]) <= 1).all()
    # One histogram per status and 3 sums per bin, all reserved before the first output.
    assert sum(ledger.entries.values()) == 2 + 3 * 6
    assert [kind for kind, _ in history] == ["asked"] * 18 + ["moved"] * 30
    assert ledger.proof().epsilon <= 1.0


@pytest.mark.parametrize("dataset", [IMAGES, SURVIVAL], ids=["images", "survival"])
def test_the_same_seed_gives_the_same_bytes(dataset: Dataset) -> None:
    method = NdpdcDos(sums=2, iterations=4)
    first, again, other = (made(method, dataset, seed=seed)[0].rows for seed in (0, 0, 3))
    assert first.values.tobytes() == again.values.tobytes()
    assert first.values.tobytes() != other.values.tobytes()


def test_without_sums_there_is_nothing_to_match() -> None:
    with pytest.raises(InputError, match="ndpdc-dos: sums=0 is not a positive number"):
        NdpdcDos(sums=0)
