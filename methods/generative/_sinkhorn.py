"""Entropic optimal transport between two batches, and the noisy gradient of DP-Sinkhorn.

Between uniform weights on x_1..x_n and y_1..y_m the plan P minimises

    sum_ij P_ij c(x_i, y_j) + blur KL(P | uniform),

with row sums 1/n and column sums 1/m. It is found by Sinkhorn's iterations on the potentials, in
logarithms, with a regularisation that starts at the largest cost and is halved down to `blur`. By
the envelope theorem the gradient of the minimum in x is that of sum_ij P_ij c(x_i, y_j), P fixed.

There is one iteration at each level and a few at the last, about as many as in the library that
the authors use. For costs in the hundreds and a `blur` of 0.05 that is not convergence: rows have
their sum 1/n, but columns miss 1/m where classes are not as frequent in one batch as in the other.
Such rows stay within their class, more than they would under the exact plan.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch.nn import functional

from bench import EncodedRows

_LAST_ITERATIONS = 10
"""At the final regularisation, after the halving."""


def cost(first: torch.Tensor, second: torch.Tensor, mixture: float) -> torch.Tensor:
    """|x - y|_2^2 + mixture |x - y|_1 for every pair of rows."""
    squares: torch.Tensor = torch.cdist(first, second, p=2).square()
    if mixture == 0.0:
        return squares
    return squares + mixture * torch.cdist(first, second, p=1)


def transport_plan(costs: torch.Tensor, blur: float) -> torch.Tensor:
    """The plan (n, m) of uniform weights; its rows sum to 1/n, its columns about to 1/m."""
    rows, columns = costs.shape
    left = torch.zeros(rows)
    right = torch.zeros(columns)
    largest = max(float(costs.max()), blur)
    halvings = math.ceil(math.log2(largest / blur))
    steps = [largest / 2.0**number for number in range(halvings)] + [blur] * _LAST_ITERATIONS
    for level in steps:
        right = level * (math.log(rows) - torch.logsumexp((left[:, None] - costs) / level, dim=0))
        left = level * (math.log(columns) - torch.logsumexp((right - costs) / level, dim=1))
    return torch.exp((left[:, None] + right - costs) / blur) / (rows * columns)


@final
@dataclass(frozen=True)
class SinkhornLoss:
    """Transport cost between labelled batches: a one-hot label is part of a row."""

    classes: int
    mixture: float
    """m, the weight of the L1 cost."""
    blur: float
    label_scale: float
    """What a one-hot label is multiplied by."""

    def __call__(
        self,
        rows: torch.Tensor,
        labels: torch.Tensor,
        other: torch.Tensor,
        other_labels: torch.Tensor,
    ) -> torch.Tensor:
        """The transport cost; differentiable in both batches."""
        costs = cost(self._joined(rows, labels), self._joined(other, other_labels), self.mixture)
        return (transport_plan(costs.detach(), self.blur) * costs).sum()

    def _joined(self, rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        codes = functional.one_hot(labels, self.classes).float()
        return torch.cat([rows, self.label_scale * codes], dim=1)


@final
@dataclass(frozen=True)
class Batch:
    """Generated rows of one step, as constants: what the gradient is taken in."""

    rows: torch.Tensor
    labels: torch.Tensor
    again: torch.Tensor
    """A second draw of the first labels, for the debiasing term."""


@final
@dataclass(frozen=True)
class NoisyGradient:
    """The mechanism that DP-Sinkhorn claims: everything that touches private rows.

    A Poisson sample S of the rows gives g(S), the gradient of

        2 OT(generated, S) - OT(generated, generated again)

    in the generated rows, all of them as one vector cut to norm `clip`. For any S and any row,
    |g(S with the row) - g(S)| <= 2 clip, because both have norm at most `clip`. With noise of
    deviation 2 clip `noise_multiplier` this is a Gaussian mechanism on a Poisson sample.
    The second term has no private row in it, nor has the gradient in the rows generated again.
    """

    loss: SinkhornLoss
    rate: float
    clip: float
    noise_multiplier: float

    def __call__(
        self, rows: EncodedRows, batch: Batch, noise: np.random.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Noisy gradient in the generated rows, and plain gradient in those generated again."""
        sample = rows.take(noise.random(len(rows)) < self.rate)
        gradient, again = self.gradients(sample, batch)
        drawn = noise.standard_normal(tuple(gradient.shape))
        scale = 2.0 * self.clip * self.noise_multiplier
        return (gradient.double() + scale * torch.from_numpy(drawn)).float(), again

    def gradients(self, sample: EncodedRows, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Both gradients without noise, each cut to norm `clip`. The sample may be empty."""
        rows = batch.rows.clone().requires_grad_(True)
        again = batch.again.clone().requires_grad_(True)
        skipped = len(again)
        value = -self.loss(
            rows,
            batch.labels,
            torch.cat([rows[skipped:], again]),
            torch.cat([batch.labels[skipped:], batch.labels[:skipped]]),
        )
        if len(sample):
            real = torch.tensor(sample.values, dtype=torch.float32)
            value = value + 2.0 * self.loss(rows, batch.labels, real, torch.tensor(sample.labels))
        first, second = torch.autograd.grad(value, (rows, again))
        return cut(first, self.clip), cut(second, self.clip)


def cut(gradient: torch.Tensor, clip: float) -> torch.Tensor:
    """The whole tensor as one vector, shortened to norm `clip`; zero where it is not finite."""
    if not torch.isfinite(gradient).all():
        return torch.zeros_like(gradient)
    norm = float(gradient.double().norm())
    return gradient * min(1.0, clip / max(norm, 1e-300))
