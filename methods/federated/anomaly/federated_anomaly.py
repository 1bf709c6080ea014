"""Federated detection of anomalies by reconstruction errors, with secure aggregation.

Federated distillation paper, sections 3.4 and 4.6. An autoencoder learns the rows of the more
frequent class (by declared counts). Every centre i computes the errors r_ij = |x_ij - x^_ij| of all
its rows (equation 9), the server learns n = sum 1, s = sum r and q = sum r^2 over all centres by
secure aggregation (`_secure_aggregation`), and flags rows with r > tau = mu + k sigma, mu = s / n,
sigma^2 = q / n - mu^2. The paper names an autoencoder "component of the main model" and leaves its
training and its shape open. `training` is one of

* `released`: on rows distilled at the centres with DP (sections 4.2 to 4.4), at the server. Nothing
  but the rows is asked of the centres, so that the training is post-processing;
* `federated`: federated averaging on the raw rows of the centres, without privacy;
* `federated-dp`: the same with DP-SGD at each centre, by per-row gradients through the kernel.

and `statistics` one of

* `exact`, as in the paper: secure aggregation hides what a centre has, not what all have together.
  A sum over all rows without noise is a raw look, and the ledger says so: a row that is added moves
  it by its own error, which the server can read off. No epsilon is proven.
* `noisy`: each centre adds Gaussian noise before masking, charged. With u = min(r / R, 1), where R
  is `reach` of the largest error that the schema allows, a row gives

      (u - 1/2, 4 (u - 1/2)^2 - 1/2),   both in [-1/2, 1/2], so that its norm is at most 1/sqrt(2);

  s and q follow with the declared number of rows, which is public. Every centre adds all the noise
  that it needs: it does not rely on the others, at the price of sqrt(centres) times the noise.

The budget is cut in two by `training_share`; each centre calibrates its own noise, and everything
is reserved before the first answer. The statistics are brought back to what errors in [0, R] can
have (0 <= mu <= R and 0 <= sigma^2 <= mu (R - mu)): with few rows the noise would leave that range.

The keys of secure aggregation come from the method's public generator, so that a study can be
repeated: it shows what the protocol costs and reveals, it does not protect this run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import numpy as np

from bench import (
    Claim,
    InputError,
    Method,
    NotApplicable,
    PlannedEvents,
    PrivateData,
    Release,
    Spec,
    Task,
    Traffic,
    gaussian,
)
from bench.methods.federated._clients import Setting, numbers_payload
from bench.methods.federated.anomaly import _secure_aggregation
from bench.methods.federated.anomaly._autoencoder import Array, Autoencoder, AutoencoderDetector
from bench.methods.federated.anomaly._training import (
    Averaged,
    AveragedPrivately,
    Centres,
    OnReleasedRows,
    Training,
)

_CLIP = math.sqrt(0.5)
"""Norm of what a row gives to the noisy statistics, at most."""


@final
@dataclass(frozen=True)
class FederatedAnomaly(Method):
    """Releases a detector, not rows."""

    name: ClassVar[str] = "federated-anomaly"
    title: ClassVar[str] = "Federated anomaly detection with secure aggregation"
    paper: ClassVar[str] = (
        "Xu, Jin and Su, Privacy-Enhanced Federated Data Distillation, sections 3.4 and 4.6"
    )
    uses_ipc: ClassVar[bool] = False
    quick: ClassVar[Mapping[str, Any]] = {"clients": 3, "steps": 50, "rounds": 2, "distil_steps": 5}

    by: str = "clients"
    """`clients`: label skew; `site`: the sites of the dataset."""
    clients: int = 10
    alpha: float = 0.5
    split_seed: int = 0
    training: Literal["released", "federated", "federated-dp"] = "released"
    statistics: Literal["exact", "noisy"] = "noisy"
    training_share: float = 0.7
    """Of epsilon; all of it where the statistics are exact."""
    deviations: float = 2.0
    """k, "typically 2 or 3"."""
    reach: float = 0.5
    """Noisy statistics cut errors at this share of the largest that the schema allows."""
    hidden: int = 32
    narrowing: float = 0.25
    """Units of the bottleneck for each column."""
    ratio: float = 0.05
    """Rows that each centre distils, as a share of its declared normal rows (`released`; table 3
    of the paper)."""
    distil_steps: int = 200
    steps: int = 2000
    """Of the server's training (`released`)."""
    batch: int = 64
    learning_rate: float = 0.003
    rounds: int = 25
    local_steps: int = 20
    """Of Adam in each round (`federated`)."""
    private_steps: int = 4
    """Of DP-SGD in each round (`federated-dp`)."""
    expected_batch: float = 256.0
    clip: float = 0.5
    private_learning_rate: float = 1.0
    bits: int = 24
    """After the binary point, in secure aggregation."""

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        if spec.task is not Task.CLASSIFICATION:
            raise NotApplicable(
                "the detector learns the rows of a table's more frequent class: censored rows of a "
                "cohort are no normal ones, and images need a convolutional autoencoder"
            )
        normal = int(np.argmax(private.counts.by_class))
        setting = Setting(self.by, self.clients, self.alpha, self.split_seed)
        centres = setting.centres.parts(private)
        network = Autoencoder.of(private.encoder, self.hidden, self.narrowing)
        training, traffic = self._training(network, normal), Traffic()
        noises = self._calibrated(training, centres)
        private.reserve_all(
            plan
            for name, centre in centres.items()
            for plan in noises[name].plans(training, centre)
        )
        multipliers = {name: each.training or 0.0 for name, each in noises.items()}
        weights = training.weights(centres, multipliers, traffic, rng)
        traffic.send("model", "down", numbers_payload(weights), copies=len(centres))
        threshold = self._threshold(network, weights, centres, noises, traffic, rng)
        return Release(
            model=AutoencoderDetector(network, weights, threshold),
            claim=self._claim(spec),
            notes={"threshold": threshold, "weights": float(network.count)},
            federation=setting.federation(traffic),
        )

    def _training(self, network: Autoencoder, normal: int) -> Training:
        if self.training == "released":
            # Imported here: the other ways need no distillation.
            from bench.methods.federated._characteristic import CfDistiller

            distiller = CfDistiller(steps=self.distil_steps)
            return OnReleasedRows(
                network,
                normal,
                distiller,
                self.ratio,
                self.steps,
                self.batch,
                self.learning_rate,
            )
        if self.training == "federated":
            return Averaged(
                network, normal, self.rounds, self.local_steps, self.learning_rate, self.batch
            )
        if self.training == "federated-dp":
            return AveragedPrivately(
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

    def _calibrated(self, training: Training, centres: Centres) -> dict[str, _Noises]:
        if self.statistics not in ("exact", "noisy"):
            raise InputError(f"statistics {self.statistics!r} is not known; use exact or noisy")
        noisy = self.statistics == "noisy"
        if not 0 < self.training_share < 1:
            raise InputError(f"training_share {self.training_share}: expected between 0 and 1")
        found = {}
        for name, centre in centres.items():
            for_training = None
            if training.private:
                share = self.training_share if noisy else 1.0
                epsilon = None if centre.budget is None else share * centre.budget.epsilon
                for_training = centre.calibrate(
                    lambda noise, centre=centre: training.plans(centre, noise),  # type: ignore[misc]
                    epsilon,
                )
            found[name] = _Noises(for_training, None)
            if noisy:
                # What is left: training and statistics are composed, not added up.
                found[name] = _Noises(
                    for_training,
                    centre.calibrate(
                        lambda noise, centre=centre, for_training=for_training: (  # type: ignore[misc]
                            _Noises(for_training, noise).plans(training, centre)
                        )
                    ),
                )
        return found

    def _threshold(
        self,
        network: Autoencoder,
        weights: Array,
        centres: Centres,
        noises: Mapping[str, _Noises],
        traffic: Traffic,
        rng: np.random.Generator,
    ) -> float:
        reach = self.reach * network.largest
        width = network.sizes[0]
        vectors = {}
        for name, centre in centres.items():
            noise = noises[name].statistics
            if noise is None:
                rows = centre.raw("sums of reconstruction errors over all centres, without noise")
                errors = network.errors(weights, rows.values[:, :width])
                vectors[name] = np.array([len(errors), errors.sum(), (errors**2).sum()])
                continue
            noisy = centre.gaussian_sum(
                lambda rows: _moments(network.errors(weights, rows.values[:, :width]) / reach),
                _CLIP,
                noise,
            )
            vectors[name] = _sums(noisy, centre.counts.total) * [1.0, reach, reach**2]
        code = _secure_aggregation.FixedPoint(self.bits)
        found = _secure_aggregation.aggregate(vectors, rng, traffic, code)
        limit = network.largest if self.statistics == "exact" else reach
        threshold = _threshold(found.total, limit, self.deviations)
        traffic.send(
            "anomaly statistics", "down", numbers_payload(np.array([threshold])), 4, len(centres)
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
    """(u - 1/2, 4 (u - 1/2)^2 - 1/2) of each row."""
    middle = np.minimum(shares, 1.0) - 0.5
    return np.column_stack([middle, 4.0 * middle**2 - 0.5])


def _sums(moments: Array, count: int) -> Array:
    """Count, sum of u and sum of u^2, from the sums of `_moments` over that many rows."""
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
class _Noises:
    """Noise multipliers of one centre; None where nothing is noised."""

    training: float | None
    statistics: float | None

    def plans(self, training: Training, centre: PrivateData) -> list[PlannedEvents]:
        """What will be asked of the centre."""
        plans = [] if self.training is None else list(training.plans(centre, self.training))
        if self.statistics is not None:
            plans.append(centre.plan(gaussian(self.statistics)))
        return plans
