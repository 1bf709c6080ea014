"""DP-Kernel: a generator that follows noisy kernel mean embeddings (Jiang, Sun and Yu 2023).

In every step a generator is moved to reduce the squared maximum mean discrepancy (MMD) between its
rows and a fresh sample of private rows. What it sees of these is a noisy function: the mean
embedding f(y) = 1/L sum over the sample of k(x, y), plus a path g of the Gaussian process whose
covariance is the kernel k itself. As |k(x, .)| = sqrt(k(x, x)) in the kernel's Hilbert space, that
is a Gaussian mechanism between functions, wherever and however often the noisy function and its
derivatives are evaluated afterwards (functional Rényi differential privacy, after Hall, Rinaldo and
Wasserman 2013). With rows and labels the kernel is k(x, y) times 1[same label].

**Here** the process is drawn with finitely many features. In each step D/2 random frequencies are
drawn from public randomness, which define the kernel k_t(x, y) = phi_t(x) phi_t(y) of norm 1 and
expectation k. For it the mechanism is exact and finite: the noisy function is

    f_t(y) = phi_t(y) u_t,    u_t = 1/L (sum over the sample of phi_t(x) + N(0, sigma^2 I)),

one call of `poisson_sum` per class. The noise phi_t(y) N(0, sigma^2 I) has the covariance
sigma^2 k_t. The generator descends

    sum over classes of |mean over its rows of phi_t(y) - u_t|^2,

the squared MMD of k_t but for a constant, so that its gradient is that of the noisy function.

**Why not by values at the generated rows.** The authors' public code draws the noise at the values
k(x, y_j) that occur in a step, and treats it as a constant: the gradient with respect to y_j, with
which the generator is moved, is that of the exact f. The noisy function's own gradient at n rows of
d pixels would need a Gaussian process of n (d + 1) dimensions. Their term E k(x, x'), too, is
evaluated at the private rows.

Choices and deviations:

* Scales: the setting for MNIST in DPImageBench (2025) is a sum of Gaussian kernels of lengths 1, 2,
  4, 8 and 16 on pixels in [-1, 1]. Between two digits all but the last are nearly zero, so that
  their features have nothing but noise, with steeper slopes the shorter the length; here the
  longest alone is the default (chosen on MNIST). Lengths are multiplied by sqrt(columns / 784), so
  that they mean the same for other images and for tables.
* Poisson samples of every class of L expected rows, where the authors draw batches of 60 rows of
  all classes; the generator makes as many rows of every class. Means are over declared counts.
* 1,000 steps (200,000 in DPImageBench) of Adam, and the fully connected generator of `dp-merf`, for
  one core; the authors have convolutions and RMSprop. The loss is the squared MMD; their code
  squares it once more.
* Categories are drawn from the generator's probabilities at release. For survival the classes are
  the event statuses, and the time is one more number of a row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
import numpy.typing as npt

from bench import Claim, Method, PlannedEvents, PrivateData, Release, Rows, Spec, sampled_gaussian
from bench.methods._shared.generator import Generator, Training
from bench.methods._shared.parameters import check_parameters
from bench.methods.generative.dp_merf import FourierEmbedding

if TYPE_CHECKING:
    import torch

_PIXELS = 784
"""Columns for which `scales` are given."""


@final
@dataclass(frozen=True)
class DpKernel(Method):
    """A generator that follows noisy mean embeddings of fresh samples."""

    name: ClassVar[str] = "dp-kernel"
    title: ClassVar[str] = "Generator following noisy kernel embeddings (DP-Kernel)"
    paper: ClassVar[str] = (
        "Jiang, Sun and Yu, Functional Renyi Differential Privacy for Generative Modeling, "
        "NeurIPS 2023"
    )
    family: ClassVar[str] = "kernel features"
    tuned_on: ClassVar[tuple[str, ...]] = ("fashion-mnist", "mnist", "mnist-5k", "unknown")
    quick: ClassVar[Mapping[str, Any]] = {"steps": 15, "features": 100}

    features: int = 400
    """Random features of one step: half of them cosines."""
    scales: tuple[float, ...] = (16.0,)
    """Lengths of the Gaussian kernels for 784 columns in [-1, 1]."""
    group_size: float = 60.0
    """Expected number of real rows of a class in one step: L."""
    code: int = 60
    """Noise numbers that the generator starts from."""
    hidden: tuple[int, ...] = (200, 100)
    """Hidden units of the generator, layer by layer."""
    steps: int = 1000
    batch: int = 500
    """Generated rows per step, all classes together."""
    learning_rate: float = 0.001
    noise_multiplier: float | None = None
    """None calibrates the noise to the budget."""

    def __post_init__(self) -> None:
        check_parameters(
            self,
            self.name,
            {
                "features": (self.features > 1, "at least 2"),
                "scales": (bool(self.scales) and min(self.scales) > 0.0, "positive lengths"),
                "steps": (self.steps > 0, "a positive number"),
            },
        )

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        import torch

        parts = list(private.partition("class").values())

        def plans(noise: float) -> list[PlannedEvents]:
            return [
                part.plan(sampled_gaussian(part.rate(self.group_size), noise), self.steps)
                for part in parts
            ]

        noise = self.noise_multiplier or private.calibrate(plans)
        private.reserve_all(plans(noise))
        random = torch.Generator().manual_seed(int(rng.integers(2**63)))
        generator = Generator(private.encoder, self.code, self.hidden, random)

        def discrepancy(rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            embedding = random_embedding(private.width, self.features, self.scales, rng)
            target = torch.from_numpy(self._noisy_means(parts, embedding, noise)).float()
            of_each = embedding.of_tensor(rows).reshape(len(parts), -1, embedding.width)
            return (of_each.mean(dim=1) - target).square().sum()

        last = generator.train(discrepancy, Training(self.steps, self.batch, self.learning_rate))
        values, labels = generator.draw(spec.rows_per_class(private.counts), rng)
        claim = Claim.of(spec.budget, "sampled Gaussian steps, noise calibrated to the target")
        notes = {"noise_multiplier": noise, "final_loss": last}
        return Release(Rows(values, labels), claim=claim, notes=notes)

    def _noisy_means(
        self, parts: Sequence[PrivateData], embedding: FourierEmbedding, noise: float
    ) -> npt.NDArray[np.float64]:
        """Return u_t of every class; the mean is over the expected size of the sample."""
        return np.stack(
            [
                part.poisson_sum(
                    lambda rows: embedding.of_rows(rows.values),
                    1.0,
                    noise,
                    part.rate(self.group_size),
                )
                / max(1.0, part.rate(self.group_size) * part.counts.total)
                for part in parts
            ]
        )


def random_embedding(
    columns: int, features: int, scales: Sequence[float], rng: np.random.Generator
) -> FourierEmbedding:
    """Draw features of norm 1 whose expected inner products are the mean of Gaussian kernels.

    Every scale has as many frequencies as the others, or one less.
    """
    lengths = np.asarray(scales) * math.sqrt(columns / _PIXELS)
    of_each = lengths[np.arange(features // 2) % len(lengths)]
    frequencies = rng.standard_normal((features // 2, columns), dtype=np.float32)
    frequencies /= of_each[:, None].astype(np.float32)
    nothing = np.zeros((columns, 0), dtype=np.float32)
    return FourierEmbedding(frequencies, np.arange(columns), nothing, nothing[0])
