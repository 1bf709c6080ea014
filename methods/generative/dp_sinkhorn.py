"""DP-Sinkhorn: a generator trained by optimal transport (Cao et al. 2021).

In each step the generator makes a batch of labelled rows and a Poisson sample of real rows is
taken. The loss is the semi-debiased Sinkhorn loss

    2 OT(generated, real) - OT(generated, generated again),

with the cost |x - y|_2^2 + m |x - y|_1 on rows that carry their label as a scaled one-hot code: it
is cheaper to move a row within its class. The gradient of the loss *in the generated rows* is
clipped and noised, and what comes out is propagated to the generator's weights.

**Transport.** Between uniform weights on x_1..x_n and y_1..y_m the plan P minimises

    sum_ij P_ij c(x_i, y_j) + blur KL(P | uniform),

with row sums 1/n and column sums 1/m. It is found by Sinkhorn's iterations on the potentials, in
logarithms, with a regularisation that starts at the largest cost and is halved down to `blur`. By
the envelope theorem the gradient of the minimum in x is that of sum_ij P_ij c(x_i, y_j), P fixed.

There is one iteration at each level and a few at the last, about as many as in the library that
the authors use. For costs in the hundreds and a `blur` of 0.05 that is not convergence: rows have
their sum 1/n, but columns miss 1/m where classes are not as frequent in one batch as in the other.
Such rows stay within their class, more than they would under the exact plan.

**Nothing is proven.** The loss is not a sum over real rows, and one row can change the whole plan,
so that none of the kernel's calls for sums fits; `partition_sum` has the right sensitivity, but no
sampling. The rows are read by `raw`, and the paper's claim is recorded: the gradient is clipped as
one vector, two vectors of norm at most C differ by at most 2C, and with noise 2 C sigma each step
is a Gaussian mechanism on a Poisson sample of rate L / N. The argument looks right: amplification
by sampling holds for any function of the sample with that sensitivity, not for sums alone (Zhu,
Dong and Wang, Optimal Accounting of Differential Privacy via Characteristic Function, 2022).

To prove it here, the kernel would have to sample the rows itself, hand them to a function of the
whole sample, clip what comes back to C, add noise 2 C sigma from its own generator and charge
`sampled_gaussian(L / N, sigma)`. All that touches private rows is in `NoisyGradient`, which has
this form. Until then the noise comes from the public generator, and whoever knows the
seed can subtract it.

The authors' code departs from the claim in two places: it generates as many rows as were sampled,
which shows the sample's size, and it skips empty samples. Here the batch has a fixed size, and an
empty sample has a gradient (that of the second term) and noise as well.

Choices and deviations:

* Defaults are the authors' for MNIST with m = 1: batch 50, C = 0.5, a fifth of the batch generated
  again, regularisation 0.05, labels scaled by 15, 16 noise numbers (normal here, uniform there).
* sigma is calibrated to the budget for `steps` steps. The authors fix sigma = 1.1 for MNIST and
  train until epsilon 10 is spent: hundreds of thousands of steps, at a learning rate of 1e-5. The
  default here is for one core. The noise has a norm of 2 C sigma sqrt(batch x columns) in each step
  and the gradient one of C, so that few rows or few steps leave nothing to be seen.
* The generator is that of `dp-merf`, fully connected; theirs is convolutional.
* Generated labels follow the declared class counts; theirs are uniform, on balanced data.
* Categories are drawn from the generator's probabilities at release. For survival the classes are
  the event statuses, and the time is one more number of a row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from bench import (
    Between,
    Claim,
    EncodedRows,
    InputError,
    Method,
    PrivateData,
    Release,
    Rows,
    Spec,
    sampled_gaussian,
)
from bench.methods._shared.generator import Generator

if TYPE_CHECKING:
    import torch

_LAST_ITERATIONS = 10
"""Iterations at the final regularisation, after the halving."""

REASON = (
    "the method itself samples raw rows, clips the gradient of a loss over the whole sample and "
    "adds noise from the public generator; the kernel bounds sums over rows only, so that neither "
    "the sensitivity 2C nor the sampling is checked"
)


@final
@dataclass(frozen=True)
class DpSinkhorn(Method):
    """A generator that lowers the cost of moving its rows onto real ones."""

    name: ClassVar[str] = "dp-sinkhorn"
    title: ClassVar[str] = "Generator trained by noisy optimal transport (DP-Sinkhorn)"
    paper: ClassVar[str] = (
        "Cao, Bie, Vahdat, Fidler and Kreis, Don't Generate Me: Training Differentially Private "
        "Generative Models with Sinkhorn Divergence, NeurIPS 2021"
    )
    link: ClassVar[str] = "https://arxiv.org/abs/2111.01177"
    family: ClassVar[str] = "generator"
    tuned_on: ClassVar[tuple[str, ...]] = ("adult", "mnist", "mnist-5k")

    search: ClassVar[Mapping[str, Any]] = {
        "steps": (1000, 2000, 4000),
        "batch": (50, 100, 200),
        "clip": Between(0.1, 1.0, log=True),
        "label_scale": Between(5.0, 30.0),
        "learning_rate": Between(1e-5, 1e-3, log=True),
    }
    quick: ClassVar[Mapping[str, Any]] = {"steps": 15}

    steps: int = 4000
    batch: int = 50
    """Generated rows per step, and the expected number of sampled real ones (L)."""
    again_share: float = 0.2
    """Share of the batch that is generated again, for the debiasing term."""
    clip: float = 0.5
    """C, the norm of the whole batch's gradient."""
    mixture: float = 1.0
    """m, the weight of the L1 cost."""
    blur: float = 0.05
    """Entropic regularisation."""
    label_scale: float = 15.0
    code: int = 16
    """Noise numbers that the generator starts from."""
    hidden: tuple[int, ...] = (200, 100)
    learning_rate: float = 1e-4
    noise_multiplier: float | None = None
    """sigma; None calibrates it to the budget."""

    def __post_init__(self) -> None:
        self._require(self.steps >= 1, "steps", "1 or more")
        self._require(self.batch >= 2, "batch", "2 or more")
        self._require(0.0 < self.again_share <= 1.0, "again_share", "in (0, 1]")
        self._require(self.clip > 0, "clip", "a positive number")
        self._require(self.blur > 0, "blur", "a positive number")
        self._require(self.mixture >= 0, "mixture", "0 or more")

    def _require(self, holds: bool, name: str, expected: str) -> None:
        if not holds:
            raise InputError(f"dp-sinkhorn: {name}={getattr(self, name)!r} is not {expected}")

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        import torch

        rate = private.rate(self.batch)
        noise = self.noise_multiplier or private.calibrate(
            lambda sigma: [private.plan(sampled_gaussian(rate, sigma), self.steps)]
        )
        rows = private.raw(REASON)
        random = torch.Generator().manual_seed(int(rng.integers(2**63)))
        generator = Generator(private.encoder, self.code, self.hidden, random)
        loss = SinkhornLoss(len(private.schema.classes), self.mixture, self.blur, self.label_scale)
        mechanism = NoisyGradient(loss, rate, self.clip, noise)
        weights = torch.tensor(private.counts.by_class, dtype=torch.float32).clamp_min(1.0)
        self._train(generator, mechanism, weights, rows, random, rng)
        values, labels = generator.draw(spec.rows_per_class(private.counts), rng)
        # With a given noise multiplier, nobody has said what was spent.
        claim = (
            Claim.of(spec.budget, "Poisson-sampled Gaussian of sensitivity 2C in every step")
            if self.noise_multiplier is None
            else None
        )
        return Release(Rows(values, labels), claim=claim, notes={"noise_multiplier": noise})

    def _train(
        self,
        generator: Generator,
        mechanism: NoisyGradient,
        weights: torch.Tensor,
        rows: EncodedRows,
        random: torch.Generator,
        noise: np.random.Generator,
    ) -> None:
        """All steps: generate, ask the mechanism for a gradient, propagate it, step by Adam."""
        import torch

        optimizer = torch.optim.Adam(generator.parameters, lr=self.learning_rate)
        second = max(1, round(self.again_share * self.batch))
        for _ in range(self.steps):
            labels = torch.multinomial(weights, self.batch, replacement=True, generator=random)
            made = generator.rows(torch.cat([labels, labels[:second]]), learning=True)
            batch = GeneratedBatch(made[: self.batch].detach(), labels, made[self.batch :].detach())
            gradient = torch.cat(mechanism(rows, batch, noise))
            optimizer.zero_grad()
            made.backward(gradient)
            optimizer.step()


