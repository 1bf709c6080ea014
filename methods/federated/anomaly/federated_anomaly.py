"""Federated detection of anomalies by reconstruction errors, with secure aggregation.

Federated distillation paper, sections 3.4 and 4.6. An autoencoder learns the rows of the more
frequent class (by declared counts). Every client i computes the errors r_ij = |x_ij - x^_ij| of all
its rows (equation 9), the server learns n = sum 1, s = sum r and q = sum r^2 over all clients by
secure aggregation (`_secure_aggregation`), and flags rows with r > tau = mu + k sigma, mu = s / n,
sigma^2 = q / n - mu^2. The paper names an autoencoder "component of the main model" and leaves its
training and its shape open. `training` is one of

* `released`: on rows distilled at the clients with DP (sections 4.2 to 4.4), at the server. Nothing
  but the rows is asked of the clients, so that the training is post-processing;
* `federated`: federated averaging on the raw rows of the clients, without privacy;
* `federated-dp`: the same with DP-SGD at each client, by per-row gradients through the kernel.

and `statistics` one of

* `exact`, as in the paper: secure aggregation hides what a client has, not what all have together.
  A sum over all rows without noise is non-private access, and the ledger says so: a row that is
  added moves it by its error, which the server can read off. No epsilon is proven.
* `noisy`: each client adds Gaussian noise before masking, charged. With u = min(r / R, 1), where R
  is `reach` of the largest error that the schema allows, a row adds

      (1/2, u - 1/2, 4 (u - 1/2)^2 - 1/2),   all in [-1/2, 1/2]; its norm is at most sqrt(3)/2,

  since with t = (u - 1/2)^2 in [0, 1/4] the last two have 16 t^2 - 3 t + 1/4 <= 1/2. n is the mean
  of the declared number of rows and of the noisy one, weighted by their precision, and s and q
  follow. The declared number alone does not do: rows come to a split, and to a client, by chance,
  and n / 2 is added to the centred sums: where u is about 0.3, 5% more rows than declared would
  take 0.009 R^2 from sigma^2, often more than all of it. Every client adds all the noise that it
  needs: it does not rely on the others, at the price of sqrt(clients) times the noise.

The budget is cut in two by `training_share`; each client calibrates its own noise, and everything
is reserved before the first answer. The statistics are brought back to what errors in [0, R] can
have (0 <= mu <= R and 0 <= sigma^2 <= mu (R - mu)): with few rows the noise would leave that range.

The keys of secure aggregation come from the method's public generator, so that a study can be
repeated: it shows what the protocol costs and reveals, it does not protect this run.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import numpy as np

from bench import (
    Claim,
    EncodedRows,
    InputError,
    NotApplicable,
    PlannedEvents,
    PrivateData,
    Release,
    Spec,
    Task,
    Traffic,
    gaussian,
    sampled_gaussian,
)
from bench.methods.federated._averaging import in_rounds, shares
from bench.methods.federated._characteristic import CfDistiller
from bench.methods.federated._clients import (
    ClientData,
    Distiller,
    FederatedMethod,
    by_ratio,
    distil_everywhere,
    numbers_payload,
)
from bench.methods.federated.anomaly import _secure_aggregation
from bench.methods.federated.anomaly._autoencoder import Array, Autoencoder, AutoencoderDetector

_CLIP = math.sqrt(0.75)
"""Largest norm of what a row adds to the noisy statistics."""


@final
@dataclass(frozen=True)
class FederatedAnomaly(FederatedMethod):
    """Releases a detector, not rows."""

    name: ClassVar[str] = "federated-anomaly"
    title: ClassVar[str] = "Federated anomaly detection with secure aggregation"
    paper: ClassVar[str] = (
        "Xu, Jin and Su, Privacy-Enhanced Federated Data Distillation, sections 3.4 and 4.6"
    )
    family: ClassVar[str] = "anomaly detector"
    tuned_on: ClassVar[tuple[str, ...]] = ("adult", "unknown")
    uses_ipc: ClassVar[bool] = False
    quick: ClassVar[Mapping[str, Any]] = {"clients": 3, "steps": 50, "rounds": 2, "distil_steps": 5}

    training: Literal["released", "federated", "federated-dp"] = "released"
    statistics: Literal["exact", "noisy"] = "noisy"
    training_share: float = 0.7
    """Share of epsilon for training; all of it where the statistics are exact."""
    deviations: float = 2.0
    """k, "typically 2 or 3"."""
    reach: float = 0.5
    """Noisy statistics cut errors at this share of the largest that the schema allows."""
    hidden: int = 32
    narrowing: float = 0.25
    """Units of the bottleneck for each column."""
    ratio: float = 0.05
    """Rows that each client distils, as a share of its declared normal rows (`released`; table 3
    of the paper)."""
    distil_steps: int = 200
    steps: int = 2000
    """Steps of the server's training (`released`)."""
    batch: int = 64
    learning_rate: float = 0.003
    rounds: int = 25
    local_steps: int = 20
    """Steps of Adam in each round (`federated`)."""
    private_steps: int = 4
    """Steps of DP-SGD in each round (`federated-dp`)."""
    expected_batch: float = 256.0
    clip: float = 0.5
    private_learning_rate: float = 1.0
    bits: int = 24
    """Bits after the binary point, in secure aggregation."""

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        if spec.task is not Task.CLASSIFICATION:
            raise NotApplicable(
                "the detector learns the rows of a table's more frequent class: censored rows of a "
                "survival dataset are no normal ones, and images need a convolutional autoencoder"
            )
        normal = int(np.argmax(private.counts.by_class))
        clients = self.clients_of(private)
        network = Autoencoder.of(private.encoder, self.hidden, self.narrowing)
        training, traffic = self._training(network, normal), Traffic()
        noises = self._calibrated(training, clients)
        private.reserve_all(
            plan
            for name, client in clients.items()
            for plan in noises[name].plans(training, client)
        )
        multipliers = {name: each.training or 0.0 for name, each in noises.items()}
        weights = training.weights(clients, multipliers, traffic, rng)
        traffic.send("model", "down", numbers_payload(weights), copies=len(clients))
        threshold = self._threshold(network, weights, clients, noises, traffic, rng)
        return Release(
            model=AutoencoderDetector(network, weights, threshold),
            claim=self._claim(spec),
            notes={"threshold": threshold, "weights": float(network.count)},
            federation=self.federation(traffic),
        )

    def _training(self, network: Autoencoder, normal: int) -> DetectorTraining:
        if self.training == "released":
            return TrainedOnReleasedRows(
                network,
                normal,
                CfDistiller(steps=self.distil_steps),
                self.ratio,
                self.steps,
                self.batch,
                self.learning_rate,
            )
        if self.training == "federated":
            return TrainedOnRawRows(
                network, normal, self.rounds, self.local_steps, self.learning_rate, self.batch
            )
        if self.training == "federated-dp":
            return TrainedByDpSgd(
                network,
                normal,
                self.rounds,
                self.private_steps,
                self.private_learning_rate,
                self.expected_batch,
                self.clip,
            )
        raise InputError(
            f"training {self.training!r} is not known; use released, federated or federated-dp"
        )

    def _calibrated(
        self, training: DetectorTraining, clients: ClientData
    ) -> dict[str, _ClientNoise]:
        if self.statistics not in ("exact", "noisy"):
            raise InputError(f"statistics {self.statistics!r} is not known; use exact or noisy")
        noisy = self.statistics == "noisy"
        if not 0 < self.training_share < 1:
            raise InputError(f"training_share {self.training_share}: expected between 0 and 1")
        noises = {}
        for name, client in clients.items():
            for_training = None
            if training.private:
                share = self.training_share if noisy else 1.0
                epsilon = None if client.budget is None else share * client.budget.epsilon
                for_training = client.calibrate(
                    lambda noise, client=client: training.plans(client, noise),  # type: ignore[misc]
                    epsilon,
                )
            for_statistics = None
            if noisy:
                # What is left: training and statistics are composed, not added up.
                for_statistics = client.calibrate(
                    lambda noise, client=client, for_training=for_training: (  # type: ignore[misc]
                        _ClientNoise(for_training, noise).plans(training, client)
                    )
                )
            noises[name] = _ClientNoise(for_training, for_statistics)
        return noises

    def _threshold(
        self,
        network: Autoencoder,
        weights: Array,
        clients: ClientData,
        noises: Mapping[str, _ClientNoise],
        traffic: Traffic,
        rng: np.random.Generator,
    ) -> float:
        reach = self.reach * network.largest
        width = network.sizes[0]
        vectors = {}
        for name, client in clients.items():
            noise = noises[name].statistics
            if noise is None:
                rows = client.raw("sums of reconstruction errors over all clients, without noise")
                errors = network.errors(weights, rows.values[:, :width])
                vectors[name] = np.array([len(errors), errors.sum(), (errors**2).sum()])
                continue
            noisy = client.gaussian_sum(
                lambda rows: _moments(network.errors(weights, rows.values[:, :width]) / reach),
                _CLIP,
                noise,
            )
            count = _count(2.0 * noisy[0], 2.0 * _CLIP * noise, client.counts.total)
            vectors[name] = _sums(noisy[1:], count) * [1.0, reach, reach**2]
        code = _secure_aggregation.FixedPoint(self.bits)
        sums = _secure_aggregation.aggregate(vectors, rng, traffic, code).total
        limit = network.largest if self.statistics == "exact" else reach
        threshold = _threshold(sums, limit, self.deviations)
        traffic.send(
            "anomaly statistics", "down", numbers_payload(np.array([threshold])), 4, len(clients)
        )
        return threshold

    def _claim(self, spec: Spec) -> Claim | None:
        if self.training == "federated":
            return None
        if self.statistics == "exact":
            source = "the paper charges training alone; exact sums by secure aggregation are free"
        else:
            source = "Gaussian noise on training and statistics, calibrated to the target"
        return Claim.of(spec.budget, source)


