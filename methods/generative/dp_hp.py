"""DP-HP: a generator trained on noisy mean embeddings of Hermite features (Vinaroz et al. 2022).

As in `dp-merf` the rows of each class are summarised by the mean of their features, with Gaussian
noise, and a conditional generator is trained to have the same means. The features are those of
Mehler's expansion of the Gaussian kernel instead of random ones: few of them, in order of
importance. Two kernels are summed:

* the sum kernel over all columns: the marginals, one noisy embedding for the whole training;
* the product kernel over a few random columns, which sees how they depend on each other. The
  columns are drawn anew `redraws` times during training, with a noisy embedding each time.

    loss = sum over classes of |sum-kernel means apart|^2 + product_weight |product means apart|^2

**Features.** Mehler's formula expands the Gaussian kernel in one dimension (Vinaroz et al. 2022):
for 0 < rho < 1 and physicists' Hermite polynomials H_c,

    exp(-rho / (1 - rho^2) (x - y)^2) = sum over c >= 0 of phi_c(x) phi_c(y),
    phi_c(x) = (1 - rho^2)^(1/4) sqrt(rho^c / (2^c c!)) H_c(x) exp(-rho / (1 + rho) x^2).

They are computed by the recursion of the polynomials,

    phi_(c+1)(x) = sqrt(2 rho / (c+1)) x phi_c(x) - rho sqrt(c / (c+1)) phi_(c-1)(x).

At x = y the sum is 1. Its terms are squares, so that the features up to any order C have norm at
most 1, for every x: truncation costs accuracy and never privacy.

Every column of the schema gets a vector of norm at most 1: a number its features up to order C, a
categorical column its one-hot code. Two kernels are built on these:

* sum: the D columns' vectors side by side, divided by sqrt(D): the mean of the columns' kernels.
* product: the tensor product of the vectors of a few columns, whose norm is the product of theirs.

**Privacy.** Features of a row have norm at most 1 under either kernel, and a row has one class, so
that each embedding is a Gaussian mechanism of sensitivity 1 (2 / n in the paper, whose neighbours
replace a row). With sigma for everything, share w for the sum kernel and R redraws, the noise
multipliers are sigma / sqrt(w) and sigma sqrt(R / (1 - w)): together they compose to one Gaussian
mechanism of multiplier sigma. Everything is reserved before the first output; columns are drawn
from public randomness.

Choices and deviations:

* A kernel length for all numbers in [-1, 1] (`length`). The paper takes the median distance of the
  rows column by column for tables, which is non-private access, and sets it by dataset for images.
* Categorical columns take part by their one-hot codes. The authors' code has Hermite features of
  every column, as of a number.
* w splits the variance; the authors' tables split epsilon 0.6 to 0.4 and delta in halves.
* The product embeddings are by class. In the authors' code for tables as published, each class's
  is that of all rows.
* gamma, the weight of the product kernel, is the ratio of the two noise variances, (1 - w) / (w R):
  the likelihood's weight, so that the noisier embedding counts less. The authors set it by dataset
  (by default 1 for images and 0.01 for tables).
* Declared counts take the place of the noisy class weights that the paper pays for.
* Two columns in a product (the authors: 2 for images; for tables searched, 5 by default, which is
  11^5 features), order 20, redrawn 10 times. Generator and training are those of `dp-merf`; the
  paper has a convolutional generator for images.
* The sum kernel is asked for in groups of columns where it is wide: the same
  mechanism, in less memory.
* For survival the classes are the event statuses, and the time is one more number of a row.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from bench import (
    Block,
    Categorical,
    Claim,
    EncodedRows,
    Encoder,
    InputError,
    Method,
    PlannedEvents,
    PrivateData,
    Release,
    Rows,
    Spec,
    gaussian,
)
from bench.methods._shared.generator import Generator, Training

if TYPE_CHECKING:
    import torch

_FEATURES_AT_ONCE = 4096
"""Features of the sum kernel held at once: 6,000 rows of them are 200 MB."""


@final
@dataclass(frozen=True)
class DpHp(Method):
    """A generator that matches noisy means of Hermite features, by class."""

    name: ClassVar[str] = "dp-hp"
    title: ClassVar[str] = "Generator matching noisy Hermite features (DP-HP)"
    paper: ClassVar[str] = (
        "Vinaroz, Charusaie, Harder, Adamczewski and Park, Hermite Polynomial Features for "
        "Private Data Generation, ICML 2022"
    )
    link: ClassVar[str] = "https://proceedings.mlr.press/v162/vinaroz22a.html"
    family: ClassVar[str] = "kernel features"
    tuned_on: ClassVar[tuple[str, ...]] = ("adult", "digits", "unknown")

    quick: ClassVar[Mapping[str, Any]] = {"steps": 15}

    order: int = 20
    """C of the sum kernel: a number has C + 1 features."""
    length: float = 0.5
    """Length of the Gaussian kernel of a number in [-1, 1]."""
    product_columns: int = 2
    """Columns in a product kernel; features are (product_order + 1) to this power."""
    product_order: int = 20
    redraws: int = 10
    """Product kernels during training; 0 leaves the sum kernel alone."""
    product_weight: float | None = None
    """gamma: weight of the product kernel in the loss; None weighs by the variance of the noise."""
    sum_share: float = 0.6
    """Share of the sum kernel in what is spent; the product kernels share the rest."""
    code: int = 5
    """Noise numbers that the generator starts from."""
    hidden: tuple[int, ...] = (200, 100)
    steps: int = 600
    batch: int = 500
    learning_rate: float = 0.01
    noise_multiplier: float | None = None
    """Noise of everything together; None calibrates it to the budget."""

    def __post_init__(self) -> None:
        self._require(self.order >= 0, "order", "0 or more")
        self._require(self.product_order >= 0, "product_order", "0 or more")
        self._require(self.length > 0, "length", "a positive number")
        self._require(self.product_columns >= 1, "product_columns", "1 or more")
        self._require(self.redraws >= 0, "redraws", "0 or more")
        self._require(0.0 < self.sum_share < 1.0, "sum_share", "between 0 and 1")

    def _require(self, holds: bool, name: str, expected: str) -> None:
        if not holds:
            raise InputError(f"dp-hp: {name}={getattr(self, name)!r} is not {expected}")

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        import torch

        encoder, rho = private.encoder, rho_of(self.length)
        groups = sum_kernel(encoder, self.order, rho, _FEATURES_AT_ONCE)
        products = product_kernels(
            encoder, self.product_order, rho, self.product_columns, self.redraws, rng
        )
        parts = list(private.partition("class").values())

        def plans(noise: float) -> list[PlannedEvents]:
            of_sum, of_product = self.multipliers(noise)
            return [
                *(part.plan(gaussian(of_sum / group.norm)) for part in parts for group in groups),
                *(part.plan(gaussian(of_product), self.redraws) for part in parts),
            ]

        noise = self.noise_multiplier or private.calibrate(plans)
        private.reserve_all(plans(noise))
        of_sum, of_product = self.multipliers(noise)
        random = torch.Generator().manual_seed(int(rng.integers(2**63)))
        generator = Generator(encoder, self.code, self.hidden, random)
        targets = TrainingTargets(
            [_noisy_means(parts, group, group.norm, of_sum / group.norm) for group in groups],
            [_noisy_means(parts, product, 1.0, of_product) for product in products],
        )
        weight = self.product_weight
        if weight is None:
            weight = (of_sum / of_product) ** 2
        last = generator.train(
            targets.loss(weight, self.steps),
            Training(self.steps, self.batch, self.learning_rate),
        )
        values, labels = generator.draw(spec.rows_per_class(private.counts), rng)
        claim = Claim.of(spec.budget, "Gaussian mechanisms on the mean embeddings, composed")
        notes = {"noise_multiplier": noise, "rho": rho, "final_loss": last}
        return Release(Rows(values, labels), claim=claim, notes=notes)

    def multipliers(self, noise: float) -> tuple[float, float]:
        """Noise of the sum kernel and of each product kernel: together they cost one `noise`."""
        if not self.redraws:
            return noise, noise
        rest = 1.0 - self.sum_share
        return noise / math.sqrt(self.sum_share), noise * math.sqrt(self.redraws / rest)


@final
@dataclass(frozen=True)
class NoisyMeans:
    """Noisy mean features, (classes, features), and the map that they belong to."""

    features: Callable[[torch.Tensor], torch.Tensor]
    means: torch.Tensor

    def distance(self, rows: torch.Tensor) -> torch.Tensor:
        """Squared distance from as many generated rows of each class, in the order of classes."""
        features = self.features(rows)
        by_class = features.reshape(len(self.means), -1, features.shape[1]).mean(dim=1)
        return (by_class - self.means).square().sum()


@final
@dataclass(frozen=True)
class TrainingTargets:
    """Noisy embeddings that the generator is trained against."""

    sums: Sequence[NoisyMeans]
    products: Sequence[NoisyMeans]
    """Product kernels in the order of training: each has its turn."""

    def loss(
        self, product_weight: float, steps: int
    ) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
        """The loss of a run of `steps` steps: it counts its calls to know whose turn it is."""
        turns = iter(step * len(self.products) // steps for step in range(steps))

        def value(rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            import torch

            total = torch.stack([target.distance(rows) for target in self.sums]).sum()
            if self.products:
                total = total + product_weight * self.products[next(turns)].distance(rows)
            return total

        return value


def _noisy_means(
    parts: Sequence[PrivateData],
    features: Callable[[torch.Tensor], torch.Tensor],
    clip: float,
    noise_multiplier: float,
) -> NoisyMeans:
    """Ask every class for its noisy sum; divide by its declared count."""
    import torch

    def of_rows(rows: EncodedRows) -> torch.Tensor:
        with torch.no_grad():
            return features(torch.tensor(rows.values, dtype=torch.float32))

    means = [
        part.gaussian_sum(of_rows, clip, noise_multiplier) / max(1, part.counts.total)
        for part in parts
    ]
    return NoisyMeans(features, torch.tensor(np.asarray(means), dtype=torch.float32))


# Hermite features --------------------------------------------------------------------------------


def rho_of(length: float) -> float:
    """rho for which the kernel is exp(-(x - y)^2 / (2 length^2))."""
    steepness = 1.0 / (2.0 * length**2)
    # The root of steepness rho^2 + rho - steepness = 0 in (0, 1), free of cancellation.
    return 2.0 * steepness / (1.0 + math.sqrt(1.0 + 4.0 * steepness**2))


def hermite(values: torch.Tensor, order: int, rho: float) -> torch.Tensor:
    """(...,) numbers to (..., order + 1) features."""
    import torch

    features = [(1.0 - rho**2) ** 0.25 * torch.exp(-rho / (1.0 + rho) * values.square())]
    for degree in range(order):
        following = math.sqrt(2.0 * rho / (degree + 1)) * values * features[-1]
        if degree:
            following = following - rho * math.sqrt(degree / (degree + 1)) * features[-2]
        features.append(following)
    return torch.stack(features, dim=-1)


@final
@dataclass(frozen=True)
class SumKernel:
    """Features of a group of columns; all groups together are those of the sum kernel."""

    blocks: tuple[Block, ...]
    columns: int
    """Number of columns in all groups."""
    order: int
    rho: float

    @property
    def norm(self) -> float:
        """The largest norm that the features of a row can have."""
        return math.sqrt(len(self.blocks) / self.columns)

    @functools.cached_property
    def _numbers(self) -> list[int]:
        return [block.start for block in self.blocks if not isinstance(block.column, Categorical)]

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """(rows, features): first the numbers', then the categories'; of no rows as well."""
        import torch

        pieces = [
            _codes(rows, block) for block in self.blocks if isinstance(block.column, Categorical)
        ]
        if self._numbers:
            pieces.insert(0, hermite(rows[:, self._numbers], self.order, self.rho).flatten(1))
        return torch.cat(pieces, dim=1) / math.sqrt(self.columns)


@final
@dataclass(frozen=True)
class ProductKernel:
    """Features of the product of some columns' kernels."""

    blocks: tuple[Block, ...]
    order: int
    rho: float

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """(rows, features), of norm at most 1."""
        joint = self._of(rows, self.blocks[0])
        for block in self.blocks[1:]:
            joint = (joint[:, :, None] * self._of(rows, block)[:, None, :]).flatten(1)
        return joint

    def _of(self, rows: torch.Tensor, block: Block) -> torch.Tensor:
        if isinstance(block.column, Categorical):
            return _codes(rows, block)
        return hermite(rows[:, block.start], self.order, self.rho)


