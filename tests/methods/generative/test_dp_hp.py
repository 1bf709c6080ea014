"""DP-HP: its noisy embeddings, what they cost, and the generator."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bench import Budget, PrivateData, gaussian
from bench.data.dataset import Dataset
from bench.errors import InputError
from bench.methods.generative import dp_hp
from bench.methods.generative.dp_hp import DpHp, NoisyMeans, TrainingTargets
from bench.plugins.method import Spec
from bench.plugins.release import Release
from bench.plugins.source import build_dataset
from bench.privacy.ledger import Ledger
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private
from tests.support.tables import ToyImages, ToyTable

TABLE = build_dataset(ToyTable(negatives=3000, positives=2000))
IMAGES = build_dataset(ToyImages())


def made(
    method: DpHp, epsilon: float | None, ipc: int = 400, data: Dataset = TABLE
) -> tuple[Release, Ledger]:
    budget = None if epsilon is None else Budget(epsilon, 1e-5)
    private, ledger = open_private(
        data, budget, SeededNoise(np.random.default_rng(0)), check_rows=True
    )
    release = method.synthesize(private, Spec(data.task, ipc, budget), np.random.default_rng(1))
    return release, ledger


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    """What the kernel is asked for: clip and noise multiplier."""
    seen: list[tuple[float, float]] = []
    kernel = PrivateData.gaussian_sum

    def spy(self, function, clip, noise_multiplier):  # type: ignore[no-untyped-def]
        seen.append((clip, noise_multiplier))
        return kernel(self, function, clip, noise_multiplier)

    monkeypatch.setattr(PrivateData, "gaussian_sum", spy)
    return seen


def test_everything_together_costs_one_gaussian_mechanism() -> None:
    """Analytic Gaussian mechanism, epsilon 1, delta 1e-5: multiplier 3.7307 (Balle and Wang)."""
    method = DpHp(steps=2, redraws=3, sum_share=0.7)
    release, ledger = made(method, 1.0)
    noise = release.notes["noise_multiplier"]
    assert noise == pytest.approx(3.7307, rel=0.005)
    assert 0.98 < ledger.proof().epsilon <= 1.0
    events = {entry.event: count for entry, count in ledger.entries.items()}
    of_sum, of_product = method.multipliers(noise)
    assert events == {gaussian(of_sum): 1, gaussian(of_product): 3}
    assert not any(entry.adaptive for entry in ledger.entries)


def test_the_multipliers_compose_to_the_whole() -> None:
    of_sum, of_product = DpHp(redraws=5, sum_share=0.25).multipliers(2.0)
    assert 1 / of_sum**2 + 5 / of_product**2 == pytest.approx(1 / 2.0**2)
    assert DpHp(redraws=0).multipliers(2.0)[0] == 2.0


def test_kernels_are_weighed_by_the_variance_of_their_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Shares 0.75 and 0.25 of two redraws: multipliers as 1 / sqrt(0.75) to sqrt(2 / 0.25)."""
    seen: list[float] = []
    kept = TrainingTargets.loss

    def spy(self: TrainingTargets, product_weight: float, steps: int):  # type: ignore[no-untyped-def]
        seen.append(product_weight)
        return kept(self, product_weight, steps)

    monkeypatch.setattr(TrainingTargets, "loss", spy)
    for weight in (None, 0.3):
        method = DpHp(
            steps=1, redraws=2, sum_share=0.75, noise_multiplier=1.0, product_weight=weight
        )
        made(method, None, ipc=2)
    assert seen == pytest.approx([(1 / 0.75) / (2 / 0.25), 0.3])


def test_each_class_is_asked_once_a_kernel_and_clipped_to_its_norm(
    calls: list[tuple[float, float]],
) -> None:
    made(DpHp(steps=2, redraws=3, noise_multiplier=2.0), None)
    of_sum, of_product = DpHp(redraws=3).multipliers(2.0)
    assert calls == [(1.0, of_sum)] * 2 + [(1.0, of_product)] * 6


def test_a_wide_sum_kernel_in_groups_has_the_same_noise(
    calls: list[tuple[float, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sensitivity sqrt(share of the columns), and noise of the same deviation on every feature."""
    monkeypatch.setattr(dp_hp, "_FEATURES_AT_ONCE", 210)
    release, ledger = made(DpHp(steps=2, redraws=0, order=20), 1.0, data=IMAGES)
    noise = release.notes["noise_multiplier"]
    shares = [10 / 64] * 6 + [4 / 64]
    assert [clip for clip, _ in calls] == pytest.approx(np.repeat(np.sqrt(shares), 3))
    assert [clip * multiplier for clip, multiplier in calls] == pytest.approx([noise] * 21)
    assert noise == pytest.approx(3.7307, rel=0.005) and ledger.proof().epsilon <= 1.0


def test_with_noise_too_small_to_matter_the_marginals_of_each_class_come_back() -> None:
    rows = made(DpHp(steps=200, order=10, product_order=6, noise_multiplier=0.01), None)[0].rows
    real = TABLE.train.rows
    assert rows is not None
    for label in (0, 1):
        wanted = real.values[real.labels == label]
        ours = rows.values[rows.labels == label]
        assert ours.mean(axis=0) == pytest.approx(wanted.mean(axis=0), abs=0.12)
        assert ours[:, :2].std(axis=0) == pytest.approx(wanted[:, :2].std(axis=0), abs=0.12)


def test_product_kernels_have_their_turns_in_training() -> None:
    seen: list[int] = []

    def features(number: int):  # type: ignore[no-untyped-def]
        def of(rows: torch.Tensor) -> torch.Tensor:
            seen.append(number)
            return rows

        return of

    rows = torch.tensor([[1.0], [3.0], [5.0], [7.0]])
    flat = NoisyMeans(lambda values: values, torch.tensor([[1.0], [6.0]]))
    turns = [NoisyMeans(features(number), torch.tensor([[2.0], [4.0]])) for number in range(3)]
    loss = TrainingTargets([flat, flat], turns).loss(product_weight=0.5, steps=7)
    values = [float(loss(rows, torch.tensor([0, 0, 1, 1]))) for _ in range(7)]
    # Class means 2 and 6: sum kernels 1 each, products 4 with half the weight.
    assert values == [1.0 + 1.0 + 0.5 * 4.0] * 7
    assert seen == [0, 0, 0, 1, 1, 2, 2]


def test_without_redraws_the_sum_kernel_is_alone(calls: list[tuple[float, float]]) -> None:
    release, _ = made(DpHp(steps=3, redraws=0, noise_multiplier=1.5), None, ipc=5)
    assert calls == [(1.0, 1.5)] * 2 and release.claim is None


@pytest.mark.parametrize(
    ("setting", "expected"),
    [({"sum_share": 1.0}, "between 0 and 1"), ({"redraws": -1}, "0 or more"), ({"length": 0}, "a")],
)
def test_settings_without_a_meaning_are_refused(setting: dict[str, float], expected: str) -> None:
    with pytest.raises(InputError, match=f"dp-hp: {next(iter(setting))}=.* is not {expected}"):
        DpHp(**setting)  # type: ignore[arg-type]
