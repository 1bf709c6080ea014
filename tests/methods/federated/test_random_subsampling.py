"""Random rows with noise: the sensitivity by brute force, and what is released."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.data.dataset import Split
from bench.errors import InputError
from bench.methods.federated.random_subsampling_dp import RandomRowsDistiller, RandomSubsamplingDp
from bench.plugins.method import Spec
from bench.plugins.source import build_dataset
from bench.privacy.accounting import Budget
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private
from tests.support.tables import ToyTable

DATA = build_dataset(ToyTable())


class NoNoise(SeededNoise):  # type: ignore[misc]
    """Draws zeros, so that the answer itself can be looked at."""

    def normal(self, scale: float, size: int) -> np.ndarray:  # type: ignore[type-arg]
        return np.zeros(size, dtype=np.int64)


def released(without: int | None = None, noisy_labels: bool = False) -> np.ndarray:  # type: ignore[type-arg]
    """The chosen rows with labels, without noise, with one training row left out."""
    keep = np.ones(len(DATA.train.rows), dtype=bool)
    if without is not None:
        keep[without] = False
    data = replace(DATA, train=Split(DATA.train.frame[keep], DATA.train.rows.take(keep)))
    private, _ = open_private(data, Budget(1.0, 1e-5), NoNoise(np.random.default_rng(0)))
    rows = RandomRowsDistiller(noisy_labels).distil(private, 5.0, [6, 6], np.random.default_rng(0))
    return np.hstack([rows.values, np.eye(2)[rows.labels]])


@pytest.mark.parametrize("noisy_labels", [False, True])
def test_one_row_moves_one_released_row_by_at_most_the_sensitivity(noisy_labels: bool) -> None:
    whole = released(noisy_labels=noisy_labels)
    moved = 0
    for index in range(0, len(DATA.train.rows), 3):
        changed = released(index, noisy_labels)
        differs = np.flatnonzero((whole != changed).any(axis=1))
        assert len(differs) <= 1
        clip = np.hypot(DATA.encoder.max_norm, 1.0 if noisy_labels else 0.0)
        assert np.linalg.norm(whole - changed) <= 2 * clip + 1e-6
        moved += len(differs)
    assert moved, "no removed row was among the chosen: the test shows nothing"


def test_without_noise_the_rows_are_rows_of_the_table() -> None:
    table = DATA.train.rows.values.astype(np.float64)
    rows = released()[:, : DATA.encoder.width]
    # Answers are on the kernel's grid: equal up to its width.
    gaps = np.abs(rows[:, None, :] - table[None, :, :]).max(axis=2).min(axis=1)
    assert gaps.max() < 1e-4


def test_noise_has_the_scale_of_the_ledger() -> None:
    private, ledger = open_private(
        DATA, Budget(1.0, 1e-5), SeededNoise(np.random.default_rng(0)), check_rows=True
    )
    method = RandomSubsamplingDp(clients=3)
    release = method.synthesize(
        private, Spec(DATA.task, 10, Budget(1.0, 1e-5)), np.random.default_rng(0)
    )
    # Gaussian mechanism at epsilon 1, delta 1e-5: 3.7303 (Balle and Wang 2018, analytic).
    assert release.notes["largest_noise_multiplier"] == pytest.approx(3.7303, rel=1e-3)
    assert 0.99 <= ledger.proof().epsilon <= 1.0
    assert release.federation is not None
    assert sum(one.messages for one in release.federation.transfers) <= 3


def test_random_rows_without_noise_are_refused() -> None:
    private, _ = open_private(DATA, Budget(1.0, 1e-5), SeededNoise(np.random.default_rng(0)))
    with pytest.raises(InputError, match="subset"):
        RandomRowsDistiller().distil(private, None, [2, 2], np.random.default_rng(0))
