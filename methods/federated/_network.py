"""The network that the centres train together, and its plain training.

The federated distillation paper names neither the network nor its size. Here it is a softmax over
one hidden layer of rectified linear units (the "2NN" of McMahan et al. 2017 has two), or without
one (`hidden=0`: softmax regression). Images are flattened pixels. All weights are one vector of
float32: what is averaged, sent and kept.

With inputs x (a one appended), hidden a = max(0, x'U) and p = softmax(a'V + b) the loss is the
cross-entropy -log p_y, whose gradients are p - e_y for the scores, a (p - e_y)' for V, and
x (V (p - e_y) * 1[a > 0])' for U.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
import numpy.typing as npt

from bench import Floats, InputError, Integers, ReleasedModel

Weights = npt.NDArray[np.float32]

_FIRST_DECAY, _SECOND_DECAY, _SMALL = 0.9, 0.999, 1e-8
"""Of Adam (Kingma and Ba 2015): its own defaults."""


@final
@dataclass(frozen=True)
class Network:
    """Shape of the network; its weights are passed in."""

    width: int
    hidden: int
    classes: int

    def __post_init__(self) -> None:
        if self.hidden < 0:
            raise InputError(f"hidden {self.hidden}: the width of the hidden layer is 0 or more")

    @property
    def size(self) -> int:
        """Number of weights."""
        return (self.width + 1) * self.hidden + ((self.hidden or self.width) + 1) * self.classes

    def initial(self, rng: np.random.Generator) -> Weights:
        """He's normal start for the hidden layer; the output layer starts at zero."""
        weights = np.zeros(self.size, dtype=np.float32)
        inner, _ = self.layers(weights)
        if inner is not None:
            inner[:-1] = rng.normal(0.0, math.sqrt(2.0 / self.width), inner[:-1].shape)
        return weights

    def layers(self, weights: Weights) -> tuple[Weights | None, Weights]:
        """Views of the hidden and the output layer; the last row of each is the bias."""
        inside = (self.width + 1) * self.hidden
        inner = weights[:inside].reshape(self.width + 1, self.hidden) if self.hidden else None
        return inner, weights[inside:].reshape(-1, self.classes)

    def inputs(self, values: Floats) -> Weights:
        """Feature columns of encoded rows (the time of a cohort left out), and a one."""
        features = np.ones((len(values), self.width + 1), dtype=np.float32)
        features[:, :-1] = values[:, : self.width]
        return features

    def probabilities(self, weights: Weights, values: Floats) -> npt.NDArray[np.float64]:
        """(rows, classes)."""
        _, chances = self._forward(weights, self.inputs(values))
        return chances.astype(np.float64)

    def gradient(self, weights: Weights, inputs: Weights, labels: Integers, into: Weights) -> None:
        """Mean gradient of the loss over some rows, written into a vector."""
        active, wrong = self._forward(weights, inputs)
        wrong[np.arange(len(wrong)), labels] -= 1.0
        wrong /= len(wrong)
        _, outer = self.layers(weights)
        of_inner, of_outer = self.layers(into)
        np.matmul(active.T, wrong, out=of_outer[: active.shape[1]])
        if of_inner is not None:
            wrong.sum(axis=0, out=of_outer[-1])
            behind = wrong @ outer[:-1].T
            behind *= active > 0
            np.matmul(inputs.T, behind, out=of_inner)

    def row_gradients(
        self, weights: Weights, values: Floats, labels: Integers
    ) -> npt.NDArray[np.float32]:
        """Gradient of every row's own loss: (rows, size), also of no rows at all."""
        inputs = self.inputs(values)
        active, wrong = self._forward(weights, inputs)
        wrong[np.arange(len(wrong)), labels] -= 1.0
        inner, outer = self.layers(weights)
        if inner is None:
            return _outer(active, wrong)
        behind = (wrong @ outer[:-1].T) * (active > 0)
        return np.hstack([_outer(inputs, behind), _outer(active, wrong), wrong])

    def _forward(self, weights: Weights, inputs: Weights) -> tuple[Weights, Weights]:
        """What the output layer sees, and the probabilities."""
        inner, outer = self.layers(weights)
        if inner is None:
            active, scores = inputs, inputs @ outer
        else:
            active = inputs @ inner
            np.maximum(active, 0.0, out=active)
            scores = active @ outer[:-1]
            scores += outer[-1]
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=1, keepdims=True)
        return active, scores


