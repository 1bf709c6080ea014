"""The sound methods that the mistakes are made in: class means, a regression, and teachers.

Each takes the steps in which a mistake is made as arguments; without them it is sound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt

from bench.data.encoder import EncodedRows, Floats
from bench.plugins.method import Method, Spec
from bench.plugins.release import Claim, Release, ReleasedModel, Rows
from bench.privacy.events import gaussian, sampled_gaussian
from bench.privacy.kernel import PlannedEvents, PrivateData
from bench.privacy.rowwise import RowFunction

Array = npt.NDArray[np.float64]

SOURCE = "the method itself"
STEPS = 20
SAMPLE = 60
"""Expected number of rows of a Poisson sample."""
TEACHERS = 8
_QUERIES = 60
_LEARNING_RATE = 2.0


@dataclass(frozen=True)
class Example(Method):
    """What all examples of the kit say about themselves."""

    paper: ClassVar[str] = "none: an example of the conformance kit"


# Class means --------------------------------------------------------------------------------------


def values_of(rows: EncodedRows) -> Floats:
    """Return the encoded values: the row function of a sum of rows."""
    return rows.values


def class_sums(
    private: PrivateData, function: RowFunction = values_of, noise: float | None = None
) -> list[Array]:
    """Return a noisy sum of each class, calibrated to the budget unless `noise` is given."""
    parts = private.partition("class")

    def plans(level: float) -> list[PlannedEvents]:
        return [part.plan(gaussian(level)) for part in parts.values()]

    level = noise or private.calibrate(plans)
    private.reserve_all(plans(level))
    return [part.gaussian_sum(function, private.encoder.max_norm, level) for part in parts.values()]


def class_means(private: PrivateData, sums: Sequence[Array]) -> list[Array]:
    """Return the means of the classes, by their declared counts."""
    counts = private.counts.by_class
    return [total / max(1, count) for total, count in zip(sums, counts, strict=True)]


def rows_around(
    means: Sequence[Array], private: PrivateData, spec: Spec, rng: np.random.Generator
) -> Rows:
    """Return as many rows of each class as asked for, scattered around its mean."""
    sizes = spec.rows_per_class(private.counts)
    scattered = [
        np.clip(mean + 0.2 * rng.standard_normal((size, private.width)), -1.0, 1.0)
        for mean, size in zip(means, sizes, strict=True)
    ]
    return Rows(np.concatenate(scattered), np.repeat(np.arange(len(sizes)), sizes))


def around_class_means(
    private: PrivateData,
    spec: Spec,
    rng: np.random.Generator,
    *,
    function: RowFunction = values_of,
    noise: float | None = None,
) -> Release:
    """Return rows around noisy class means."""
    means = class_means(private, class_sums(private, function, noise))
    return Release(rows_around(means, private, spec, rng), claim=Claim.of(spec.budget, SOURCE))


@final
@dataclass(frozen=True)
class ClassMeans(Example):
    """Rows around noisy class means: a Gaussian sum of each class."""

    name: ClassVar[str] = "class-means"
    title: ClassVar[str] = "class means"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        return around_class_means(private, spec, rng)


# Regression by DP-SGD -----------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class LinearModel(ReleasedModel):
    """Softmax of linear scores of the features."""

    weights: Array
    """(classes, features + 1)"""

    def predict(self, values: Floats) -> Array:
        return probabilities(self.weights, values)


def probabilities(weights: Array, features: Floats) -> Array:
    """Return the probability of each class, one row per row."""
    scores = np.asarray(features, dtype=np.float64) @ weights[:, :-1].T + weights[:, -1]
    scores = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-math.inf))
    return np.asarray(scores / scores.sum(axis=1, keepdims=True))


def mean_loss(weights: Array, rows: EncodedRows) -> float:
    """Return the exact cross-entropy of some rows: what no sound method computes."""
    features = rows.values[:, : weights.shape[1] - 1]
    chances = probabilities(weights, features)[np.arange(len(rows)), rows.labels]
    return float(-np.log(np.maximum(chances, 1e-12)).sum() / max(1, len(rows)))


def gradients(weights: Array, rows: EncodedRows) -> Array:
    """Return the gradient of each row's cross-entropy, one flat vector per row."""
    features = np.asarray(rows.values[:, : weights.shape[1] - 1], dtype=np.float64)
    errors = probabilities(weights, features)
    errors[np.arange(len(rows)), rows.labels] -= 1.0
    extended = np.hstack([features, np.ones((len(rows), 1))])
    return (errors[:, :, None] * extended[:, None, :]).reshape(len(rows), weights.size)


