"""Federated detection of anomalies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import pytest
import torch

from bench import PlannedEvents, PrivateData
from bench.data.dataset import Dataset
from bench.data.schema import Task
from bench.errors import InputError, NotApplicable
from bench.methods.federated._clients import Distiller
from bench.methods.federated.anomaly import federated_anomaly
from bench.methods.federated.anomaly._autoencoder import Autoencoder, AutoencoderDetector
from bench.methods.federated.anomaly.federated_anomaly import (
    FederatedAnomaly,
    TrainedByDpSgd,
    TrainedOnRawRows,
    TrainedOnReleasedRows,
)
from bench.plugins.method import Spec
from bench.plugins.release import Detector, Release, Rows, Traffic
from bench.plugins.source import build_dataset
from bench.privacy.accounting import Budget
from bench.privacy.events import gaussian
from bench.privacy.ledger import Ledger
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private
from tests.support.kernel import BUDGET, DATASET, opened
from tests.support.tables import ToyTable

ENCODER = DATASET.encoder
NETWORK = Autoencoder.of(ENCODER, hidden=5, narrowing=0.5)
SMALL = FederatedAnomaly(clients=3, hidden=8, steps=80, rounds=3, local_steps=5, private_steps=2)


@final
@dataclass(frozen=True)
class NoisyMeans(Distiller):
    """Stands for distillation: rows around one noisy mean."""

    def plans(self, client: PrivateData, noise: float) -> Sequence[PlannedEvents]:
        return [client.plan(gaussian(noise))]

    def distil(
        self,
        client: PrivateData,
        noise: float | None,
        sizes: Sequence[int],
        rng: np.random.Generator,
    ) -> Rows:
        assert noise
        total = client.gaussian_sum(lambda rows: rows.values, ENCODER.max_norm, noise)
        mean = np.clip(total / client.counts.total, -1, 1)
        labels = np.repeat(np.arange(len(sizes)), sizes)
        return Rows(mean + rng.normal(0, 0.1, (len(labels), ENCODER.width)), labels)


def fit(
    method: FederatedAnomaly, seed: int = 0, budget: Budget = BUDGET, data: Dataset = DATASET
) -> tuple[Release, Ledger]:
    noise = SeededNoise(np.random.default_rng(seed))
    private, ledger = open_private(data, budget, noise, check_rows=True)
    spec = Spec(Task.CLASSIFICATION, None, budget)
    return method.synthesize(private, spec, np.random.default_rng(seed)), ledger


@pytest.fixture
def distilled(monkeypatch):
    """The stand-in instead of the distiller, which takes seconds and has its own tests."""
    usual = FederatedAnomaly._training

    def training(self: FederatedAnomaly, network: Autoencoder, normal: int) -> Any:
        if self.training != "released":
            return usual(self, network, normal)
        return TrainedOnReleasedRows(network, normal, NoisyMeans(), 0.2, self.steps, 32, 0.01)

    monkeypatch.setattr(FederatedAnomaly, "_training", training)


# The network ------------------------------------------------------------------------------------


def test_gradients_of_rows_are_those_of_torch():
    rng = np.random.default_rng(0)
    weights = NETWORK.initial(rng) + rng.normal(0, 0.1, NETWORK.count)
    rows = DATASET.train.rows.values[:6]
    gradients = NETWORK.gradients(weights, rows)
    assert gradients.shape == (6, NETWORK.count)
    for row, gradient in zip(rows, gradients, strict=True):
        layers = [torch.tensor(layer, requires_grad=True) for layer in NETWORK.layers(weights)]
        inputs = torch.tensor(row[None], dtype=torch.float64)
        loss = (inputs - NETWORK._torch_forward(layers, inputs)).square().sum() / 2
        peers = torch.autograd.grad(loss, layers)
        peer = np.concatenate([each.numpy().ravel() for each in peers])
        np.testing.assert_allclose(gradient, peer, atol=1e-12)
    assert NETWORK.gradients(weights, rows[:0]).shape == (0, NETWORK.count)


def test_reconstructions_lie_within_the_schema_and_errors_below_the_largest():
    # Toy table: age, marker, smoker are numbers (off by 2 at most), stage a block of three.
    assert NETWORK.sizes == (6, 5, 2, 5, 6) and NETWORK.blocks == ((3, 6),)
    assert pytest.approx(math.sqrt(3 * 4 + 2)) == NETWORK.largest
    weights = NETWORK.initial(np.random.default_rng(0)) * 50
    rows = DATASET.train.rows.values
    back = NETWORK.reconstructed(weights, rows)
    assert np.abs(back[:, :3]).max() <= 1 and np.allclose(back[:, 3:].sum(axis=1), 1)
    np.testing.assert_allclose(
        NETWORK.errors(weights, rows), np.sqrt(((rows - back) ** 2).sum(axis=1))
    )
    assert NETWORK.errors(weights, rows * 100).max() == NETWORK.largest


def test_training_lowers_the_errors_and_follows_the_seed():
    rows = DATASET.train.rows.values
    start = NETWORK.initial(np.random.default_rng(0))
    first, again, other = (
        NETWORK.train(start, rows, 100, 32, 0.02, np.random.default_rng(seed)) for seed in (1, 1, 2)
    )
    assert NETWORK.errors(first, rows).mean() < 0.7 * NETWORK.errors(start, rows).mean()
    assert first.tobytes() == again.tobytes() != other.tobytes()


# The statistics ---------------------------------------------------------------------------------


def test_sums_come_back_from_the_centred_moments():
    shares = np.array([0.0, 0.2, 0.5, 1.0, 1.7])
    vectors = federated_anomaly._moments(shares)
    every = federated_anomaly._moments(np.linspace(0.0, 1.2, 1000))
    assert np.linalg.norm(every, axis=1).max() == pytest.approx(federated_anomaly._CLIP)
    np.testing.assert_allclose(
        vectors[[0, 2, 3]], [[0.5, -0.5, 0.5], [0.5, 0, -0.5], [0.5, 0.5, 0.5]]
    )
    cut = np.minimum(shares, 1.0)
    sums = federated_anomaly._sums(vectors.sum(axis=0)[1:], 5)
    np.testing.assert_allclose(sums, [5, cut.sum(), (cut**2).sum()])


def test_a_noisy_number_of_rows_counts_as_much_as_it_is_precise():
    # Deviation 20 against one of 10 of the declared number: a fifth of the way.
    assert federated_anomaly._count(150.0, 20.0, 100) == pytest.approx(110.0)
    assert federated_anomaly._count(150.0, 1e-9, 100) == pytest.approx(150.0)
    assert federated_anomaly._count(150.0, 1e9, 100) == pytest.approx(100.0)
    assert federated_anomaly._count(-1e6, 20.0, 100) == 0.0
    assert federated_anomaly._count(30.0, 20.0, 0) == 0.0


def test_the_threshold_by_hand_and_within_what_is_possible():
    # Errors 1, 2, 3: mean 2, variance 2/3.
    threshold = federated_anomaly._threshold(np.array([3.0, 6.0, 14.0]), 10.0, 2.0)
    assert threshold == pytest.approx(2 + 2 * math.sqrt(2 / 3))
    # Noise made the variance negative, the mean too large, or the variance impossible.
    assert federated_anomaly._threshold(np.array([3.0, 6.0, 2.0]), 10.0, 2.0) == 2.0
    assert federated_anomaly._threshold(np.array([3.0, 60.0, 14.0]), 10.0, 2.0) == 10.0
    assert federated_anomaly._threshold(np.array([2.0, 10.0, 1e9]), 10.0, 1.0) == 5.0 + 5.0


@pytest.mark.usefixtures("distilled")
def test_exact_statistics_are_those_of_all_rows_and_non_private_access():
    release, ledger = fit(replace(SMALL, statistics="exact", deviations=3.0))
    assert isinstance(release.model, Detector)
    errors = release.model.predict(DATASET.train.rows.values)
    assert release.model.threshold == pytest.approx(errors.mean() + 3 * errors.std(), abs=1e-4)
    proof = ledger.proof()
    assert math.isinf(proof.epsilon)
    assert any("reconstruction errors" in reason for reason in proof.reasons)
    assert release.claim is not None and "free" in release.claim.source


@pytest.mark.usefixtures("distilled")
@pytest.mark.parametrize("split_seed", range(4))
def test_noisy_statistics_are_exact_without_noise_and_charged(split_seed):
    """Training rows are 290 to 317 of these splits, and 300 by declaration."""
    plenty = Budget(1e5, 1e-5)
    data = build_dataset(ToyTable(), split_seed=split_seed)
    assert len(data.train) != data.counts.total
    release, ledger = fit(replace(SMALL, reach=1.0), budget=plenty, data=data)
    assert isinstance(release.model, AutoencoderDetector)
    errors = release.model.predict(data.train.rows.values)
    assert release.model.threshold == pytest.approx(errors.mean() + 2 * errors.std(), rel=0.05)
    assert ledger.proof().epsilon <= 1e5
    assert release.notes["threshold"] == release.model.threshold


# The whole --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("distilled")
@pytest.mark.parametrize("training", ["released", "federated-dp"])
def test_epsilon_is_proven_and_used_up(training):
    release, ledger = fit(replace(SMALL, training=training))
    proof = ledger.proof()
    assert 0.9 < proof.epsilon <= 1.0
    assert release.claim is not None and release.claim.epsilon == 1.0
    # Both halves are in the ledger of every client.
    statistics = [entry for entry in ledger.entries if entry.path[-1][0].startswith("client/3")]
    assert {entry.path[1][1] for entry in statistics} == {"0", "1", "2"}


@pytest.mark.usefixtures("distilled")
def test_a_larger_share_for_training_leaves_less_for_the_statistics():
    def noises(share: float) -> tuple[float, float]:
        method = replace(SMALL, training_share=share)
        private, _ = opened(BUDGET)
        calibrated = method._calibrated(method._training(NETWORK, 0), method.clients_of(private))
        noise = calibrated["1"]
        assert noise.training is not None and noise.statistics is not None
        return noise.training, noise.statistics

    little, much = noises(0.2), noises(0.8)
    assert little[0] > much[0] and little[1] < much[1]


def test_federated_training_is_non_private_access_without_a_claim():
    release, ledger = fit(replace(SMALL, training="federated", statistics="exact"))
    assert release.claim is None
    assert any("trained on the rows" in reason for reason in ledger.proof().reasons)
    model = release.model
    assert isinstance(model, AutoencoderDetector)
    start = model.network.initial(np.random.default_rng(0))
    usual = DATASET.test.rows.values[DATASET.test.rows.labels == 0]
    assert model.predict(usual).mean() < model.network.errors(start, usual).mean()


def test_one_client_that_holds_all_and_one_round_is_plain_training():
    private, _ = opened(None)
    rows, _ = private.partition("class").values()
    averaged = TrainedOnRawRows(NETWORK, 0, 1, 30, 0.01, 16)
    weights = averaged.weights({"all": private}, {}, Traffic(), np.random.default_rng(3))
    rng = np.random.default_rng(3)
    start = NETWORK.initial(rng)
    features = rows.raw("compared in a test").values
    np.testing.assert_array_equal(weights, NETWORK.train(start, features, 30, 16, 0.01, rng))


def test_a_private_step_without_noise_is_a_gradient_step():
    private, _ = opened(None)
    part, _ = private.partition("class").values()
    features = part.raw("compared in a test").values
    training = TrainedByDpSgd(NETWORK, 0, 1, 1, 0.5, 1e9, 1e6)
    weights = NETWORK.initial(np.random.default_rng(0))
    trained = training.local(part, weights, 1e-12, np.random.default_rng(0))
    mean = NETWORK.gradients(weights, features).sum(axis=0) / part.counts.total
    np.testing.assert_allclose(trained, weights - 0.5 * mean, atol=1e-6)


@pytest.mark.usefixtures("distilled")
def test_the_seed_decides_and_traffic_is_counted():
    first, again, other = (fit(SMALL, seed)[0] for seed in (0, 0, 4))
    models = [release.model for release in (first, again, other)]
    assert all(isinstance(model, AutoencoderDetector) for model in models)
    assert models[0].threshold == models[1].threshold != models[2].threshold
    assert first.federation is not None
    sent = {(each.phase, each.direction) for each in first.federation.transfers}
    assert sent == {
        ("release", "up"),
        ("model", "down"),
        ("anomaly statistics", "up"),
        ("anomaly statistics", "down"),
    }
    (model,) = [each for each in first.federation.transfers if each.phase == "model"]
    assert model.bytes == 3 * 4 * first.notes["weights"]


@pytest.mark.usefixtures("distilled")
def test_strange_rows_score_higher():
    ratios = []
    for seed in range(4):
        release, _ = fit(SMALL, seed, budget=Budget(10.0, 1e-5))
        assert release.model is not None
        usual = DATASET.test.rows.values[DATASET.test.rows.labels == 0]
        strange = np.random.default_rng(0).uniform(-1, 1, usual.shape)
        ratios.append(release.model.predict(strange).mean() / release.model.predict(usual).mean())
    # Between 1.2 and 1.4 by the noise of the rows that it is trained on.
    assert np.mean(ratios) > 1.3


def test_what_makes_no_sense_is_refused():
    for wrong, match in (
        ({"training": "magic"}, "training 'magic'"),
        ({"statistics": "none"}, "statistics 'none'"),
        ({"training_share": 1.0}, "training_share"),
        ({"by": "country"}, "country"),
    ):
        with pytest.raises(InputError, match=match):
            fit(replace(SMALL, **{"training": "federated-dp", **wrong}))
    private, _ = opened(BUDGET)
    with pytest.raises(NotApplicable, match="more frequent class"):
        SMALL.synthesize(private, Spec(Task.SURVIVAL, None, BUDGET), np.random.default_rng(0))
