"""Clients, what they send, and the union of what they make."""

from __future__ import annotations

import numpy as np
import pytest

from bench import Budget
from bench.errors import InputError, NotComputable
from bench.methods.federated._clients import (
    allotted,
    by_ratio,
    numbers_payload,
    rows_payload,
)
from bench.methods.federated.fdd_cf import FddCf
from bench.plugins.metric import Evaluation
from bench.plugins.release import Clients, Detector, Federation, Release, Traffic
from bench.plugins.source import build_dataset
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private
from tests.support.tables import ToyTable

DATA = build_dataset(ToyTable())


def opened(epsilon: float = 1.0):  # type: ignore[no-untyped-def]
    noise = SeededNoise(np.random.default_rng(0))
    return open_private(DATA, Budget(epsilon, 1e-5), noise, check_rows=True)


def test_every_row_is_with_exactly_one_client_and_of_rows_tells_which() -> None:
    clients = Clients.of("clients", 4, 0.5)
    private, _ = opened()
    parts = clients.parts(private)
    numbers = clients.of_rows(DATA.train.rows, DATA.schema)
    held = [part.raw("a test") for part in parts.values()]
    seen = np.concatenate([rows.positions for rows in held])
    assert len(seen) == len(DATA.train.rows) == len(set(seen.tolist()))
    for number, rows in enumerate(held):
        expected = DATA.train.rows.positions[numbers == number]
        assert sorted(rows.positions.tolist()) == sorted(expected.tolist())


def test_test_rows_lie_with_the_clients_in_the_same_shares() -> None:
    clients = Clients.of("clients", 3, 5.0)
    numbers = clients.of_rows(DATA.test.rows, DATA.schema)
    assert set(numbers.tolist()) <= {0, 1, 2}
    assert len(numbers) == len(DATA.test.rows)


def test_traffic_counts_the_bytes_of_the_payloads_by_phase_round_and_direction() -> None:
    traffic = Traffic()
    traffic.send("model", "down", b"1234", round=1, copies=3)
    traffic.send("model", "up", b"12", round=1)
    traffic.send("model", "up", b"123", round=1)
    traffic.send("release", "up", b"")
    sent = [(t.phase, t.round, t.direction, t.messages, t.bytes) for t in traffic.transfers()]
    assert sent == [
        ("model", 1, "down", 3, 12),
        ("model", 1, "up", 2, 5),
        ("release", 0, "up", 1, 0),
    ]


@pytest.mark.parametrize("by", ["clients", "site"])
def test_a_federation_survives_json(by: str) -> None:
    traffic = Traffic()
    traffic.send("release", "up", b"abc")
    federation = Federation(Clients.of(by, 7, 0.25, seed=3), traffic.transfers())
    assert Federation.from_record(federation.to_record()) == federation


def test_rows_are_allotted_by_declared_shares_and_add_up() -> None:
    private, _ = opened()
    parts = Clients.of("clients", 4, 0.5).parts(private)
    sizes = allotted(parts, [10, 7])
    assert sizes.sum(axis=0).tolist() == [10, 7]
    declared = np.array([part.counts.by_class for part in parts.values()])
    exact = declared / declared.sum(axis=0) * [10, 7]
    assert (np.abs(sizes - exact) < 1).all()


def test_a_ratio_gives_each_client_its_share() -> None:
    private, _ = opened()
    parts = Clients.of("clients", 4, 0.5).parts(private)
    declared = np.array([part.counts.by_class for part in parts.values()])
    sizes = by_ratio(parts, 0.1)
    assert sizes[declared == 0].sum() == 0
    large = declared >= 20
    assert (np.abs(sizes[large] - 0.1 * declared[large]) <= 0.5).all()
    with pytest.raises(InputError, match="ratio 0"):
        by_ratio(parts, 0.0)


def test_payloads_hold_four_bytes_per_number_and_one_per_category() -> None:
    rows = DATA.train.rows
    numbers = sum(block.column.__class__.__name__ == "Numeric" for block in DATA.encoder.blocks)
    categories = len(DATA.encoder.blocks) - numbers
    payload = rows_payload(DATA.encoder, rows.values[:5], rows.labels[:5])
    assert len(payload) == 5 * (4 * numbers + categories + 2)
    assert len(numbers_payload(np.zeros((3, 2)), np.zeros(4))) == 40


def test_an_unknown_way_to_cut_is_refused() -> None:
    with pytest.raises(InputError, match="`clients` or by `site`"):
        _ = FddCf(by="hospital").client_split


class _Odd(Detector):
    threshold = 1.0  # type: ignore[assignment]

    def predict(self, values: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        return np.zeros(len(values))


def test_a_detector_is_never_scored_as_a_classifier() -> None:
    evaluation = Evaluation(DATA, Release(model=_Odd()), 0)
    with pytest.raises(NotComputable, match="detector"):
        _ = evaluation.predictor