@final
@dataclass(frozen=True)
class TrainedNetwork(ReleasedModel):
    """A network with its weights."""

    network: Network
    weights: Weights

    def predict(self, values: Floats) -> npt.NDArray[np.float64]:
        return self.network.probabilities(self.weights, values)


@final
@dataclass(frozen=True)
class Training:
    """Plain training on rows in the open: batches in random order, Adam or gradient descent."""

    epochs: int = 5
    batch: int = 32
    learning_rate: float = 0.001
    optimizer: Literal["adam", "sgd"] = "adam"

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 1 or not self.learning_rate > 0:
            raise InputError(
                f"{self.epochs} epochs in batches of {self.batch} at learning rate "
                f"{self.learning_rate:g}: all must be positive"
            )
        if self.optimizer not in ("adam", "sgd"):
            raise InputError(f"optimizer {self.optimizer!r}: `adam` and `sgd` are known")

    def run(
        self,
        network: Network,
        weights: Weights,
        values: Floats,
        labels: Integers,
        rng: np.random.Generator,
    ) -> Weights:
        """New weights after some epochs from these; a centre without rows gives them back."""
        trained = weights.copy()
        if not len(labels):
            return trained
        inputs, gradient = network.inputs(values), np.empty_like(trained)
        stepper = _Stepper(len(trained), self.learning_rate, self.optimizer == "adam")
        for _ in range(self.epochs):
            order = rng.permutation(len(labels))
            # One copy in the new order is cheaper than thousands of small ones.
            shuffled, classes = inputs[order], labels[order]
            for start in range(0, len(labels), self.batch):
                piece = slice(start, start + self.batch)
                network.gradient(trained, shuffled[piece], classes[piece], gradient)
                stepper.step(trained, gradient)
        return trained


@final
class _Stepper:
    """Steps in place: FedAvg with table 3's settings takes some 400,000 of them on Adult."""

    def __init__(self, size: int, rate: float, adam: bool) -> None:
        self._rate, self._adam, self._steps = rate, adam, 0
        self._first = np.zeros(size, dtype=np.float32)
        self._second = np.zeros(size, dtype=np.float32)
        self._work = np.empty(size, dtype=np.float32)

    def step(self, weights: Weights, gradient: Weights) -> None:
        """Adam, its bias corrections drawn into the rate; or plain descent."""
        work = self._work
        if not self._adam:
            np.multiply(gradient, np.float32(self._rate), out=work)
            weights -= work
            return
        self._steps += 1
        first, second = self._first, self._second
        np.subtract(gradient, first, out=work)
        work *= np.float32(1.0 - _FIRST_DECAY)
        first += work
        np.multiply(gradient, gradient, out=work)
        work -= second
        work *= np.float32(1.0 - _SECOND_DECAY)
        second += work
        root = math.sqrt(1.0 - _SECOND_DECAY**self._steps)
        np.sqrt(second, out=work)
        work += np.float32(_SMALL * root)
        np.divide(first, work, out=work)
        work *= np.float32(self._rate * root / (1.0 - _FIRST_DECAY**self._steps))
        weights -= work


def _outer(left: Weights, right: Weights) -> npt.NDArray[np.float32]:
    """The outer product of each pair of rows, as one vector; of no rows as well."""
    width = left.shape[1] * right.shape[1]
    return (left[:, :, None] * right[:, None, :]).reshape(len(left), width)