def _moments(shares: Array) -> Array:
    """(1/2, u - 1/2, 4 (u - 1/2)^2 - 1/2) of each row."""
    middle = np.minimum(shares, 1.0) - 0.5
    return np.column_stack([np.full_like(middle, 0.5), middle, 4.0 * middle**2 - 0.5])


def _count(noisy: float, deviation: float, declared: int) -> float:
    """Mean of a noisy and a declared number of rows, weighted by their precision.

    A number of rows that come by chance has a variance of at most its mean.
    """
    weight = declared / (declared + deviation**2)
    return max(0.0, declared + weight * (noisy - declared))


def _sums(moments: Array, count: float) -> Array:
    """Count, sum of u and sum of u^2, from the sums of u - 1/2 and 4 (u - 1/2)^2 - 1/2."""
    middle, square = moments[0], (moments[1] + 0.5 * count) / 4.0
    total = middle + 0.5 * count
    return np.array([count, total, square + total - 0.25 * count])


def _threshold(sums: Array, largest: float, deviations: float) -> float:
    """mu + k sigma of errors in [0, largest], with mu and sigma brought into what is possible."""
    count, total, squares = sums
    mean = float(np.clip(total / max(count, 1.0), 0.0, largest))
    variance = float(np.clip(squares / max(count, 1.0) - mean**2, 0.0, mean * (largest - mean)))
    return mean + deviations * math.sqrt(variance)


