"""Gradient descent of synthetic rows on the mean random features of real ones (DM, equation 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch

from bench import Floats, augmentation
from bench.methods._shared.extractors import Kind, extractor
from bench.methods.ndpdc._feature_matching import Look, inside_bin


@final
@dataclass(frozen=True)
class Pair:
    """Synthetic rows of one class (or stratum) beside its real rows."""

    label: int
    real: torch.Tensor
    rows: torch.Tensor
    """(rows, encoded columns); moved in place."""
    velocity: torch.Tensor
    """Momentum of each row."""
    times: tuple[float, float] | None = None
    """Ends of the time bin, for survival."""

    def released(self) -> Floats:
        """The rows, with times inside their bin."""
        return inside_bin(self.rows, self.times)


@final
@dataclass(frozen=True)
class Descent:
    """The settings of the descent."""

    kind: Kind
    inputs: tuple[int, ...]
    """Shape of one row."""
    width: int
    iterations: int
    batch: int
    step: float
    momentum: float
    together: int

    def descend(self, pairs: Sequence[Pair], generator: torch.Generator) -> None:
        """All iterations, over all classes that have both kinds of rows."""
        both = [pair for pair in pairs if len(pair.rows) and len(pair.real)]
        for _ in range(self.iterations):
            features = extractor(self.kind, self.inputs, self.width, generator)
            for pair in both:
                augment = augmentation.draw(generator) if self.kind == "convnet" else None
                look = Look(features, augment, self.inputs)
                with torch.no_grad():
                    wanted = look(_some(pair.real, self.batch, generator)).mean(dim=0)
                self.move(pair, look, wanted, generator)

    def move(
        self, pair: Pair, look: Look, wanted: torch.Tensor, generator: torch.Generator
    ) -> None:
        """One step of SGD with momentum; of `together` rows, where there are more.

        The gradient in one row has a factor 1 / M, which is taken out: a row moves as far in a
        release of 1,000 rows as in one of 10.
        """
        turn = torch.arange(len(pair.rows))
        if len(turn) > self.together:
            turn = torch.randperm(len(turn), generator=generator)[: self.together]
        moving = pair.rows[turn].requires_grad_(True)
        (gradient,) = torch.autograd.grad(loss(moving, look, wanted), moving)
        velocity = self.momentum * pair.velocity[turn] + len(turn) * gradient
        pair.velocity[turn] = velocity
        pair.rows[turn] = moving.detach() - self.step * velocity


def loss(rows: torch.Tensor, look: Look, wanted: torch.Tensor) -> torch.Tensor:
    """Squared distance of the mean features from `wanted` (equation 3)."""
    apart: torch.Tensor = look(rows).mean(dim=0) - wanted
    return apart.square().sum()


def _some(rows: torch.Tensor, count: int, generator: torch.Generator) -> torch.Tensor:
    """A random mini-batch without replacement; all rows where there are not more."""
    if len(rows) <= count:
        return rows
    return rows[torch.randperm(len(rows), generator=generator)[:count]]
