"""Teachers of PATE: small discriminators, one for each part of the rows.

A teacher sees the rows of its part and generated rows, nothing else. It is a network of one hidden
layer, logit(x) = w . relu(x W + b) + c on a row and its one-hot class, trained by Adam on the
logistic loss (real against generated) with an L2 penalty. It lives inside the kernel: what leaves
is a noisy sum of votes. NumPy rather than torch: hundreds of networks are trained in turn, and
for so small ones the gradient by hand is several times faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench import EncodedRows, Floats, Integers

Array = npt.NDArray[np.float32]

_FIRST_DECAY, _SECOND_DECAY, _SMALL = 0.9, 0.999, 1e-8


@final
@dataclass(frozen=True)
class Labelled:
    """Generated rows and their classes: public, the same for all teachers."""

    values: Array
    labels: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)


@final
@dataclass(frozen=True)
class TeacherTraining:
    """How every teacher is trained."""

    steps: int
    """Adam steps a round."""
    batch: int
    """Real rows a step, and as many generated ones."""
    learning_rate: float
    decay: float
    """Factor of the L2 penalty |weights|^2 / 2."""


def inputs(values: Floats, labels: Integers, classes: int) -> Array:
    """What a discriminator sees of rows: the encoded values and the one-hot class."""
    return np.hstack([values, np.eye(classes, dtype=np.float32)[labels]], dtype=np.float32)


@final
class Teacher:
    """A discriminator of one part."""

    def __init__(self, width: int, classes: int, hidden: int, rng: np.random.Generator) -> None:
        before = width + classes
        self._classes = classes
        self.weights: list[Array] = [
            (rng.normal(size=(before, hidden)) / np.sqrt(before)).astype(np.float32),
            np.zeros(hidden, dtype=np.float32),
            (rng.normal(size=hidden) / np.sqrt(hidden)).astype(np.float32),
            np.zeros(1, dtype=np.float32),
        ]
        self._first = [np.zeros_like(weight) for weight in self.weights]
        self._second = [np.zeros_like(weight) for weight in self.weights]
        self._steps = 0

    def logits(self, rows: Array) -> Array:
        """Above 0 where the teacher takes a row for a real one."""
        into, shift, out, constant = self.weights
        result: Array = np.maximum(rows @ into + shift, 0.0) @ out + constant
        return result

    def votes(self, rows: Labelled) -> Array:
        """+1 for the half of the rows that looks more real, -1 for the other: norm sqrt(rows).

        PATE-GAN votes by the sign of the logit. A teacher with few rows of its own knows them by
        heart and calls all others generated; by its median it still tells which come closer.
        """
        logits = self.logits(inputs(rows.values, rows.labels, self._classes))
        result: Array = np.where(logits > np.median(logits), 1.0, -1.0).astype(np.float32)
        return result

    def gradients(self, rows: Array, real: Array, decay: float) -> list[Array]:
        """Of the mean logistic loss plus decay / 2 |W|^2 + decay / 2 |w|^2."""
        into, shift, out, _ = self.weights
        active = np.maximum(rows @ into + shift, 0.0)
        logits = active @ out + self.weights[3]
        error = (0.5 * (1.0 + np.tanh(logits / 2.0)) - real) / np.float32(len(rows))
        back = error[:, None] * out * (active > 0)
        return [
            rows.T @ back + np.float32(decay) * into,
            back.sum(axis=0),
            active.T @ error + np.float32(decay) * out,
            error.sum(keepdims=True),
        ]

    def train(
        self,
        own: EncodedRows,
        generated: Labelled,
        training: TeacherTraining,
        rng: np.random.Generator,
    ) -> Teacher:
        """Some steps on own rows against generated ones; a part without rows learns nothing."""
        if not len(own):
            return self
        size = min(training.batch, len(own))
        mine = inputs(own.values, own.labels, self._classes)
        others = inputs(generated.values, generated.labels, self._classes)
        real = np.repeat(np.array([1.0, 0.0], dtype=np.float32), size)
        for _ in range(training.steps):
            chosen = rng.choice(len(mine), size, replace=False)
            against = rng.integers(len(others), size=size)
            rows = np.concatenate([mine[chosen], others[against]])
            self._descend(self.gradients(rows, real, training.decay), training.learning_rate)
        return self

    def _descend(self, gradients: list[Array], rate: float) -> None:
        self._steps += 1
        size = rate * np.sqrt(1.0 - _SECOND_DECAY**self._steps) / (1.0 - _FIRST_DECAY**self._steps)
        for weight, first, second, gradient in zip(
            self.weights, self._first, self._second, gradients, strict=True
        ):
            first += (1.0 - _FIRST_DECAY) * (gradient - first)
            second += (1.0 - _SECOND_DECAY) * (gradient**2 - second)
            weight -= (size * first / (np.sqrt(second) + _SMALL)).astype(np.float32)