@final
@dataclass(frozen=True)
class _ClientNoise:
    """Noise multipliers of one client; None where no noise is added."""

    training: float | None
    statistics: float | None

    def plans(self, training: DetectorTraining, client: PrivateData) -> list[PlannedEvents]:
        """Return what will be asked of the client."""
        plans = [] if self.training is None else list(training.plans(client, self.training))
        if self.statistics is not None:
            plans.append(client.plan(gaussian(self.statistics)))
        return plans


# Training the autoencoder ------------------------------------------------------------------------


@dataclass(frozen=True)
class DetectorTraining(ABC):
    """How the autoencoder is trained, and what that asks of the clients (sections 4.4 and 4.5).

    Only rows of the normal class are learned.
    """

    private: ClassVar[bool]
    """False where raw rows are read: there is no noise to calibrate."""

    network: Autoencoder
    normal: int
    """Code of the class that is learned."""

    @abstractmethod
    def plans(self, client: PrivateData, noise: float) -> Sequence[PlannedEvents]:
        """Return what training asks of a client at this noise multiplier."""

    @abstractmethod
    def weights(
        self,
        clients: ClientData,
        noises: Mapping[str, float],
        traffic: Traffic,
        rng: np.random.Generator,
    ) -> Array:
        """Return the trained weights."""

    def normal_part(self, client: PrivateData) -> PrivateData:
        """Return the rows of a client that the detector learns from."""
        return list(client.partition("class").values())[self.normal]

    @property
    def width(self) -> int:
        """Number of encoded features."""
        return self.network.sizes[0]


