"""Gradient descent of synthetic rows on noisy sums of random features (NDPDC, Algorithm 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch

from bench import Augmentation, EncodedRows, Floats, PrivateData, augmentation
from bench.methods._shared.extractors import Extractor, Kind, extractor


@final
@dataclass(frozen=True)
class Group:
    """Synthetic rows of one class (or stratum) beside its real rows."""

    part: PrivateData
    rate: float
    label: int
    rows: torch.Tensor
    """(rows, encoded columns); moved in place."""
    times: tuple[float, float] | None = None
    """Ends of the time bin, for survival."""

    def released(self) -> Floats:
        """The rows, with times inside their bin."""
        return inside_bin(self.rows, self.times)


def inside_bin(rows: torch.Tensor, times: tuple[float, float] | None) -> Floats:
    """A copy of the rows, with times clipped to the ends of their bin."""
    values: Floats = rows.numpy().copy()
    if times is not None:
        values[:, -1] = np.clip(values[:, -1], *times)
    return values


@final
@dataclass(frozen=True)
class Matching:
    """The settings of the descent, by the names of the paper."""

    kind: Kind
    inputs: tuple[int, ...]
    """Shape of one row."""
    width: int
    iterations: int
    group_size: float
    clip: float
    noise_multiplier: float
    step: float
    anneal: bool
    """Whether the step falls linearly to zero over the iterations."""
    together: int

    def descend(self, groups: Sequence[Group], generator: torch.Generator) -> None:
        """All iterations, over all groups."""
        for iteration in range(self.iterations):
            step = self.step * (1.0 - iteration / self.iterations if self.anneal else 1.0)
            features = extractor(self.kind, self.inputs, self.width, generator)
            for group in groups:
                if not len(group.rows):
                    continue
                look = Look(features, self._augmentation(generator), self.inputs)
                wanted = group.part.poisson_sum(
                    look.at_encoded, self.clip, self.noise_multiplier, group.rate
                )
                self._move(group.rows, look, torch.from_numpy(wanted).float(), step, generator)

    def loss(self, rows: torch.Tensor, look: Look, wanted: torch.Tensor) -> torch.Tensor:
        """Squared distance of L / M times the clipped features' sum from the noisy one."""
        features = look(rows)
        norms = features.norm(dim=1, keepdim=True).clamp_min(1e-12)
        clipped = features * (self.clip / norms).clamp_max(1.0)
        distance: torch.Tensor = self.group_size / len(rows) * clipped.sum(dim=0) - wanted
        return distance.square().sum()

    def _move(
        self,
        rows: torch.Tensor,
        look: Look,
        wanted: torch.Tensor,
        step: float,
        generator: torch.Generator,
    ) -> None:
        turn = torch.arange(len(rows))
        if len(rows) > self.together:
            turn = torch.randperm(len(rows), generator=generator)[: self.together]
        moving = rows[turn].requires_grad_(True)
        (gradient,) = torch.autograd.grad(self.loss(moving, look, wanted), moving)
        rows[turn] = moving.detach() - step * gradient

    def _augmentation(self, generator: torch.Generator) -> Augmentation | None:
        return augmentation.draw(generator) if self.kind == "convnet" else None


@final
@dataclass(frozen=True)
class Look:
    """Features of augmented rows: what real and synthetic rows of a group are compared by."""

    features: Extractor
    augment: Augmentation | None
    inputs: tuple[int, ...]

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        shaped = rows.reshape(-1, *self.inputs)
        return self.features(shaped if self.augment is None else self.augment(shaped))

    def at_encoded(self, rows: EncodedRows) -> torch.Tensor:
        """The per-row function for the kernel."""
        with torch.no_grad():
            return self(torch.tensor(rows.values, dtype=torch.float32))
