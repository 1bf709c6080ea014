"""A model trained directly with DP-SGD: what the budget buys without synthetic rows.

Abadi et al., Deep Learning with Differential Privacy (CCS 2016), Algorithm 1: in each step the
gradients of a Poisson sample are clipped one by one, summed, noised and applied. The kernel does
the sampling, clipping and noise; the noise is calibrated to the budget for all steps at once.

* Two or more classes: softmax regression, or one hidden tanh layer (`hidden` > 0; tanh is the
  choice of Papernot et al. 2021 for DP-SGD, whose gradients stay bounded).
* Survival: Cox's partial likelihood has no gradient of a single row, so the hazard is piecewise
  constant over equal pieces of the public time range: exp(a_j + x'b) in piece j. The released risk
  is x'b. With d_j = 1 for an event in piece j and t_j the time spent there (as a share of the
  range), the gradient of a row's log-likelihood sum_j d_j (a_j + x'b) - t_j exp(a_j + x'b) is
  r_j = d_j - t_j exp(a_j + x'b) for a_j, and x sum_j r_j for b.

The released weights are the mean over the second half of the steps: post-processing that takes
noise out. The settings are the same for every dataset.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt

from bench import (
    Claim,
    EncodedRows,
    Encoder,
    Floats,
    Method,
    PrivateData,
    Release,
    ReleasedModel,
    Spec,
    Task,
    sampled_gaussian,
)

Array = npt.NDArray[np.float64]
Gradients = Callable[[Array, EncodedRows], Array]
"""(weights, rows) to one ascent direction per row: the gradient of its log-likelihood."""

_PIECES = 8
"""Pieces of the time range, for survival."""

_EXPONENT = 20.0
"""Log hazards per time range are cut at this, so that they do not overflow."""


@final
@dataclass(frozen=True)
class DpSgd(Method):
    """Releases a model, not rows."""

    name: ClassVar[str] = "dp-sgd"
    title: ClassVar[str] = "Model trained directly with DP-SGD"
    paper: ClassVar[str] = "Abadi et al., Deep Learning with Differential Privacy, Algorithm 1"
    link: ClassVar[str] = "https://arxiv.org/abs/1607.00133"
    family: ClassVar[str] = "model"
    tuned_on: ClassVar[tuple[str, ...]] = ("unknown",)
    uses_ipc: ClassVar[bool] = False

    steps: int = 300
    expected_batch: float = 256.0
    clip: float = 1.0
    learning_rate: float = 2.0
    momentum: float = 0.9
    hidden: int = 0
    """Width of the hidden layer; 0 is a linear model. Survival is always linear."""

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        rate = private.rate(self.expected_batch)
        noise = private.calibrate(
            lambda noise: [private.plan(sampled_gaussian(rate, noise), self.steps)]
        )
        private.reserve(sampled_gaussian(rate, noise), self.steps)
        network = self._network(private.encoder, spec.task)
        weights = network.initial(rng)
        expected = max(1.0, rate * private.counts.total)
        velocity, mean = np.zeros_like(weights), np.zeros_like(weights)
        for step in range(self.steps):
            current = weights
            total = private.poisson_sum(
                lambda rows, current=current: network.gradients(current, rows),  # type: ignore[misc]
                self.clip,
                noise,
                rate,
            )
            velocity = self.momentum * velocity + total / expected
            weights = weights + self.learning_rate * (1 - self.momentum) * velocity
            late = step - self.steps // 2
            if late >= 0:
                mean += (weights - mean) / (late + 1)
        claim = Claim.of(spec.budget, "Poisson-sampled Gaussian steps, calibrated to the target")
        notes = {"noise_multiplier": noise, "rate": rate}
        return Release(model=network.trained(mean), claim=claim, notes=notes)

    def _network(self, encoder: Encoder, task: Task) -> _PiecewiseHazard | _Classifier:
        if task is Task.SURVIVAL:
            return _PiecewiseHazard(encoder.feature_width)
        return _Classifier(encoder.feature_width, self.hidden, len(encoder.schema.classes))


@final
@dataclass(frozen=True)
class _Classifier:
    """Softmax of a linear map, or of one hidden layer; weights in one vector."""

    width: int
    hidden: int
    classes: int

    def initial(self, rng: np.random.Generator) -> Array:
        """Zero for the linear model; a random hidden layer (the output layer starts at zero)."""
        inside = (self.width + 1) * self.hidden
        outer = (self.hidden or self.width) + 1
        start = rng.normal(0.0, 1.0 / np.sqrt(self.width + 1), inside)
        return np.concatenate([start, np.zeros(outer * self.classes)])

    def gradients(self, weights: Array, rows: EncodedRows) -> Array:
        """Log-likelihood gradient of each row."""
        inputs = _with_one(rows.values[:, : self.width])
        inner, outer = self._layers(weights)
        active = inputs if inner is None else _with_one(np.tanh(inputs @ inner))
        wrong = -_softmax(active @ outer)
        wrong[np.arange(len(wrong)), rows.labels] += 1.0
        last = _outer(active, wrong)
        if inner is None:
            return last
        behind = (wrong @ outer[:-1].T) * (1.0 - active[:, :-1] ** 2)
        return np.hstack([_outer(inputs, behind), last])

    def trained(self, weights: Array) -> ReleasedModel:
        """The model of these weights."""
        return _TrainedClassifier(*self._layers(weights))

    def _layers(self, weights: Array) -> tuple[Array | None, Array]:
        inside = (self.width + 1) * self.hidden
        outer = weights[inside:].reshape(-1, self.classes)
        return (weights[:inside].reshape(-1, self.hidden) if self.hidden else None), outer


@final
@dataclass(frozen=True)
class _TrainedClassifier(ReleasedModel):
    inner: Array | None
    outer: Array

    def predict(self, values: Floats) -> Array:
        inputs = _with_one(values)
        active = inputs if self.inner is None else _with_one(np.tanh(inputs @ self.inner))
        return _softmax(active @ self.outer)


@final
@dataclass(frozen=True)
class _PiecewiseHazard:
    """Piecewise constant hazard, proportional in the features."""

    width: int

    def initial(self, rng: np.random.Generator) -> Array:
        """No effects; one expected event over the whole range."""
        return np.zeros(_PIECES + self.width)

    def gradients(self, weights: Array, rows: EncodedRows) -> Array:
        """Log-likelihood gradient of each row."""
        features = np.asarray(rows.values[:, : self.width], dtype=np.float64)
        # The encoder scales the public time range to [-1, 1].
        elapsed = (np.clip(rows.values[:, self.width], -1.0, 1.0) + 1.0) / 2.0 * _PIECES
        pieces = np.arange(_PIECES)
        spent = np.clip(elapsed[:, None] - pieces, 0.0, 1.0) / _PIECES
        ended = np.minimum(elapsed.astype(np.intp), _PIECES - 1)
        happened = (ended[:, None] == pieces) & (rows.labels == 1)[:, None]
        log_hazard = weights[:_PIECES] + (features @ weights[_PIECES:])[:, None]
        residual = happened - spent * np.exp(np.minimum(log_hazard, _EXPONENT))
        return np.hstack([residual, features * residual.sum(axis=1, keepdims=True)])

    def trained(self, weights: Array) -> ReleasedModel:
        """The model of these weights: relative risks only."""
        return _TrainedRisk(weights[_PIECES:])


@final
@dataclass(frozen=True)
class _TrainedRisk(ReleasedModel):
    coefficients: Array

    def predict(self, values: Floats) -> Array:
        return np.asarray(values, dtype=np.float64) @ self.coefficients


def _with_one(values: Floats) -> Array:
    return np.hstack([np.asarray(values, dtype=np.float64), np.ones((len(values), 1))])


def _outer(left: Array, right: Array) -> Array:
    """The outer product of each pair of rows, as one vector; of no rows as well."""
    width = left.shape[1] * right.shape[1]
    return (left[:, :, None] * right[:, None, :]).reshape(len(left), width)


def _softmax(scores: Array) -> Array:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    result: Array = powers / powers.sum(axis=1, keepdims=True)
    return result
