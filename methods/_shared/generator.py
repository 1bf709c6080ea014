"""A conditional generator of encoded rows, trained against a public target.

A small fully connected network maps noise and a one-hot class to a row: tanh for numbers and
binary columns, softmax for one-hot blocks, so that every output lies within the schema. It sees no
private row: what it is trained against has left the kernel already. Everything here is public
randomness and post-processing, batch normalisation included.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
import numpy.typing as npt

from bench import Categorical, Encoder

if TYPE_CHECKING:
    import torch

Array = npt.NDArray[np.float32]

_MOMENTUM = 0.1
_TINY = 1e-5


@final
@dataclass(frozen=True)
class Training:
    """Settings of the training of a generator."""

    steps: int
    batch: int
    """Generated rows per step, all classes together."""
    learning_rate: float
    decay: float = 0.9
    """The step size is multiplied by this five times, as after each epoch of DP-MERF's code."""


@final
class Generator:
    """Weights of the network; rows of any class on demand."""

    def __init__(
        self,
        encoder: Encoder,
        code: int,
        hidden: Sequence[int],
        random: torch.Generator,
    ) -> None:
        import torch

        self._code = code
        self._random = random
        self._classes = len(encoder.schema.classes)
        self._blocks = [
            (block.start, block.stop) for block in encoder.blocks if block.stop - block.start > 1
        ]
        self._drawn = tuple(
            (block.start, block.stop)
            for block in encoder.blocks
            if isinstance(block.column, Categorical)
        )
        sizes = (code + self._classes, *hidden, encoder.width)
        self.parameters: list[torch.Tensor] = []
        self._means: list[torch.Tensor] = []
        self._variances: list[torch.Tensor] = []
        for before, after in itertools.pairwise(sizes):
            bound = 1.0 / np.sqrt(before)
            weight = (2.0 * torch.rand(before, after, generator=random) - 1.0) * bound
            bias = (2.0 * torch.rand(after, generator=random) - 1.0) * bound
            self.parameters += [weight, bias]
        self._layers = len(sizes) - 1
        for size in hidden:
            self.parameters += [torch.ones(size), torch.zeros(size)]
            self._means.append(torch.zeros(size))
            self._variances.append(torch.ones(size))
        for parameter in self.parameters:
            parameter.requires_grad_(True)

    def rows(self, labels: torch.Tensor, learning: bool = False) -> torch.Tensor:
        """One encoded row for each label; one-hot blocks are probabilities."""
        import torch
        from torch.nn import functional

        noise = torch.randn(len(labels), self._code, generator=self._random)
        state = torch.cat([noise, functional.one_hot(labels, self._classes).float()], dim=1)
        for layer in range(self._layers):
            weight, bias = self.parameters[2 * layer : 2 * layer + 2]
            state = state @ weight + bias
            if layer < self._layers - 1:
                scale, shift = self.parameters[2 * (self._layers + layer) :][:2]
                state = functional.batch_norm(
                    state,
                    self._means[layer],
                    self._variances[layer],
                    scale,
                    shift,
                    training=learning,
                    momentum=_MOMENTUM,
                    eps=_TINY,
                )
                state = functional.relu(state)
        if not self._blocks:
            return torch.tanh(state)
        pieces, at = [], 0
        for start, stop in self._blocks:
            if start > at:
                pieces.append(torch.tanh(state[:, at:start]))
            pieces.append(functional.softmax(state[:, start:stop], dim=1))
            at = stop
        if at < state.shape[1]:
            pieces.append(torch.tanh(state[:, at:]))
        return torch.cat(pieces, dim=1)

    def train(
        self, loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], training: Training
    ) -> float:
        """Adam on `loss(rows, labels)` with as many rows of each class; returns the last loss."""
        import torch

        each = max(2, training.batch // self._classes)
        labels = torch.arange(self._classes).repeat_interleave(each)
        optimizer = torch.optim.Adam(self.parameters, lr=training.learning_rate)
        schedule = torch.optim.lr_scheduler.StepLR(
            optimizer, max(1, training.steps // 5), training.decay
        )
        last = 0.0
        for _ in range(training.steps):
            optimizer.zero_grad()
            value = loss(self.rows(labels, learning=True), labels)
            value.backward()
            optimizer.step()
            schedule.step()
            last = float(value.detach())
        return last

    def draw(
        self, sizes: Sequence[int], rng: np.random.Generator
    ) -> tuple[Array, npt.NDArray[np.int64]]:
        """Rows to release, `sizes[c]` of class c, and their labels.

        A categorical column is drawn from its probabilities rather than set to its likeliest
        category: the expectation is what was matched.
        """
        import torch

        labels = np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)
        with torch.no_grad():
            values = self.rows(torch.from_numpy(labels)).numpy().copy()
        for start, stop in self._drawn:
            chance = rng.random(len(values))
            if stop - start == 1:
                values[:, start] = np.where(chance < (1.0 + values[:, start]) / 2.0, 1.0, -1.0)
            else:
                cumulated = np.cumsum(values[:, start:stop], axis=1, dtype=np.float64)
                codes = (chance[:, None] * cumulated[:, -1:] > cumulated).sum(axis=1)
                values[:, start:stop] = np.eye(stop - start, dtype=np.float32)[codes]
        return values, labels
