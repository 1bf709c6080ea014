"""Federated averaging: rounds between a server and centres (McMahan et al. 2017).

Federated distillation paper, section 4.5. In round t the server sends the weights w_t to every
centre (down); centre i trains them further on its own rows (equation 7) and sends what it got (up);
the server averages (equation 8):

    w_{t+1} = sum_i (n_i / n) w_{i,t+1},        n = sum_i n_i,

with the declared numbers of rows n_i. Every centre takes part in every round, and starts each
round without memory of the last: moments of Adam do not outlive a round. Weights travel as float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import numpy.typing as npt

from bench import (
    EncodedRows,
    Federation,
    Floats,
    InputError,
    Method,
    NotApplicable,
    PlannedEvents,
    PrivateData,
    Task,
    Traffic,
    TrainedInRounds,
    sampled_gaussian,
)
from bench.methods.federated._clients import Setting, numbers_payload
from bench.methods.federated._network import Network, TrainedNetwork, Training, Weights

PHASE = "model"
"""Of the messages that carry weights."""

Update = Callable[[Weights], Weights]
"""What one centre makes of the weights it was sent."""


@dataclass(frozen=True)
class Averaging(Method):
    """Abstract: a method that trains one network at several centres."""

    by: str = "clients"
    """`clients` cuts the rows with label skew, `site` by the sites of the dataset."""
    clients: int = 10
    alpha: float = 0.5
    """Of the Dirichlet distribution of label shares: small is strong skew (table 2: 0.5)."""
    split_seed: int = 0

    def centres(self, private: PrivateData) -> Mapping[str, PrivateData]:
        """The centres' rows."""
        setting = self._setting
        if setting.centres.split == "site" and private.schema.site is None:
            raise NotApplicable('the dataset declares no sites; use by="clients"')
        return setting.centres.parts(private)

    def network(self, private: PrivateData, hidden: int) -> Network:
        """The network for a table or for images."""
        if private.task is Task.SURVIVAL:
            raise NotApplicable(
                "the paper trains a classifier, whose labels a survival cohort does not have"
            )
        return Network(private.encoder.feature_width, hidden, len(private.schema.classes))

    def federation(self, traffic: Traffic) -> Federation:
        """For the release."""
        return self._setting.federation(traffic)

    @property
    def _setting(self) -> Setting:
        return Setting(self.by, self.clients, self.alpha, self.split_seed)