# Transport and the mechanism ---------------------------------------------------------------------


def cost(first: torch.Tensor, second: torch.Tensor, mixture: float) -> torch.Tensor:
    """|x - y|_2^2 + mixture |x - y|_1 for every pair of rows."""
    import torch

    squares: torch.Tensor = torch.cdist(first, second, p=2).square()
    if mixture == 0.0:
        return squares
    return squares + mixture * torch.cdist(first, second, p=1)


def transport_plan(costs: torch.Tensor, blur: float) -> torch.Tensor:
    """The plan (n, m) of uniform weights; its rows sum to 1/n, its columns about to 1/m."""
    import torch

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
    """Factor of a one-hot label."""

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
        import torch
        from torch.nn import functional

        codes = functional.one_hot(labels, self.classes).float()
        return torch.cat([rows, self.label_scale * codes], dim=1)


@final
@dataclass(frozen=True)
class GeneratedBatch:
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
        self, rows: EncodedRows, batch: GeneratedBatch, noise: np.random.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Noisy gradient in the generated rows, and plain gradient in those generated again."""
        import torch

        sample = rows.take(noise.random(len(rows)) < self.rate)
        gradient, again = self.gradients(sample, batch)
        drawn = noise.standard_normal(tuple(gradient.shape))
        scale = 2.0 * self.clip * self.noise_multiplier
        return (gradient.double() + scale * torch.from_numpy(drawn)).float(), again

    def gradients(
        self, sample: EncodedRows, batch: GeneratedBatch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Both gradients without noise, each cut to norm `clip`. The sample may be empty."""
        import torch

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
    if not gradient.isfinite().all():
        return gradient.new_zeros(gradient.shape)
    norm = float(gradient.double().norm())
    return gradient * min(1.0, clip / max(norm, 1e-300))
