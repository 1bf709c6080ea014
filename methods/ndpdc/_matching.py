"""Gradient descent of synthetic rows on random features of real rows.

`NoisyMatching` is Algorithm 2 of the NDPDC paper: noisy sums of clipped features. `ExactMatching`
is its counterpart without privacy, DM (equation 3): means of the features themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch

from bench import Augmentation, EncodedRows, Floats, PrivateData, Rows, augmentation
from bench.methods._shared.extractors import Extractor, Kind, extractor


@final
@dataclass(frozen=True)
class SyntheticRows:
    """Synthetic rows of one class (or stratum)."""

    label: int
    rows: torch.Tensor
    """(rows, encoded columns); moved in place."""
    times: tuple[float, float] | None = None
    """Ends of the time bin, for survival."""

    def released(self) -> Floats:
        """A copy of the rows, with times clipped to the ends of their bin."""
        values: Floats = self.rows.numpy().copy()
        if self.times is not None:
            values[:, -1] = np.clip(values[:, -1], *self.times)
        return values


def released_rows(groups: Sequence[SyntheticRows]) -> Rows:
    """All groups as the rows of a release."""
    return Rows(
        np.concatenate([group.released() for group in groups]),
        np.repeat([group.label for group in groups], [len(group.rows) for group in groups]),
    )


@final
@dataclass(frozen=True)
class FeatureMap:
    """Features of augmented rows, in which real and synthetic rows of a group are compared."""

    features: Extractor
    augment: Augmentation | None
    inputs: tuple[int, ...]
    projection: torch.Tensor | None = None
    """(encoded columns, inputs), where synthetic rows are not encoded as real ones are."""

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        shaped = rows.reshape(-1, *self.inputs)
        return self.features(shaped if self.augment is None else self.augment(shaped))

    def at_encoded(self, rows: EncodedRows) -> torch.Tensor:
        """Row function for the kernel."""
        with torch.no_grad():
            values = torch.tensor(rows.values, dtype=torch.float32)
            return self(values if self.projection is None else values @ self.projection)


@final
@dataclass(frozen=True)
class RandomFeatures:
    """How fresh random extractors and augmentations are drawn."""

    kind: Kind
    inputs: tuple[int, ...]
    """Shape of one row."""
    width: int
    convolutions: torch.dtype = torch.float32
    projection: torch.Tensor | None = None
    """From encoded rows to what the extractor takes, if that is not the same."""

    def extractor(self, generator: torch.Generator) -> Extractor:
        """A fresh extractor."""
        return extractor(self.kind, self.inputs, self.width, generator, self.convolutions)

    def augmented(self, features: Extractor, generator: torch.Generator) -> FeatureMap:
        """These features behind a fresh augmentation, for images."""
        augment = augmentation.draw(generator) if self.kind == "convnet" else None
        return FeatureMap(features, augment, self.inputs, self.projection)


# With privacy -----------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class PrivateTarget:
    """Synthetic rows, and the private rows that they are matched to."""

    synthetic: SyntheticRows
    part: PrivateData
    rate: float
    """Poisson rate of the noisy sums."""


@final
@dataclass(frozen=True)
class NoisyMatching:
    """The settings of NDPDC's descent, by the names of the paper."""

    random: RandomFeatures
    iterations: int
    group_size: float
    clip: float
    noise_multiplier: float
    step: float
    anneal: bool
    """Whether the step falls linearly to zero over the iterations."""
    together: int
    scale_step: bool
    """Whether the step grows with the rows of a class, beyond L of them."""

    def descend(self, targets: Sequence[PrivateTarget], generator: torch.Generator) -> None:
        """Take all iterations over all targets."""
        for iteration in range(self.iterations):
            step = self.step * (1.0 - iteration / self.iterations if self.anneal else 1.0)
            features = self.random.extractor(generator)
            for target in targets:
                rows = target.synthetic.rows
                if not len(rows):
                    continue
                feature_map = self.random.augmented(features, generator)
                wanted = target.part.poisson_sum(
                    feature_map.at_encoded, self.clip, self.noise_multiplier, target.rate
                )
                self.move(rows, feature_map, torch.from_numpy(wanted).float(), step, generator)

    def loss(
        self, rows: torch.Tensor, feature_map: FeatureMap, wanted: torch.Tensor
    ) -> torch.Tensor:
        """Squared distance of L / M times the clipped features' sum from the noisy one."""
        features = feature_map(rows)
        norms = features.norm(dim=1, keepdim=True).clamp_min(1e-12)
        clipped = features * (self.clip / norms).clamp_max(1.0)
        distance: torch.Tensor = self.group_size / len(rows) * clipped.sum(dim=0) - wanted
        return distance.square().sum()

    def move(
        self,
        rows: torch.Tensor,
        feature_map: FeatureMap,
        wanted: torch.Tensor,
        step: float,
        generator: torch.Generator,
    ) -> None:
        """Take one gradient step; of `together` rows, where there are more.

        The gradient in one row has a factor L / M, or L / `together` in the iterations in which it
        has its turn. With `scale_step` it is taken out for classes of more than L rows: over all
        iterations a row moves as far in a release of 1,000 rows as in one of L.
        """
        turn = _turn(len(rows), self.together, generator)
        moving = rows[turn].requires_grad_(True)
        (gradient,) = torch.autograd.grad(self.loss(moving, feature_map, wanted), moving)
        factor = max(1.0, len(rows) / self.group_size) if self.scale_step else 1.0
        rows[turn] = moving.detach() - step * factor * gradient