@final
@dataclass(frozen=True)
class RoundsModel(TrainedInRounds):
    """All states of the network: before the first round, and after each."""

    network: Network
    states: npt.NDArray[np.float32]
    """(rounds + 1, weights)."""

    @property
    def rounds(self) -> int:
        return len(self.states) - 1

    def after(self, round: int) -> TrainedNetwork:
        if not 0 <= round <= self.rounds:
            raise InputError(f"round {round}: the model was trained in {self.rounds} rounds")
        return TrainedNetwork(self.network, self.states[round])

    def predict(self, values: Floats) -> npt.NDArray[np.float64]:
        return self.after(self.rounds).predict(values)

    def smoothed(self) -> RoundsModel:
        """After round t the mean of the states of rounds floor(t/2) + 1 to t instead.

        Post-processing that takes noise out: what the server sends is not changed by it. Round 0
        stays what it was.
        """
        sums = np.cumsum(self.states, axis=0, dtype=np.float64)
        ends = np.arange(1, len(self.states))
        means = (sums[ends] - sums[ends // 2]) / (ends - ends // 2)[:, None]
        return RoundsModel(
            self.network, np.concatenate([self.states[:1], means.astype(np.float32)])
        )


def shares(centres: Mapping[str, PrivateData]) -> npt.NDArray[np.float64]:
    """n_i / n of equation 8, from declared counts."""
    counts = np.array([centre.counts.total for centre in centres.values()], dtype=np.float64)
    return np.asarray(counts / counts.sum())


def averaged(states: Sequence[Weights], weights: npt.NDArray[np.float64]) -> Weights:
    """Equation 8."""
    return (weights @ np.stack(states).astype(np.float64)).astype(np.float32)


def in_rounds(
    network: Network,
    start: Weights,
    updates: Sequence[Update],
    weights: npt.NDArray[np.float64],
    rounds: int,
    traffic: Traffic,
) -> RoundsModel:
    """Train: every round each centre gets the weights, and sends back its own."""
    if rounds < 0:
        raise InputError(f"rounds {rounds}: there are 0 or more")
    states = [start]
    for number in range(1, rounds + 1):
        current = states[-1]
        traffic.send(PHASE, "down", numbers_payload(current), number, copies=len(updates))
        received: list[Weights] = []
        for update in updates:
            own = update(current)
            traffic.send(PHASE, "up", numbers_payload(own), number)
            received.append(own)
        states.append(averaged(received, weights))
    return RoundsModel(network, np.stack(states))


def plain_updates(
    network: Network,
    centres: Mapping[str, PrivateData],
    training: Training,
    reason: str,
    rng: np.random.Generator,
) -> list[Update]:
    """Training without noise on the rows of each centre, which the ledger records as raw looks."""

    def at(centre: PrivateData, own: np.random.Generator) -> Update:
        rows = centre.raw(reason)
        return lambda weights: training.run(network, weights, rows.values, rows.labels, own)

    return [
        at(centre, own)
        for centre, own in zip(centres.values(), rng.spawn(len(centres)), strict=True)
    ]


@final
@dataclass(frozen=True)
class NoisyTraining:
    """DP-SGD at one centre (Abadi et al. 2016, Algorithm 1), on a share `rate` of its rows a step.

    A step is w <- w - learning_rate s / (rate n_i), where s is the noisy sum of the gradients of a
    Poisson sample, each clipped: the kernel samples, clips, sums and adds the noise. One rate for
    all centres makes their noise multipliers equal, and with one local step the average over
    centres is one DP-SGD step on all rows with the noise of M centres instead of one.
    """

    steps: int
    """Local ones, in each round."""
    rate: float
    clip: float
    learning_rate: float
    noise_step: float
    """Largest norm that the noise of a step may have in the weights, see `tempered`."""

    def tempered(
        self, network: Network, centres: Mapping[str, PrivateData], noises: Mapping[str, float]
    ) -> NoisyTraining:
        """With a learning rate that suits the noise, from public numbers alone.

        The average over centres of one step each holds noise of standard deviation
        s = learning_rate C sqrt(sum of sigma_i^2) / (rate n) in each of P weights, of norm about
        s sqrt(P). Where that is more than `noise_step`, the learning rate is cut down to it: small
        tables and small budgets get shorter steps, the rule being the same for all.
        """
        rows = self.rate * sum(centre.counts.total for centre in centres.values())
        spread = math.sqrt(sum(noise**2 for noise in noises.values()) * network.size)
        longest = self.noise_step * rows / (self.clip * spread)
        return replace(self, learning_rate=min(self.learning_rate, longest))

    def plans(self, centre: PrivateData, noise: float, rounds: int) -> list[PlannedEvents]:
        """Everything that training will ask of one centre, in all rounds together."""
        return [centre.plan(sampled_gaussian(self.rate, noise), rounds * self.steps)]

    def update(self, network: Network, centre: PrivateData, noise: float) -> Update:
        """What the centre does in a round."""
        expected = max(1.0, self.rate * centre.counts.total)

        def run(weights: Weights) -> Weights:
            for _ in range(self.steps):
                current = weights

                def gradients(rows: EncodedRows, at: Weights = current) -> Weights:
                    return network.row_gradients(at, rows.values, rows.labels)

                total = centre.poisson_sum(gradients, self.clip, noise, self.rate)
                weights = (current - self.learning_rate / expected * total).astype(np.float32)
            return weights

        return run

    def calibrated(self, centres: Mapping[str, PrivateData], rounds: int) -> dict[str, float]:
        """Noise multiplier of each centre for what the ledger leaves of the budget.

        All of them before any is reserved: a reserved centre at its target would hide from the
        search that another is still below it.
        """
        return {
            name: centre.calibrate(
                lambda noise, centre=centre: self.plans(centre, noise, rounds)  # type: ignore[misc]
            )
            for name, centre in centres.items()
        }
