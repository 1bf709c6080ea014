"""DP-NTK: a generator trained on one noisy mean of neural tangent features (Yang et al. 2023).

As in `dp-merf` the rows of each class are summarised once, by the noisy mean of features of norm 1,
and a conditional generator is trained to have the same means; training is post-processing. The
features are those of the empirical neural tangent kernel (e-NTK) of a network that is drawn from
public randomness and never trained: the gradient of its output in its parameters, at that row,
divided by its norm.

**Features.** The network is fully connected with one hidden layer of ReLU units, as the authors'
for MNIST. With z = (x, 1), which holds the bias, and weights w_k ~ N(0, I), a_k ~ N(0, 1),

    f(x) = sqrt(2 / K) sum over k of a_k relu(w_k z),
    df / da_k = sqrt(2 / K) relu(w_k z),    df / dw_k = sqrt(2 / K) a_k 1[w_k z > 0] z.

As K grows the inner product of two rows' gradients approaches the neural tangent kernel (Jacot,
Gabriel and Hongler 2018), with theta the angle between z and z',

    |z| |z'| (2 (pi - theta) cos(theta) + sin(theta)) / pi.

**Dimension.** K = 800 units on the 784 pixels of MNIST have 628,800 parameters: memory and noise
for that many numbers per row are out of reach on a CPU. The weight gradient of each unit is thus
seen in `directions` public random directions v of N(0, I / directions), one per unit by default:

    a_k 1[w_k z > 0] (v z) in place of a_k 1[w_k z > 0] z,

whose inner products have the same expectation. That is 1,600 features. Where `directions` is
not smaller than a row with its bias, the gradient itself is taken, without a projection.

**Privacy.** A row's features depend on that row and on public weights, and are divided by their own
norm. A row has one class, so that the classes' sums together are one Gaussian mechanism of
sensitivity 1 (2 / n in the paper, whose neighbours replace a row).

Choices and deviations:

* The random projection above. The authors keep all parameters, and noise each of them.
* Weights are normal, in the parametrisation of Jacot et al., in which both layers weigh the same
  for rows of any width. Torch's initial weights, the authors' choice, come to nearly the same for
  MNIST, where there are about as many pixels as units.
* The network sees pixels in [0, 1], as the authors' does, and tables as encoded. A one-hidden-layer
  network is used for tables too, where the authors have a convolution over the columns.
* N_c is the declared count. The authors divide all classes by the number of rows, which weighs a
  class by its size.
* Generator: that of `dp-merf` (200 and 100 units, code of 5 numbers) with Adam at 0.01, for 2,000
  steps as the authors' runs on images, in batches of 500 (theirs: 5,000 for MNIST, 200 for Adult).
* Categories are drawn from the generator's probabilities at release.
* For survival the classes are the event statuses, and the time is one more number of a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from bench import (
    Claim,
    EncodedRows,
    Method,
    PlannedEvents,
    PrivateData,
    Release,
    Rows,
    Spec,
    gaussian,
)
from bench.methods._shared.generator import Generator, Training
from bench.methods._shared.parameters import check_parameters

if TYPE_CHECKING:
    import torch

_ROWS_AT_ONCE = 4096
_TINY = 1e-12


@final
@dataclass(frozen=True)
class DpNtk(Method):
    """A generator that matches one noisy mean of neural tangent features per class."""

    name: ClassVar[str] = "dp-ntk"
    title: ClassVar[str] = "Generator matching noisy neural tangent features (DP-NTK)"
    paper: ClassVar[str] = (
        "Yang, Adamczewski, Sutherland, Li and Park, Differentially Private Neural Tangent Kernels "
        "for Privacy-Preserving Data Generation, 2023"
    )
    link: ClassVar[str] = "https://arxiv.org/abs/2303.01687"
    family: ClassVar[str] = "kernel features"
    tuned_on: ClassVar[tuple[str, ...]] = ("fashion-mnist", "mnist", "mnist-5k", "unknown")

    quick: ClassVar[Mapping[str, Any]] = {"steps": 15, "units": 200}

    units: int = 800
    """Hidden units of the network whose gradients are the features."""
    directions: int = 1
    """Random directions in which the weight gradient of each unit is seen."""
    code: int = 5
    """Noise numbers that the generator starts from."""
    hidden: tuple[int, ...] = (200, 100)
    """Hidden units of the generator, layer by layer."""
    steps: int = 2000
    batch: int = 500
    learning_rate: float = 0.01
    noise_multiplier: float | None = None
    """None calibrates the noise to the budget."""

    def __post_init__(self) -> None:
        check_parameters(
            self,
            self.name,
            {
                "units": (self.units > 0, "a positive number"),
                "directions": (self.directions > 0, "a positive number"),
            },
        )

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        import torch

        random = torch.Generator().manual_seed(int(rng.integers(2**63)))
        features = TangentFeatures.draw(
            private.width,
            self.units,
            self.directions,
            private.schema.image_shape is not None,
            random,
        )
        parts = private.partition("class").values()

        def plans(noise: float) -> list[PlannedEvents]:
            return [part.plan(gaussian(noise)) for part in parts]

        noise = self.noise_multiplier or private.calibrate(plans)
        private.reserve_all(plans(noise))
        means = [
            part.gaussian_sum(features.at_encoded, 1.0, noise) / max(1, part.counts.total)
            for part in parts
        ]
        generator = Generator(private.encoder, self.code, self.hidden, random)
        last = generator.train(
            discrepancy(features, torch.tensor(np.asarray(means), dtype=torch.float32)),
            Training(self.steps, self.batch, self.learning_rate),
        )
        values, labels = generator.draw(spec.rows_per_class(private.counts), rng)
        claim = Claim.of(spec.budget, "one Gaussian mechanism on the mean embedding")
        notes = {"noise_multiplier": noise, "final_loss": last, "features": features.width}
        return Release(Rows(values, labels), claim=claim, notes=notes)


def discrepancy(
    features: TangentFeatures, target: torch.Tensor
) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Squared distance of the generated rows' mean features from `target` (classes, features).

    For as many generated rows of each class, in the order of classes.
    """

    def loss(rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        of_each = features(rows).reshape(len(target), -1, features.width)
        return (of_each.mean(dim=1) - target).square().sum()

    return loss


# Features ----------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class TangentFeatures:
    """Encoded rows to gradients of a random network, of norm 1."""

    weights: torch.Tensor
    """(columns and bias, units): w."""
    outer: torch.Tensor
    """(units,): a."""
    projection: torch.Tensor | None
    """(columns and bias, units x directions): v of all units; None leaves gradients whole."""
    unit_range: bool
    """Whether the network sees [0, 1] in place of [-1, 1]."""

    @classmethod
    def draw(
        cls, columns: int, units: int, directions: int, unit_range: bool, random: torch.Generator
    ) -> TangentFeatures:
        """A new network for rows of `columns` numbers."""
        import torch

        inputs = columns + 1
        weights = torch.randn(inputs, units, generator=random)
        outer = torch.randn(units, generator=random)
        projection = None
        if directions < inputs:
            projection = torch.randn(inputs, units * directions, generator=random)
            projection = projection / math.sqrt(directions)
        return cls(weights, outer, projection, unit_range)

    @property
    def width(self) -> int:
        """Number of features."""
        inputs, units = self.weights.shape
        per_unit = inputs if self.projection is None else self.projection.shape[1] // units
        return int(units * (per_unit + 1))

    def gradients(self, rows: torch.Tensor) -> torch.Tensor:
        """(rows, features) before they are divided by their norms; differentiable.

        First the (projected) weight gradients unit by unit, then the gradients in a.
        """
        import torch

        seen = (rows + 1.0) / 2.0 if self.unit_range else rows
        inputs = torch.cat([seen, seen.new_ones(len(seen), 1)], dim=1)
        units = len(self.outer)
        before = inputs @ self.weights
        # The derivative of a step is zero almost everywhere: nothing flows back through it.
        gates = self.outer * (before.detach() > 0)
        if self.projection is None:
            inner = gates[:, :, None] * inputs[:, None, :]
        else:
            directions = self.projection.shape[1] // units
            seen_along = (inputs @ self.projection).reshape(len(rows), units, directions)
            inner = gates[:, :, None] * seen_along
        both = torch.cat([inner.flatten(1), before.clamp_min(0.0)], dim=1)
        return both * math.sqrt(2.0 / units)

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """(rows, features) of norm 1; of no rows as well."""
        gradients = self.gradients(rows)
        norms: torch.Tensor = gradients.norm(dim=1, keepdim=True)
        return gradients / norms.clamp_min(_TINY)

    def at_encoded(self, rows: EncodedRows) -> torch.Tensor:
        """Row function for the kernel."""
        import torch

        with torch.no_grad():
            values = torch.tensor(rows.values, dtype=torch.float32)
            return torch.cat([self(piece) for piece in values.split(_ROWS_AT_ONCE)])
