"""A small autoencoder of encoded rows, with the gradient of each row for DP-SGD.

Features pass through tanh layers (features, hidden, bottleneck, hidden, features). The output is
tanh for numbers and binary columns and softmax for one-hot blocks, so that every reconstruction
lies within the schema and its error has a largest value that is known beforehand. The loss of a
row is |x - x^|^2 / 2; its error, by which anomalies are detected, is |x - x^| (federated
distillation paper, equation 9; the paper leaves the network open).

Weights are one flat vector: what a client sends, and what a server averages.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
import numpy.typing as npt

from bench import Detector, Encoder, Floats

if TYPE_CHECKING:
    import torch

Array = npt.NDArray[np.float64]


@final
@dataclass(frozen=True)
class Autoencoder:
    """Shape of the network; weights are passed to every call."""

    sizes: tuple[int, ...]
    blocks: tuple[tuple[int, int], ...]
    """Start and stop of each one-hot block."""
    largest: float
    """No error is larger: a number is off by 2 at most, a one-hot block by sqrt(2)."""

    @classmethod
    def of(cls, encoder: Encoder, hidden: int, narrowing: float) -> Autoencoder:
        """Build for the features of a schema; the bottleneck has `narrowing` units per column."""
        blocks = [block for block in encoder.blocks if block.stop <= encoder.feature_width]
        wide = tuple((each.start, each.stop) for each in blocks if each.stop - each.start > 1)
        narrow = max(1, round(narrowing * len(blocks)))
        sizes = (encoder.feature_width, hidden, narrow, hidden, encoder.feature_width)
        return cls(sizes, wide, math.sqrt(4.0 * (len(blocks) - len(wide)) + 2.0 * len(wide)))

    @property
    def count(self) -> int:
        """Number of weights."""
        return sum((before + 1) * after for before, after in itertools.pairwise(self.sizes))

    def initial(self, rng: np.random.Generator) -> Array:
        """Glorot's normal start; offsets zero."""
        pieces = []
        for before, after in itertools.pairwise(self.sizes):
            layer = rng.normal(0.0, math.sqrt(2.0 / (before + after)), (before + 1, after))
            layer[-1] = 0.0
            pieces.append(layer.ravel())
        return np.concatenate(pieces)

    def layers(self, weights: Array) -> list[Array]:
        """Matrices of the layers, the offsets in their last rows."""
        shapes = [(before + 1, after) for before, after in itertools.pairwise(self.sizes)]
        ends = np.cumsum([rows * columns for rows, columns in shapes])[:-1]
        pieces = np.split(weights, ends)
        return [piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=True)]

    def reconstructed(self, weights: Array, features: Floats) -> Array:
        """Return what the network makes of the features."""
        return self._forward(self.layers(weights), np.asarray(features, dtype=np.float64))[-1]

    def errors(self, weights: Array, features: Floats) -> Array:
        """Equation 9, cut to the largest value (rows outside the schema may exceed it)."""
        rows = np.asarray(features, dtype=np.float64)
        errors: Array = np.linalg.norm(rows - self.reconstructed(weights, rows), axis=1)
        return np.asarray(np.minimum(errors, self.largest))

    def gradients(self, weights: Array, features: Floats) -> Array:
        """(rows, weights): the gradient of each row's loss, by backpropagation in closed form.

        With delta the derivative by what enters a layer's activation, the gradient of its matrix
        is the outer product of its input (and 1) with delta.
        """
        rows = np.asarray(features, dtype=np.float64)
        layers = self.layers(weights)
        states = self._forward(layers, rows)
        delta = self._through_output(states[-1], states[-1] - rows)
        pieces: list[Array] = []
        for place in reversed(range(len(layers))):
            inputs = np.hstack([states[place], np.ones((len(rows), 1))])
            width = inputs.shape[1] * delta.shape[1]
            pieces.append((inputs[:, :, None] * delta[:, None, :]).reshape(len(rows), width))
            if place:
                delta = (delta @ layers[place][:-1].T) * (1.0 - states[place] ** 2)
        return np.hstack(pieces[::-1])

    def _forward(self, layers: list[Array], rows: Array) -> list[Array]:
        """The input and the state after each layer."""
        states = [rows]
        for layer in layers[:-1]:
            states.append(np.tanh(states[-1] @ layer[:-1] + layer[-1]))
        last = states[-1] @ layers[-1][:-1] + layers[-1][-1]
        output = np.tanh(last)
        for start, stop in self.blocks:
            powers = np.exp(last[:, start:stop] - last[:, start:stop].max(axis=1, keepdims=True))
            output[:, start:stop] = powers / powers.sum(axis=1, keepdims=True)
        return [*states, output]

    def _through_output(self, output: Array, slope: Array) -> Array:
        """The derivative by what enters tanh or softmax, from that by what leaves it."""
        delta = slope * (1.0 - output**2)
        for start, stop in self.blocks:
            chances, slopes = output[:, start:stop], slope[:, start:stop]
            delta[:, start:stop] = chances * (slopes - (slopes * chances).sum(1, keepdims=True))
        return delta

    def train(
        self,
        weights: Array,
        features: Floats,
        steps: int,
        batch: int,
        learning_rate: float,
        rng: np.random.Generator,
    ) -> Array:
        """Adam on random batches: for rows that may be read, released or raw."""
        import torch

        rows = torch.from_numpy(np.array(features, dtype=np.float32))
        layers = [
            torch.from_numpy(layer.astype(np.float32)).requires_grad_(True)
            for layer in self.layers(weights)
        ]
        optimizer = torch.optim.Adam(layers, lr=learning_rate)
        for _ in range(steps):
            chosen = rng.integers(0, len(rows), min(batch, len(rows)))
            inputs = rows[torch.from_numpy(chosen)]
            optimizer.zero_grad()
            loss = (inputs - self._torch_forward(layers, inputs)).square().sum(dim=1).mean() / 2
            loss.backward()
            optimizer.step()
        pieces = [layer.detach().numpy().astype(np.float64).ravel() for layer in layers]
        return np.concatenate(pieces)

    def _torch_forward(self, layers: list[torch.Tensor], rows: torch.Tensor) -> torch.Tensor:
        import torch

        state = rows
        for layer in layers[:-1]:
            state = torch.tanh(state @ layer[:-1] + layer[-1])
        last = state @ layers[-1][:-1] + layers[-1][-1]
        pieces, at = [], 0
        for start, stop in self.blocks:
            pieces += [torch.tanh(last[:, at:start]), torch.softmax(last[:, start:stop], dim=1)]
            at = stop
        return torch.cat([*pieces, torch.tanh(last[:, at:])], dim=1)


@final
@dataclass(frozen=True)
class AutoencoderDetector(Detector):
    """A trained autoencoder with the error above which a row is flagged."""

    network: Autoencoder
    weights: Array
    flagged_above: float

    @property
    def threshold(self) -> float:
        return self.flagged_above

    def predict(self, values: Floats) -> Array:
        """The reconstruction error of each row."""
        return self.network.errors(self.weights, values)
