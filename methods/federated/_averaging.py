"""Federated averaging: the network, its local training, and rounds (McMahan et al. 2017).

Federated distillation paper, section 4.5. In round t the server sends the weights w_t to every
client (down); client i trains them further on its own rows (equation 7) and sends the result (up);
the server averages (equation 8):

    w_{t+1} = sum_i (n_i / n) w_{i,t+1},        n = sum_i n_i,

with the declared numbers of rows n_i. Every client takes part in every round, and starts each
round without memory of the last: moments of Adam do not outlive a round. Weights travel as float32.

**The network.** The paper names neither the network nor its size. Here it is a softmax over one
hidden layer of rectified linear units (the "2NN" of McMahan et al. 2017 has two), or without one
(`hidden=0`: softmax regression). Images are flattened pixels. All weights are one vector of
float32: what is averaged, sent and kept. With inputs x (a one appended), hidden a = max(0, x'U)
and p = softmax(a'V + b) the loss is the cross-entropy -log p_y, whose gradients are p - e_y for the
scores, a (p - e_y)' for V, and x (V (p - e_y) * 1[a > 0])' for U.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, final

import numpy as np
import numpy.typing as npt

from bench import (
    EncodedRows,
    Floats,
    InputError,
    Integers,
    NotApplicable,
    PrivateData,
    ReleasedModel,
    Task,
    Traffic,
    TrainedInRounds,
    sampled_gaussian,
)
from bench.methods.federated._clients import ClientData, FederatedMethod, Plans, numbers_payload

Weights = npt.NDArray[np.float32]
Update = Callable[[Weights], Weights]
"""What one client makes of the weights it was sent."""
Precision = TypeVar("Precision", bound=np.floating[Any])

PHASE = "model"
"""Phase of the messages that carry weights."""
_FIRST_DECAY, _SECOND_DECAY, _SMALL = 0.9, 0.999, 1e-8
"""Defaults of Adam (Kingma and Ba 2015)."""


@dataclass(frozen=True)
class TrainsNetwork(FederatedMethod):
    """Abstract: a method that trains one network at several clients."""

    def network(self, private: PrivateData, hidden: int) -> Network:
        """Return the network for a table or for images."""
        if private.task is Task.SURVIVAL:
            raise NotApplicable(
                "the paper trains a classifier, whose labels a survival dataset does not have"
            )
        return Network(private.encoder.feature_width, hidden, len(private.schema.classes))


# The network -------------------------------------------------------------------------------------


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
        """Feature columns of encoded rows (a survival time left out), and a one."""
        features = np.ones((len(values), self.width + 1), dtype=np.float32)
        features[:, :-1] = values[:, : self.width]
        return features

    def probabilities(self, weights: Weights, values: Floats) -> npt.NDArray[np.float64]:
        """(rows, classes) probabilities."""
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
        """Gradient of the loss of each row: (rows, size), also of no rows at all."""
        inputs = self.inputs(values)
        active, wrong = self._forward(weights, inputs)
        wrong[np.arange(len(wrong)), labels] -= 1.0
        inner, outer = self.layers(weights)
        if inner is None:
            return _outer(active, wrong)
        behind = (wrong @ outer[:-1].T) * (active > 0)
        return np.hstack([_outer(inputs, behind), _outer(active, wrong), wrong])

    def _forward(self, weights: Weights, inputs: Weights) -> tuple[Weights, Weights]:
        """Inputs of the output layer, and the probabilities."""
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
class LocalTraining:
    """Training without noise: batches in random order, Adam or gradient descent."""

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
        """New weights after some epochs from these; a client without rows returns them."""
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


# Rounds ------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class RoundsModel(TrainedInRounds):
    """All states of the network: before the first round, and after each."""

    network: Network
    states: npt.NDArray[np.float32]
    """Weights before the first round and after each, (rounds + 1, weights)."""

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
        """Replace the state after round t by the mean over rounds floor(t/2) + 1 to t.

        Post-processing that takes noise out: what the server sends is not changed by it. Round 0
        stays what it was.
        """
        sums = np.cumsum(self.states, axis=0, dtype=np.float64)
        ends = np.arange(1, len(self.states))
        means = (sums[ends] - sums[ends // 2]) / (ends - ends // 2)[:, None]
        return RoundsModel(
            self.network, np.concatenate([self.states[:1], means.astype(np.float32)])
        )


def shares(clients: ClientData) -> npt.NDArray[np.float64]:
    """n_i / n of equation 8, from declared counts."""
    counts = np.array([client.counts.total for client in clients.values()], dtype=np.float64)
    return np.asarray(counts / counts.sum())


def in_rounds(
    start: npt.NDArray[Precision],
    updates: Sequence[Callable[[npt.NDArray[Precision]], npt.NDArray[Precision]]],
    weights: npt.NDArray[np.float64],
    rounds: int,
    traffic: Traffic,
) -> npt.NDArray[Precision]:
    """Train in rounds: each client gets the state and sends back its update (equation 8).

    Returns all states, (rounds + 1, size), in the precision of the start; averages are taken in
    double precision.
    """
    if rounds < 0:
        raise InputError(f"rounds {rounds}: there are 0 or more")
    states = [start]
    for number in range(1, rounds + 1):
        current = states[-1]
        traffic.send(PHASE, "down", numbers_payload(current), number, copies=len(updates))
        received = []
        for update in updates:
            received.append(update(current))
            traffic.send(PHASE, "up", numbers_payload(received[-1]), number)
        average = weights @ np.stack(received).astype(np.float64)
        states.append(average.astype(current.dtype))
    return np.stack(states)


def plain_updates(
    network: Network,
    clients: ClientData,
    training: LocalTraining,
    reason: str,
    rng: np.random.Generator,
) -> list[Update]:
    """Training on the rows of each client without noise, which is non-private access."""

    def at(client: PrivateData, client_rng: np.random.Generator) -> Update:
        rows = client.raw(reason)
        return lambda weights: training.run(network, weights, rows.values, rows.labels, client_rng)

    return [at(*pair) for pair in zip(clients.values(), rng.spawn(len(clients)), strict=True)]


@final
@dataclass(frozen=True)
class NoisyTraining:
    """DP-SGD at one client (Abadi et al. 2016, Algorithm 1): a step samples a share `rate`.

    A step is w <- w - learning_rate s / (rate n_i), where s is the noisy sum of the gradients of a
    Poisson sample, each clipped: the kernel samples, clips, sums and adds the noise. One rate for
    all clients makes their noise multipliers equal, and with one local step the average over
    clients is one DP-SGD step on all rows with the noise of M clients instead of one.
    """

    steps: int
    """Local ones, in each round."""
    rate: float
    clip: float
    learning_rate: float
    noise_step: float
    """Largest norm that the noise of a step may have in the weights, see `tempered`."""

    def tempered(
        self, network: Network, clients: ClientData, noises: Mapping[str, float]
    ) -> NoisyTraining:
        """Return this training with a learning rate that suits the noise, by public numbers alone.

        The average over clients of one step each holds noise of standard deviation
        s = learning_rate C sqrt(sum of sigma_i^2) / (rate n) in each of P weights, of norm about
        s sqrt(P). Where that is more than `noise_step`, the learning rate is cut down to it: small
        tables and small budgets get shorter steps, the rule being the same for all.
        """
        rows = self.rate * sum(client.counts.total for client in clients.values())
        spread = math.sqrt(sum(noise**2 for noise in noises.values()) * network.size)
        longest = self.noise_step * rows / (self.clip * spread)
        return replace(self, learning_rate=min(self.learning_rate, longest))

    def plans(self, rounds: int) -> Plans:
        """Return what training will ask of one client, in all rounds together."""
        return lambda client, noise: [
            client.plan(sampled_gaussian(self.rate, noise), rounds * self.steps)
        ]

    def update(self, network: Network, client: PrivateData, noise: float) -> Update:
        """Return what the client does in a round."""
        expected = max(1.0, self.rate * client.counts.total)

        def run(weights: Weights) -> Weights:
            for _ in range(self.steps):
                current = weights

                def gradients(rows: EncodedRows, at: Weights = current) -> Weights:
                    return network.row_gradients(at, rows.values, rows.labels)

                total = client.poisson_sum(gradients, self.clip, noise, self.rate)
                weights = (current - self.learning_rate / expected * total).astype(np.float32)
            return weights

        return run