def sum_kernel(encoder: Encoder, order: int, rho: float, at_most: int) -> list[SumKernel]:
    """The sum kernel, in groups of columns with about `at_most` features each.

    Gaussian noise on each group is the same mechanism as on all of them at once, and wide rows
    need not be held in memory with all their features.
    """
    groups: list[list[Block]] = [[]]
    held = 0
    for block in encoder.blocks:
        size = max(2, block.stop - block.start)
        size = size if isinstance(block.column, Categorical) else order + 1
        if groups[-1] and held + size > at_most:
            groups.append([])
            held = 0
        groups[-1].append(block)
        held += size
    return [SumKernel(tuple(group), len(encoder.blocks), order, rho) for group in groups]


def product_kernels(
    encoder: Encoder, order: int, rho: float, columns: int, count: int, rng: np.random.Generator
) -> list[ProductKernel]:
    """`count` product kernels, each over random columns."""
    blocks: Sequence[Block] = encoder.blocks
    chosen = [
        np.sort(rng.choice(len(blocks), size=min(columns, len(blocks)), replace=False))
        for _ in range(count)
    ]
    return [ProductKernel(tuple(blocks[at] for at in some), order, rho) for some in chosen]


def _codes(rows: torch.Tensor, block: Block) -> torch.Tensor:
    """One-hot codes; a binary column in {-1, 1} becomes ((1 - v) / 2, (1 + v) / 2)."""
    import torch

    if block.stop - block.start > 1:
        return rows[:, block.slice]
    value = rows[:, block.start]
    return torch.stack([(1.0 - value) / 2.0, (1.0 + value) / 2.0], dim=1)
