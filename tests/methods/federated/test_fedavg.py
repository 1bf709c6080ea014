"""Federated averaging: the network, the rounds, what is sent, and what the ledger says of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import pytest
import torch

from bench import PlannedEvents, PrivateData
from bench.data.dataset import Dataset
from bench.data.encoder import EncodedRows
from bench.errors import InputError, NotApplicable
from bench.methods.federated import _averaging, fdd_fedavg
from bench.methods.federated._averaging import (
    LocalTraining,
    Network,
    NoisyTraining,
    RoundsModel,
)
from bench.methods.federated._clients import Distiller
from bench.methods.federated.fdd_fedavg import FddFedAvg, as_received
from bench.methods.federated.fedavg import FedAvg
from bench.methods.federated.fedavg_client_dp import FedAvgClientDp
from bench.methods.federated.fedavg_dp import FedAvgDp
from bench.plugins.method import Method, Spec
from bench.plugins.release import Release, Rows, Traffic, TrainedInRounds, Transfer
from bench.plugins.source import build_dataset
from bench.privacy.accounting import Budget
from bench.privacy.events import gaussian
from bench.privacy.ledger import Ledger
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private
from bench.results.verdicts import Verdict, judge
from tests.support.tables import ToySurvival, ToyTable

RNG = np.random.default_rng(0)
DATASET = build_dataset(ToyTable())
BUDGET = Budget(1.0, 1e-5)


def fitted(
    method: Method, budget: Budget | None = BUDGET, data: Dataset = DATASET, seed: int = 0
) -> tuple[Release, Ledger]:
    budget = budget if method.uses_budget else None
    noise = SeededNoise(np.random.default_rng(seed))
    private, ledger = open_private(data, budget, noise, unit=method.unit)
    return method.synthesize(
        private, Spec(data.task, None, budget), np.random.default_rng(1)
    ), ledger


def accuracy(release: Release, data: Dataset = DATASET) -> float:
    test = data.test.rows
    return float((release.model.predict(test.values).argmax(axis=1) == test.labels).mean())


def some_rows(width: int, classes: int, count: int = 7) -> EncodedRows:
    return EncodedRows(
        RNG.uniform(-1, 1, (count, width)).astype(np.float32),
        RNG.integers(0, classes, count),
        np.zeros(count, dtype=np.int64),
        RNG.random(count),
    )


# The network -------------------------------------------------------------------------------------


def by_torch(network: Network, weights: np.ndarray, rows: EncodedRows) -> np.ndarray:
    """Gradient of the mean cross-entropy, by automatic differentiation."""
    flat = torch.tensor(weights.astype(np.float64), requires_grad=True)
    inside = (network.width + 1) * network.hidden
    active = torch.tensor(rows.values.astype(np.float64))
    if network.hidden:
        inner = flat[:inside].reshape(-1, network.hidden)
        active = torch.relu(active @ inner[:-1] + inner[-1])
    outer = flat[inside:].reshape(-1, network.classes)
    scores = active @ outer[:-1] + outer[-1]
    torch.nn.functional.cross_entropy(scores, torch.tensor(rows.labels)).backward()
    return flat.grad.numpy()


@pytest.mark.parametrize("hidden", [0, 4])
def test_gradients_are_those_of_automatic_differentiation(hidden: int) -> None:
    network, rows = Network(5, hidden, 3), some_rows(5, 3)
    weights = RNG.normal(size=network.size).astype(np.float32)
    mean = np.empty_like(weights)
    network.gradient(weights, network.inputs(rows.values), rows.labels, mean)
    each = network.row_gradients(weights, rows.values, rows.labels)
    expected = by_torch(network, weights, rows)
    assert mean == pytest.approx(expected, abs=1e-6)
    assert each.mean(axis=0) == pytest.approx(expected, abs=1e-6)
    for index in range(len(rows)):
        alone = by_torch(network, weights, rows.take(np.array([index])))
        assert each[index] == pytest.approx(alone, abs=1e-6)
    nothing = network.row_gradients(weights, rows.values[:0], rows.labels[:0])
    assert nothing.shape == (0, network.size)


def test_a_step_of_adam_is_that_of_torch() -> None:
    """Full batches, so that the random order does not matter."""
    network, rows = Network(4, 3, 2), some_rows(4, 2, 30)
    start = RNG.normal(size=network.size).astype(np.float32)
    ours = LocalTraining(epochs=25, batch=30, learning_rate=0.05).run(
        network, start, rows.values, rows.labels, np.random.default_rng(0)
    )
    theirs = torch.tensor(start.astype(np.float64))
    optimizer = torch.optim.Adam([theirs], lr=0.05)
    for _ in range(25):
        theirs.grad = torch.tensor(by_torch(network, theirs.numpy(), rows))
        optimizer.step()
    assert ours == pytest.approx(theirs.numpy(), abs=1e-3)
    assert np.abs(ours - start).max() > 0.1


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InputError, match="hidden -1"):
        Network(3, -1, 2)
    with pytest.raises(InputError, match="must be positive"):
        LocalTraining(epochs=0)
    with pytest.raises(InputError, match="`adam` and `sgd`"):
        LocalTraining(optimizer="lbfgs")  # type: ignore[arg-type]


# Rounds ------------------------------------------------------------------------------------------


def test_the_average_is_equation_8_by_hand() -> None:
    constant = [
        lambda _: np.array([1.0, 0.0], np.float32),
        lambda _: np.array([5.0, 8.0], np.float32),
    ]
    zero = np.zeros(2, np.float32)
    states = _averaging.in_rounds(zero, constant, np.array([0.75, 0.25]), 1, Traffic())
    assert states[1].tolist() == [2.0, 2.0]
    traffic = Traffic()
    updates = [lambda weights: weights + 1.0, lambda weights: 2.0 * weights]
    start = np.array([2.0, 4.0], np.float32)
    states = _averaging.in_rounds(start, updates, np.array([0.5, 0.5]), 2, traffic)
    # (3 + 4) / 2, (5 + 8) / 2; then (4.5 + 7) / 2, (7.5 + 13) / 2.
    assert states.tolist() == [[2.0, 4.0], [3.5, 6.5], [5.75, 10.25]]
    assert states.dtype == np.float32
    double = _averaging.in_rounds(start.astype(np.float64), updates, np.ones(2), 1, Traffic())
    assert double.dtype == np.float64
    assert traffic.transfers() == tuple(
        Transfer("model", number, direction, 2, 2 * 2 * 4)
        for number in (1, 2)
        for direction in ("down", "up")
    )


def test_smoothed_states_are_means_over_the_second_half_of_the_rounds_so_far() -> None:
    states = np.array([[9.0], [1.0], [2.0], [3.0], [6.0]], dtype=np.float32)
    model = RoundsModel(Network(0, 0, 1), states)
    assert model.smoothed().states.ravel().tolist() == [9.0, 1.0, 2.0, 2.5, 4.5]
    with pytest.raises(InputError, match="round 5"):
        model.after(5)


def test_one_client_with_full_batches_is_plain_gradient_descent() -> None:
    method = FedAvg(
        clients=1, hidden=0, rounds=5, epochs=1, batch=10**6, learning_rate=0.5, optimizer="sgd"
    )
    release, _ = fitted(method)
    rows, weights = DATASET.train.rows, np.zeros((6 + 1, 2))
    inputs = np.hstack([rows.values, np.ones((len(rows), 1))]).astype(np.float64)
    for number in range(1, 6):
        scores = inputs @ weights
        wrong = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        wrong[np.arange(len(rows)), rows.labels] -= 1.0
        weights = weights - 0.5 * inputs.T @ wrong / len(rows)
        assert release.model.states[number] == pytest.approx(weights.ravel(), abs=1e-5)


def test_two_clients_are_weighted_by_their_declared_rows() -> None:
    method = FedAvg(
        clients=2, hidden=0, rounds=1, epochs=1, batch=10**6, learning_rate=1.0, optimizer="sgd"
    )
    release, _ = fitted(method)
    private, _ = open_private(DATASET, None, SeededNoise(np.random.default_rng(0)))
    parts = method.clients_of(private)
    network, expected = Network(6, 0, 2), np.zeros(14)
    for part in parts.values():
        rows, gradient = part.raw("a test"), np.empty(14, dtype=np.float32)
        start = np.zeros(14, dtype=np.float32)
        network.gradient(start, network.inputs(rows.values), rows.labels, gradient)
        expected -= part.counts.total / sum(p.counts.total for p in parts.values()) * gradient
    assert len({part.counts.total for part in parts.values()}) == 2
    assert release.model.states[1] == pytest.approx(expected, abs=1e-6)


def test_fedavg_learns_keeps_every_state_and_counts_every_byte() -> None:
    release, ledger = fitted(FedAvg(rounds=8, clients=4, hidden=8, learning_rate=0.01))
    model = release.model
    assert isinstance(model, TrainedInRounds) and model.rounds == 8
    test = DATASET.test.rows.values
    assert model.predict(test).tolist() == model.after(8).predict(test).tolist()
    assert model.after(0).predict(test) == pytest.approx(0.5)
    assert model.predict(test).sum(axis=1) == pytest.approx(1.0, abs=1e-6)
    assert accuracy(release) > 0.72
    # (6 inputs + 1) x 8 + (8 + 1) x 2 weights.
    size = 4 * ((6 + 1) * 8 + (8 + 1) * 2)
    assert sum(item.bytes for item in release.federation.transfers) == size * 4 * 8 * 2
    assert {item.round for item in release.federation.transfers} == set(range(1, 9))
    assert release.claim is None and ledger.proof().epsilon == math.inf
    assert ledger.proof().reasons == ("federated averaging on local rows without noise",)


def test_a_client_without_rows_sends_back_what_it_got() -> None:
    weights = RNG.normal(size=Network(3, 2, 2).size).astype(np.float32)
    rows = some_rows(3, 2, 0)
    trained = LocalTraining().run(Network(3, 2, 2), weights, rows.values, rows.labels, RNG)
    assert trained.tolist() == weights.tolist()


@pytest.mark.parametrize("method", [FedAvg(), FedAvgDp(), FedAvgClientDp(), FddFedAvg()])
def test_survival_and_missing_sites_are_refused_with_a_reason(method: Method) -> None:
    with pytest.raises(NotApplicable, match="classifier"):
        fitted(method, data=build_dataset(ToySurvival()))
    with pytest.raises(NotApplicable, match="no sites"):
        fitted(replace(method, by="site"))  # type: ignore[type-var]


# With noise --------------------------------------------------------------------------------------


def test_with_little_noise_local_dp_sgd_is_plain_descent() -> None:
    """Nothing is clipped, everything is sampled: the sum of the gradients over the declared n."""
    private, _ = open_private(DATASET, None, SeededNoise(np.random.default_rng(0)))
    network, rows = Network(6, 0, 2), DATASET.train.rows
    training = NoisyTraining(3, rate=1.0, clip=100.0, learning_rate=0.3, noise_step=2.0)
    trained = training.update(network, private, 1e-6)(np.zeros(14, dtype=np.float32))
    expected = np.zeros(14, dtype=np.float32)
    for _ in range(3):
        total = network.row_gradients(expected, rows.values, rows.labels).sum(axis=0)
        expected = expected - 0.3 * total / private.counts.total
    assert trained == pytest.approx(expected, abs=1e-4)


def test_steps_are_shortened_to_the_noise_that_they_may_carry() -> None:
    """Two clients of 300 rows together: noise 3 and 4 make 5; 16 weights make 4 times that."""
    private, _ = open_private(DATASET, None, SeededNoise(np.random.default_rng(0)))
    clients = FedAvgDp(clients=2).clients_of(private)
    assert sum(client.counts.total for client in clients.values()) == 300
    training = NoisyTraining(1, rate=0.5, clip=2.0, learning_rate=8.0, noise_step=0.8)
    noises = dict(zip(clients, (3.0, 4.0), strict=True))
    tempered = training.tempered(Network(7, 0, 2), clients, noises)
    assert tempered.learning_rate == pytest.approx(0.8 * 0.5 * 300 / (2.0 * 5 * 4))
    assert replace(training, learning_rate=1.0).tempered(
        Network(7, 0, 2), clients, noises
    ).learning_rate == pytest.approx(1.0)


def test_a_batch_and_epochs_are_a_rate_and_steps_of_the_mean_client() -> None:
    assert FedAvgDp().sampling(100.0) == (1, 0.5)
    assert FedAvgDp(batch=32).sampling(24_420 / 10) == (382, 32 / 2442)
    assert FedAvgDp(batch=32, epochs=2).sampling(10.0) == (2, 1.0)
    with pytest.raises(InputError, match="expected 1 or more"):
        FedAvgDp(batch=0).sampling(10.0)
    release, ledger = fitted(FedAvgDp(clients=2, rounds=2, batch=30, epochs=1))
    # 300 declared rows, 150 for each of two clients: five steps in each of two rounds.
    assert sorted(ledger.entries.values()) == [10, 10]
    assert judge(BUDGET, release.claim, ledger.proof()).verdict is Verdict.SOUND


def test_fedavg_dp_spends_the_budget_once_and_learns() -> None:
    source = ToyTable(negatives=3000, positives=3000)
    data = build_dataset(source)
    release, ledger = fitted(
        FedAvgDp(clients=3, rounds=10, learning_rate=20.0, noise_step=9.0), data=data
    )
    proof = ledger.proof()
    assert 0.99 < proof.epsilon <= 1.0
    assert judge(BUDGET, release.claim, proof).verdict is Verdict.SOUND
    assert all(not entry.adaptive for entry in ledger.entries)
    assert sorted(ledger.entries.values()) == [10, 10, 10]
    found = []
    method = FedAvgDp(clients=3, rounds=10, learning_rate=20.0, noise_step=9.0)
    for split_seed in range(4):
        other = build_dataset(source, split_seed=split_seed)
        found += [accuracy(fitted(method, data=other, seed=seed)[0], other) for seed in range(5)]
    # Between 0.6 and 0.78 by the noise, with a standard error of the mean of 0.01; a coin has 0.5.
    assert np.mean(found) > 0.65
    assert sum(item.bytes for item in release.federation.transfers) == 4 * 14 * 3 * 10 * 2


def test_clients_are_hidden_whole_at_twice_the_clip() -> None:
    """Noise of the sum is 2 S sigma in each weight, divided by the number of clients."""
    method = FedAvgClientDp(clients=4, rounds=1, clip=0.5, hidden=40)
    release, ledger = fitted(method)
    step = release.model.states[1] - release.model.states[0]
    scale = 2 * 0.5 * release.notes["noise_multiplier"] / 4
    # The clipped updates add 0.5 to the norm at most; there are 362 weights.
    assert np.linalg.norm(step) == pytest.approx(scale * math.sqrt(len(step)), rel=0.15)
    assert ledger.unit == "client" and 0.99 < ledger.proof().epsilon <= 1.0
    (entry,) = ledger.entries
    assert entry.event == gaussian(release.notes["noise_multiplier"])
    assert sum(item.bytes for item in release.federation.transfers) == 4 * len(step) * 4 * 2


def test_client_updates_are_clipped_as_a_whole_and_averaged_evenly() -> None:
    """At a budget without meaning the step is the mean of the cut updates."""
    settings = {"clients": 2, "hidden": 0, "learning_rate": 0.05}
    method = FedAvgClientDp(rounds=1, epochs=40, batch=10**6, clip=0.01, **settings)
    release, _ = fitted(method, Budget(1e7, 1e-5))
    private, _ = open_private(DATASET, None, SeededNoise(np.random.default_rng(0)))
    network, start = Network(6, 0, 2), np.zeros(14, dtype=np.float32)
    training, cut = LocalTraining(40, 10**6, 0.05), []
    for part in method.clients_of(private).values():
        rows = part.raw("a test")
        update = training.run(network, start, rows.values, rows.labels, RNG)
        assert np.linalg.norm(update) > 0.1
        cut.append(0.01 * update / np.linalg.norm(update))
    noise = 2 * 0.01 * release.notes["noise_multiplier"] / 2
    assert release.model.states[1] == pytest.approx(np.mean(cut, axis=0), abs=4 * noise + 1e-6)
    assert noise < 1e-3


# Distillation before the rounds ------------------------------------------------------------------


@final
@dataclass(frozen=True)
class FakeDistiller(Distiller):
    """The public middle of each class, whatever the rows: one Gaussian mechanism for show."""

    def plans(self, client: PrivateData, noise: float) -> Sequence[PlannedEvents]:
        return [client.plan(gaussian(noise))]

    def distil(
        self,
        client: PrivateData,
        noise: float | None,
        sizes: Sequence[int],
        rng: np.random.Generator,
    ) -> Rows:
        if noise is not None:
            client.gaussian_sum(lambda rows: np.ones((len(rows), 1)), 1.0, noise)
        labels = np.repeat(np.arange(len(sizes)), sizes)
        values = np.zeros((len(labels), client.width), dtype=np.float32)
        # The second class lies higher in `marker`, as it does in the rows.
        values[:, 1] = np.where(labels == 1, 0.2, 0.0) + rng.normal(0, 0.05, len(labels))
        return Rows(values, labels)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fdd_fedavg, "FddDistiller", FakeDistiller)
    monkeypatch.setattr(fdd_fedavg, "RawDistiller", FakeDistiller)


SMALL = FddFedAvg(
    clients=3,
    rounds=2,
    epochs=1,
    hidden=8,
    ratio=0.5,
    pretrain_epochs=50,
    private_rounds=4,
    private_rate=1.0,
    learning_rate=0.01,
)


@pytest.mark.usefixtures("fake")
def test_plain_tuning_takes_the_guarantee_away_and_says_so() -> None:
    release, ledger = fitted(SMALL)
    assert ledger.spent()[0] <= 1.0
    assert ledger.proof().reasons == ("fine-tuning on local rows without noise",)
    assert release.claim.epsilon == 1.0 and "distilled rows alone" in release.claim.source
    assert judge(BUDGET, release.claim, ledger.proof()).verdict is Verdict.UNPROVEN
    assert release.model.rounds == 2


@pytest.mark.usefixtures("fake")
def test_without_tuning_the_model_is_the_pre_trained_one_and_sound() -> None:
    release, ledger = fitted(replace(SMALL, tuning="none"))
    assert release.model.rounds == 0 and 0.99 < ledger.proof().epsilon <= 1.0
    # Of some 100 test rows the accuracy has a standard error of 0.04: more of the same kind.
    assert accuracy(release, build_dataset(ToyTable(negatives=1800, positives=1200))) > 0.75
    # Half of 300 rows: two numbers, two small categories, one label.
    (sent,) = release.federation.transfers
    assert (sent.phase, sent.direction, sent.messages) == ("release", "up", 3)
    assert sent.bytes == pytest.approx(150 * (2 * 4 + 2 * 1 + 2), rel=0.05)


@pytest.mark.usefixtures("fake")
def test_private_tuning_shares_the_budget_before_the_first_answer() -> None:
    release, ledger = fitted(replace(SMALL, tuning="private", release_share=0.3))
    assert 0.99 < ledger.proof().epsilon <= 1.0
    assert all(not entry.adaptive for entry in ledger.entries)
    distilled = Ledger(BUDGET, entries={e: n for e, n in ledger.entries.items() if n == 1})
    assert len(distilled.entries) == 3
    assert distilled.spent()[0] == pytest.approx(0.3, abs=0.002)
    assert judge(BUDGET, release.claim, ledger.proof()).verdict is Verdict.SOUND
    assert release.model.rounds == 4
    phases = {item.phase: 0 for item in release.federation.transfers}
    for item in release.federation.transfers:
        phases[item.phase] += item.bytes
    assert phases["model"] == 4 * ((6 + 1) * 8 + 9 * 2) * 3 * 4 * 2


@pytest.mark.usefixtures("fake")
def test_starts_without_noise_or_without_rows_claim_nothing() -> None:
    for tuning in ("plain", "private"):
        release, _ = fitted(replace(SMALL, start="fdd-nodp", tuning=tuning))
        assert release.claim is None
    release, _ = fitted(replace(SMALL, start="none"))
    assert release.claim is None
    assert {item.phase for item in release.federation.transfers} == {"model"}
    assert release.model.after(0).predict(DATASET.test.rows.values) == pytest.approx(0.5)


def test_pipelines_that_train_nothing_or_are_misspelt_are_refused() -> None:
    with pytest.raises(InputError, match="trains nothing"):
        fitted(replace(SMALL, start="none", tuning="none"))
    with pytest.raises(InputError, match="fdd-nodp"):
        fitted(replace(SMALL, start="fddd"))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="plain"):
        fitted(replace(SMALL, tuning="some"))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="release_share"):
        fitted(replace(SMALL, release_share=1.0))


def test_the_server_trains_on_what_was_sent() -> None:
    """Age, marker, smoker (sign), stage (largest of three)."""
    soft = np.array([[0.5, -0.25, 0.1, 0.2, 0.5, 0.3], [1.0, 0.0, -3.0, 0.9, 0.0, 0.1]])
    received = as_received(DATASET.encoder, Rows(soft, np.array([0, 1])))
    assert received.values.tolist() == [[0.5, -0.25, 1, 0, 1, 0], [1, 0, -1, 1, 0, 0]]
