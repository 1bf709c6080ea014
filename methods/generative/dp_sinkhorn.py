"""DP-Sinkhorn: a generator trained by optimal transport (Cao et al. 2021).

In each step the generator makes a batch of labelled rows and a Poisson sample of real rows is
taken. The loss is the semi-debiased Sinkhorn loss

    2 OT(generated, real) - OT(generated, generated again),

with the cost |x - y|_2^2 + m |x - y|_1 on rows that carry their label as a scaled one-hot code: it
is cheaper to move a row within its class. The gradient of the loss *in the generated rows* is
clipped and noised, and what comes out is propagated to the generator's weights.

**Nothing is proven.** The loss is not a sum over real rows, and one row can change the whole plan,
so that none of the kernel's calls for sums fits; `partition_sum` has the right sensitivity, but no
sampling. The rows are read by `raw`, and the paper's claim is recorded: the gradient is clipped as
one vector, two vectors of norm at most C differ by at most 2C, and with noise 2 C sigma each step
is a Gaussian mechanism on a Poisson sample of rate L / N. The argument looks right: amplification
by sampling holds for any function of the sample with that sensitivity, not for sums alone (Zhu,
Dong and Wang, Optimal Accounting of Differential Privacy via Characteristic Function, 2022).

To prove it here, the kernel would have to sample the rows itself, hand them to a function of the
whole sample, clip what comes back to C, add noise 2 C sigma from its own generator and charge
`sampled_gaussian(L / N, sigma)`. All that touches private rows is in `_sinkhorn.NoisyGradient`,
which has this form. Until then the noise comes from the public generator, and whoever knows the
seed can subtract it.

The authors' code departs from the claim in two places: it generates as many rows as were sampled,
which shows the sample's size, and it skips empty samples. Here the batch has a fixed size, and an
empty sample gives a gradient (that of the second term) and noise as well.

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

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from bench import (
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

    from bench.methods.generative._sinkhorn import NoisyGradient

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

    quick: ClassVar[Mapping[str, Any]] = {"steps": 15}

    steps: int = 4000
    batch: int = 50
    """Generated rows a step, and the expected number of sampled real ones (L)."""
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

        from bench.methods.generative._sinkhorn import NoisyGradient, SinkhornLoss

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
        # With a noise multiplier of the user's own, nobody has said what was spent.
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

        from bench.methods.generative._sinkhorn import Batch

        optimizer = torch.optim.Adam(generator.parameters, lr=self.learning_rate)
        second = max(1, round(self.again_share * self.batch))
        for _ in range(self.steps):
            labels = torch.multinomial(weights, self.batch, replacement=True, generator=random)
            made = generator.rows(torch.cat([labels, labels[:second]]), learning=True)
            batch = Batch(made[: self.batch].detach(), labels, made[self.batch :].detach())
            gradient = torch.cat(mechanism(rows, batch, noise))
            optimizer.zero_grad()
            made.backward(gradient)
            optimizer.step()
