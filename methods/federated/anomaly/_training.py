"""How the autoencoder of a federated detector of anomalies is trained, and what that asks.

Federated distillation paper, sections 4.4 and 4.5. Only rows of the normal class are learned.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from bench import EncodedRows, PlannedEvents, PrivateData, Traffic, sampled_gaussian
from bench.methods.federated._clients import Distiller, by_ratio, distil_everywhere, numbers_payload
from bench.methods.federated.anomaly._autoencoder import Array, Autoencoder

Centres = Mapping[str, PrivateData]


@dataclass(frozen=True)
class Training(ABC):
    """A way to the weights of the autoencoder."""

    private: ClassVar[bool]
    """False where raw rows are read: there is no noise to calibrate."""

    network: Autoencoder
    normal: int
    """Code of the class that is learned."""

    @abstractmethod
    def plans(self, centre: PrivateData, noise: float) -> Sequence[PlannedEvents]:
        """What it asks of a centre at this noise multiplier."""

    @abstractmethod
    def weights(
        self,
        centres: Centres,
        noises: Mapping[str, float],
        traffic: Traffic,
        rng: np.random.Generator,
    ) -> Array:
        """The trained weights."""

    def normal_part(self, centre: PrivateData) -> PrivateData:
        """The rows of a centre that the detector learns from."""
        return list(centre.partition("class").values())[self.normal]

    @property
    def width(self) -> int:
        """Number of encoded features."""
        return self.network.sizes[0]


@final
@dataclass(frozen=True)
class OnReleasedRows(Training):
    """At the server, on rows that the centres distilled and sent: post-processing."""

    private: ClassVar[bool] = True

    distiller: Distiller
    ratio: float
    steps: int
    batch: int
    learning_rate: float

    def plans(self, centre: PrivateData, noise: float) -> Sequence[PlannedEvents]:
        return self.distiller.plans(centre, noise)

    def weights(
        self,
        centres: Centres,
        noises: Mapping[str, float],
        traffic: Traffic,
        rng: np.random.Generator,
    ) -> Array:
        sizes = by_ratio(centres, self.ratio)
        # Only rows that are used are sent.
        sizes[:, np.arange(sizes.shape[1]) != self.normal] = 0
        rows = distil_everywhere(self.distiller, centres, noises, sizes, traffic, rng)
        usual = rows.values[rows.labels == self.normal, : self.width]
        start = self.network.initial(rng)
        return self.network.train(start, usual, self.steps, self.batch, self.learning_rate, rng)


@dataclass(frozen=True)
class InRounds(Training):
    """Federated averaging: theta = sum_i n_i / n theta_i (equation 8), n_i the normal rows of i."""

    rounds: int
    local_steps: int
    learning_rate: float

    @abstractmethod
    def local(
        self, part: PrivateData, weights: Array, noise: float, rng: np.random.Generator
    ) -> Array:
        """The weights of a centre after its local steps."""

    def weights(
        self,
        centres: Centres,
        noises: Mapping[str, float],
        traffic: Traffic,
        rng: np.random.Generator,
    ) -> Array:
        parts = {name: self.normal_part(centre) for name, centre in centres.items()}
        parts = {name: part for name, part in parts.items() if part.counts.total}
        total = sum(part.counts.total for part in parts.values())
        weights = self.network.initial(rng)
        for number in range(1, self.rounds + 1):
            traffic.send("model", "down", numbers_payload(weights), number, copies=len(parts))
            mean = np.zeros_like(weights)
            for name, part in parts.items():
                own = self.local(part, weights, noises.get(name, 0.0), rng)
                traffic.send("model", "up", numbers_payload(own), number)
                mean += part.counts.total / total * own
            weights = mean
        return weights


@final
@dataclass(frozen=True)
class Averaged(InRounds):
    """On raw rows, with Adam."""

    private: ClassVar[bool] = False

    batch: int

    def plans(self, centre: PrivateData, noise: float) -> Sequence[PlannedEvents]:
        return []

    def local(
        self, part: PrivateData, weights: Array, noise: float, rng: np.random.Generator
    ) -> Array:
        rows = part.raw("an autoencoder is trained on the rows of each centre, without noise")
        if not len(rows):
            return weights
        features = rows.values[:, : self.width]
        steps = self.local_steps
        return self.network.train(weights, features, steps, self.batch, self.learning_rate, rng)


@final
@dataclass(frozen=True)
class AveragedPrivately(InRounds):
    """On clipped and noised sums of per-row gradients (Abadi et al. 2016, Algorithm 1)."""

    private: ClassVar[bool] = True

    expected_batch: float
    clip: float

    def plans(self, centre: PrivateData, noise: float) -> Sequence[PlannedEvents]:
        part = self.normal_part(centre)
        event = sampled_gaussian(part.rate(self.expected_batch), noise)
        return [part.plan(event, self.rounds * self.local_steps)]

    def local(
        self, part: PrivateData, weights: Array, noise: float, rng: np.random.Generator
    ) -> Array:
        rate = part.rate(self.expected_batch)
        expected = max(1.0, rate * part.counts.total)

        def gradients(rows: EncodedRows) -> Array:
            return self.network.gradients(weights, rows.values[:, : self.width])

        for _ in range(self.local_steps):
            total = part.poisson_sum(gradients, self.clip, noise, rate)
            weights = weights - self.learning_rate * total / expected
        return weights
