"""FDD with DP-SGD, with one noisy query and without noise: budget, sizes, traffic, rows."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from bench import Budget, sampled_gaussian
from bench.data.dataset import Dataset
from bench.errors import InputError, NotApplicable, PrivacyContractError
from bench.methods.federated._characteristic import CfDistiller, FddDistiller, RawDistiller
from bench.methods.federated.fdd import Fdd
from bench.methods.federated.fdd_cf import FddCf
from bench.methods.federated.fdd_nodp import FddNodp
from bench.plugins.method import Method, Spec
from bench.plugins.release import Release, Rows
from bench.plugins.source import build_dataset
from bench.privacy.clients import SkewedClients
from bench.privacy.ledger import Ledger
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private
from tests.support.tables import ToyTable

SMALL = build_dataset(ToyTable())
LARGE = build_dataset(ToyTable(negatives=3000, positives=2000))


def run(
    method: Method, epsilon: float | None, data: Dataset = SMALL, ipc: int = 20
) -> tuple[Release, Ledger]:
    budget = None if epsilon is None else Budget(epsilon, 1e-5)
    private, ledger = open_private(data, budget, SeededNoise(np.random.default_rng(0)))
    spec = Spec(data.task, ipc, budget)
    return method.synthesize(private, spec, np.random.default_rng(1)), ledger


def marker_gap(rows: Rows) -> float:
    """How much higher the second number, which the class shifts by 0.2, is in the second class."""
    means = [rows.values[rows.labels == code, 1].mean() for code in (0, 1)]
    return float(means[1] - means[0])


@pytest.mark.parametrize(
    ("method", "distiller"), [(Fdd, FddDistiller), (FddCf, CfDistiller), (FddNodp, RawDistiller)]
)
def test_a_method_and_its_distiller_have_the_same_defaults(method: type, distiller: type) -> None:
    built, default = method(), distiller()
    for item in dataclasses.fields(distiller):
        assert getattr(built, item.name) == getattr(default, item.name)
    changed = method(scale=9.0).settings_of(distiller)
    assert changed == dataclasses.replace(default, scale=9.0)


def test_dp_sgd_on_whole_clients_is_a_composition_of_gaussian_mechanisms() -> None:
    """16 steps at epsilon 1: 4 times the multiplier of one, 3.7307 (Balle and Wang)."""
    method = Fdd(clients=3, steps=16, probes=2, hidden=(8,), batch=8, expected_batch=1e9)
    release, ledger = run(method, 1.0)
    assert release.notes["smallest_noise_multiplier"] == pytest.approx(4 * 3.7307, abs=0.04)
    assert release.notes["largest_noise_multiplier"] == pytest.approx(4 * 3.7307, abs=0.04)
    assert 0.99 < ledger.proof().epsilon <= 1.0


def test_one_query_is_one_gaussian_mechanism_at_every_client() -> None:
    release, ledger = run(FddCf(steps=2, probes=10), 1.0)
    assert release.notes["largest_noise_multiplier"] == pytest.approx(3.7307, abs=0.01)
    assert 0.99 < ledger.proof().epsilon <= 1.0


def test_a_client_samples_its_rows_at_the_rate_of_the_expected_batch() -> None:
    private, _ = open_private(LARGE, Budget(1.0, 1e-5), SeededNoise(np.random.default_rng(0)))
    split = SkewedClients(4, 0.5, 0)
    declared = [split.part_counts(LARGE.counts, client).total for client in range(4)]
    assert min(declared) < 500 < max(declared)
    for rows, client in zip(declared, private.partition(split).values(), strict=True):
        (plan,) = FddDistiller(steps=7, expected_batch=500).plans(client, 3.0)
        assert plan.count == 7
        assert plan.event == sampled_gaussian(min(1.0, 500 / rows), 3.0)


@pytest.mark.parametrize("method", [Fdd, FddCf])
def test_learning_probes_asks_no_more_of_the_rows(method: type) -> None:
    small = {"clients": 2, "steps": 3, "probes": 4, "hidden": (8,)}
    fixed, ledger = run(method(**small), 1.0)
    learned, other = run(method(**small, probing="learned"), 1.0)
    assert other.proof() == ledger.proof()
    assert other.to_json() == ledger.to_json()
    assert learned.rows.values.tobytes() != fixed.rows.values.tobytes()


def test_a_ratio_is_a_share_of_every_client_and_the_bytes_are_those_of_the_rows() -> None:
    release, _ = run(FddCf(steps=2, probes=10, clients=4, ratio=0.05), 1.0, LARGE)
    split = SkewedClients(4, 0.5, 0)
    declared = [split.part_counts(LARGE.counts, client).by_class for client in range(4)]
    expected = [
        sum(max(1, round(0.05 * rows[code])) if rows[code] else 0 for rows in declared)
        for code in (0, 1)
    ]
    assert np.bincount(release.rows.labels).tolist() == expected
    assert release.federation.clients.split == split
    (sent,) = release.federation.transfers
    assert (sent.phase, sent.direction, sent.messages) == ("release", "up", 4)
    # Two numbers of 4 bytes, two categories of 1 byte, a label of 2.
    assert sent.bytes == sum(expected) * 12


def test_without_privacy_the_classes_come_back_and_epsilon_is_infinite() -> None:
    release, ledger = run(FddNodp(clients=2, alpha=10.0, steps=60), None, LARGE, ipc=300)
    rows, real = release.rows, LARGE.train.rows
    for label in (0, 1):
        ours = rows.values[rows.labels == label].mean(axis=0)
        assert ours == pytest.approx(real.values[real.labels == label].mean(axis=0), abs=0.2)
    assert release.claim is None
    proof = ledger.proof()
    assert math.isinf(proof.epsilon) and all("raw rows" in reason for reason in proof.reasons)


@pytest.mark.parametrize("probing", ["random", "learned"])
@pytest.mark.parametrize(
    "method",
    [
        Fdd(clients=1, steps=60, probes=4, hidden=(16,), batch=40, expected_batch=1e9),
        FddCf(clients=2, alpha=10.0, steps=100, probes=100, batch=100),
    ],
    ids=["fdd", "fdd-cf"],
)
def test_what_the_class_shifts_is_shifted_the_same_way(method: Method, probing: str) -> None:
    """Noise alone would be as likely to shift it the other way."""
    learned = dataclasses.replace(method, probing=probing)  # type: ignore[call-arg]
    release, _ = run(learned, 5.0, LARGE, ipc=300)
    assert 0.08 < marker_gap(release.rows) < 0.4


def test_many_classes_have_fewer_probes_each() -> None:
    distiller = FddDistiller(probes=8, answers=64)
    assert [distiller.probes_for(classes) for classes in (2, 4, 10, 100)] == [8, 8, 3, 1]


def test_rows_by_site_need_sites() -> None:
    with pytest.raises(NotApplicable, match="site"):
        run(Fdd(by="site"), 1.0)


def test_a_private_distiller_does_not_run_without_noise() -> None:
    private, _ = open_private(SMALL, Budget(1.0, 1e-5), SeededNoise(np.random.default_rng(0)))
    for distiller in (FddDistiller(), CfDistiller()):
        with pytest.raises(PrivacyContractError, match="noise multiplier"):
            distiller.distil(private, None, (1, 1), np.random.default_rng(0))


@pytest.mark.parametrize("wrong", [{"probing": "guessed"}, {"extractor": "convnet"}])
def test_unknown_settings_are_refused_with_the_known_ones(wrong: dict[str, str]) -> None:
    with pytest.raises(InputError, match="use "):
        Fdd(**wrong)  # type: ignore[arg-type]