# Without privacy --------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class RealTarget:
    """Synthetic rows, and the real rows that they are matched to."""

    synthetic: SyntheticRows
    real: torch.Tensor
    velocity: torch.Tensor
    """Momentum of each synthetic row."""


@final
@dataclass(frozen=True)
class ExactMatching:
    """The settings of DM's descent."""

    random: RandomFeatures
    iterations: int
    batch: int
    step: float
    momentum: float
    together: int

    def descend(self, targets: Sequence[RealTarget], generator: torch.Generator) -> None:
        """Take all iterations, over all targets that have both kinds of rows."""
        both = [target for target in targets if len(target.synthetic.rows) and len(target.real)]
        for _ in range(self.iterations):
            features = self.random.extractor(generator)
            for target in both:
                feature_map = self.random.augmented(features, generator)
                real = target.real
                if len(real) > self.batch:
                    real = real[torch.randperm(len(real), generator=generator)[: self.batch]]
                with torch.no_grad():
                    wanted = feature_map(real).mean(dim=0)
                self.move(target, feature_map, wanted, generator)

    def move(
        self,
        target: RealTarget,
        feature_map: FeatureMap,
        wanted: torch.Tensor,
        generator: torch.Generator,
    ) -> None:
        """Take one step of SGD with momentum; of `together` rows, where there are more.

        The gradient in one row has a factor 1 / M, which is taken out: a row moves as far in a
        release of 1,000 rows as in one of 10.
        """
        rows = target.synthetic.rows
        turn = _turn(len(rows), self.together, generator)
        moving = rows[turn].requires_grad_(True)
        (gradient,) = torch.autograd.grad(mean_loss(moving, feature_map, wanted), moving)
        velocity = self.momentum * target.velocity[turn] + len(turn) * gradient
        target.velocity[turn] = velocity
        rows[turn] = moving.detach() - self.step * velocity


def mean_loss(rows: torch.Tensor, feature_map: FeatureMap, wanted: torch.Tensor) -> torch.Tensor:
    """Squared distance of the mean features from `wanted` (equation 3)."""
    apart: torch.Tensor = feature_map(rows).mean(dim=0) - wanted
    return apart.square().sum()


def _turn(rows: int, together: int, generator: torch.Generator) -> torch.Tensor:
    """Rows that are moved in an iteration: all, or a random `together` of them."""
    if rows <= together:
        return torch.arange(rows)
    return torch.randperm(rows, generator=generator)[:together]