@final
@dataclass(frozen=True)
class TrainedOnReleasedRows(DetectorTraining):
    """Training at the server on rows that the clients distilled: post-processing."""

    private: ClassVar[bool] = True

    distiller: Distiller
    ratio: float
    steps: int
    batch: int
    learning_rate: float

    def plans(self, client: PrivateData, noise: float) -> Sequence[PlannedEvents]:
        return self.distiller.plans(client, noise)

    def weights(
        self,
        clients: ClientData,
        noises: Mapping[str, float],
        traffic: Traffic,
        rng: np.random.Generator,
    ) -> Array:
        sizes = by_ratio(clients, self.ratio)
        # Only rows that are used are sent.
        sizes[:, np.arange(sizes.shape[1]) != self.normal] = 0
        rows = distil_everywhere(self.distiller, clients, noises, sizes, traffic, rng)
        usual = rows.values[rows.labels == self.normal, : self.width]
        start = self.network.initial(rng)
        return self.network.train(start, usual, self.steps, self.batch, self.learning_rate, rng)


@dataclass(frozen=True)
class InRounds(DetectorTraining):
    """Abstract: federated averaging (equation 8), weighted by the normal rows of each client."""

    rounds: int
    local_steps: int
    learning_rate: float

    @abstractmethod
    def local(
        self, part: PrivateData, weights: Array, noise: float, rng: np.random.Generator
    ) -> Array:
        """Weights of a client after its local steps."""

    def weights(
        self,
        clients: ClientData,
        noises: Mapping[str, float],
        traffic: Traffic,
        rng: np.random.Generator,
    ) -> Array:
        parts = {name: self.normal_part(client) for name, client in clients.items()}
        parts = {name: part for name, part in parts.items() if part.counts.total}

        def update_of(part: PrivateData, noise: float) -> Callable[[Array], Array]:
            return lambda weights: self.local(part, weights, noise, rng)

        states = in_rounds(
            self.network.initial(rng),
            [update_of(part, noises.get(name, 0.0)) for name, part in parts.items()],
            shares(parts),
            self.rounds,
            traffic,
        )
        trained: Array = states[-1]
        return trained


@final
@dataclass(frozen=True)
class TrainedOnRawRows(InRounds):
    """Rounds on raw rows, with Adam."""

    private: ClassVar[bool] = False

    batch: int

    def plans(self, client: PrivateData, noise: float) -> Sequence[PlannedEvents]:
        return []

    def local(
        self, part: PrivateData, weights: Array, noise: float, rng: np.random.Generator
    ) -> Array:
        rows = part.raw("an autoencoder is trained on the rows of each client, without noise")
        if not len(rows):
            return weights
        features = rows.values[:, : self.width]
        steps = self.local_steps
        return self.network.train(weights, features, steps, self.batch, self.learning_rate, rng)


@final
@dataclass(frozen=True)
class TrainedByDpSgd(InRounds):
    """Rounds on clipped, noisy sums of per-row gradients (Abadi et al. 2016, Algorithm 1)."""

    private: ClassVar[bool] = True

    expected_batch: float
    clip: float

    def plans(self, client: PrivateData, noise: float) -> Sequence[PlannedEvents]:
        part = self.normal_part(client)
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
