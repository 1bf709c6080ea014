"""Hermite features: an ordered, truncated feature map of the Gaussian kernel, of norm at most 1.

Mehler's formula expands the Gaussian kernel in one dimension (Vinaroz et al. 2022): for
0 < rho < 1 and physicists' Hermite polynomials H_c,

    exp(-rho / (1 - rho^2) (x - y)^2) = sum over c >= 0 of phi_c(x) phi_c(y),
    phi_c(x) = (1 - rho^2)^(1/4) sqrt(rho^c / (2^c c!)) H_c(x) exp(-rho / (1 + rho) x^2).

They are computed by the recursion of the polynomials,

    phi_(c+1)(x) = sqrt(2 rho / (c+1)) x phi_c(x) - rho sqrt(c / (c+1)) phi_(c-1)(x).

At x = y the sum is 1. Its terms are squares, so that the features up to any order C have norm at
most 1, for every x: truncation costs accuracy and never privacy.

Every column of the schema gets a vector of norm at most 1: a number its features up to order C, a
categorical column its one-hot code. On these stand two kernels:

* sum: the D columns' vectors side by side, divided by sqrt(D): the mean of the columns' kernels.
* product: the tensor product of the vectors of a few columns, whose norm is the product of theirs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from bench import Block, Categorical, Encoder

if TYPE_CHECKING:
    import torch


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
