"""Client splits are public, fixed and disjoint."""

import numpy as np
import pytest

from bench import gaussian
from bench.errors import InputError
from bench.plugins.source import build_dataset
from bench.privacy.clients import SkewedClients
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private
from tests.support.tables import ToyTable

DATASET = build_dataset(ToyTable(negatives=3000, positives=2000))
ROWS = DATASET.train.rows


def test_every_row_has_one_client_that_no_other_row_decides() -> None:
    clients = SkewedClients(10, 0.5)
    assigned = clients.assign(ROWS.labels, ROWS.positions, 2)
    assert assigned.min() >= 0 and assigned.max() <= 9
    some = np.arange(0, len(ROWS), 7)
    assert np.array_equal(
        clients.assign(ROWS.labels[some], ROWS.positions[some], 2), assigned[some]
    )


def test_sizes_follow_the_public_shares() -> None:
    clients = SkewedClients(5, 1.0, seed=3)
    assigned = clients.assign(ROWS.labels, ROWS.positions, 2)
    for client in range(5):
        actual = np.bincount(ROWS.labels[assigned == client], minlength=2)
        declared = clients.part_counts(DATASET.counts, client).by_class
        assert actual == pytest.approx(declared, abs=5 * np.sqrt(max(declared) + 1))


def test_small_alpha_skews_and_large_alpha_evens_out() -> None:
    def skew(alpha: float) -> float:
        return float(
            np.mean([SkewedClients(10, alpha, s).shares(2).max(axis=1) for s in range(20)])
        )

    assert skew(0.05) > 0.6 > skew(0.5) > skew(100.0)
    assert skew(100.0) == pytest.approx(0.1, abs=0.03)


def test_a_partition_by_clients_is_parallel_in_the_ledger() -> None:
    private, ledger = open_private(DATASET, None, SeededNoise(np.random.default_rng(0)))
    parts = private.partition(SkewedClients(4, 0.5))
    assert sum(len(part._rows) for part in parts.values()) == len(ROWS)
    private.reserve_all(part.plan(gaussian(5.0)) for part in parts.values())
    alone = ledger.proof().epsilon
    assert len(ledger.entries) == 4
    fresh, single = open_private(DATASET, None, SeededNoise(np.random.default_rng(0)))
    fresh.reserve(gaussian(5.0))
    assert alone == single.proof().epsilon


@pytest.mark.parametrize("count, alpha", [(0, 0.5), (3, 0.0), (3, -1.0)])
def test_nonsense_is_refused(count: int, alpha: float) -> None:
    with pytest.raises(InputError):
        SkewedClients(count, alpha)