@final
@dataclass
class Descent:
    """DP-SGD in single steps: a noisy sum of clipped gradients over a Poisson sample each."""

    private: PrivateData
    weights: Array
    noise: float
    rate: float
    clip: float = 1.0

    @classmethod
    def start(cls, private: PrivateData, further: Sequence[PrivateData] = ()) -> Descent:
        """Calibrate and reserve all steps, and one Gaussian sum on each of some `further` data."""
        rate = private.rate(SAMPLE)

        def plans(level: float) -> list[PlannedEvents]:
            steps = private.plan(sampled_gaussian(rate, level), STEPS)
            return [steps, *(other.plan(gaussian(level)) for other in further)]

        noise = private.calibrate(plans)
        private.reserve_all(plans(noise))
        shape = (len(private.schema.classes), private.encoder.feature_width + 1)
        return cls(private, np.zeros(shape), noise, rate)

    def step(
        self,
        function: RowFunction | None = None,
        size: Callable[[], float] = lambda: float(SAMPLE),
    ) -> None:
        """Descend once, by gradients (or what `function` returns) divided by the size."""
        weights = self.weights
        total = self.private.poisson_sum(
            function or (lambda rows: gradients(weights, rows)), self.clip, self.noise, self.rate
        )
        self.weights = weights - _LEARNING_RATE * total.reshape(weights.shape) / size()

    def release(self, spec: Spec, **notes: float) -> Release:
        """Return the model as it is now."""
        claim = Claim.of(spec.budget, SOURCE)
        return Release(model=LinearModel(self.weights), claim=claim, notes=notes)


@final
@dataclass(frozen=True)
class Regression(Example):
    """Softmax regression by DP-SGD."""

    name: ClassVar[str] = "regression"
    title: ClassVar[str] = "regression by DP-SGD"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        descent = Descent.start(private)
        for _ in range(STEPS):
            descent.step()
        return descent.release(spec)


# Votes of teachers --------------------------------------------------------------------------------


def fit_teacher(rows: EncodedRows, classes: int, start: Array | None = None) -> Array:
    """Return the means of the classes, shrunk to the start (or zero): a nearest-mean classifier."""
    centre = np.zeros((classes, rows.values.shape[1])) if start is None else start
    means = [
        (rows.values[rows.labels == label].sum(axis=0) + centre[label])
        / (1 + np.count_nonzero(rows.labels == label))
        for label in range(classes)
    ]
    return np.asarray(means, dtype=np.float64)


def teachers_vote(
    private: PrivateData,
    spec: Spec,
    rng: np.random.Generator,
    fit: Callable[[EncodedRows, np.random.Generator], Any],
    teachers: int = TEACHERS,
    noise: float | None = None,
) -> Release:
    """Return public random rows, labelled by the noisy votes of teachers on random parts.

    A teacher is the matrix of its class means. The noise is calibrated unless it is given.
    """
    classes = len(private.schema.classes)
    questions = rng.uniform(-1.0, 1.0, (_QUERIES, private.width))

    def votes(means: Array) -> Array:
        distances = ((questions[:, None, :] - means) ** 2).sum(axis=2)
        return np.asarray(np.eye(classes)[distances.argmin(axis=1)])

    if noise is None:
        noise = private.calibrate(lambda level: [private.plan(gaussian(level))])
        private.reserve(gaussian(noise))
    models = private.fit_parts(private.partition("teacher", parts=teachers), fit)
    counts = private.partition_sum(models, votes, math.sqrt(_QUERIES), noise)
    sizes = spec.rows_per_class(private.counts)
    # The rows with most votes for a class; some of them again where more are asked for.
    chosen = [
        np.resize(np.argsort(-counts[:, label], kind="stable"), size)
        for label, size in enumerate(sizes)
    ]
    labels = np.repeat(np.arange(classes), sizes)
    return Release(
        Rows(questions[np.concatenate(chosen)], labels), claim=Claim.of(spec.budget, SOURCE)
    )


@final
@dataclass(frozen=True)
class Teachers(Example):
    """Public rows with the noisy votes of teachers on disjoint parts, as in PATE."""

    name: ClassVar[str] = "teachers"
    title: ClassVar[str] = "votes of teachers"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        classes = len(private.schema.classes)
        return teachers_vote(private, spec, rng, lambda rows, _: fit_teacher(rows, classes))
