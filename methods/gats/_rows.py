"""Constituents, coefficients and combinations of GATS."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench import Encoder, Numeric

Array = npt.NDArray[np.float64]
Single = npt.NDArray[np.float32]
Index = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_ROOM = 4
"""If there are this many times more numbers than are drawn, few are repeated."""


@final
@dataclass(frozen=True)
class Pools:
    """Positions of the rows of each batch and class, in an order that keeps them together."""

    order: Index
    """Positions in the table, by batch, then class."""
    starts: Index
    """(batches, classes): where a class begins in `order`."""
    sizes: Index
    """(batches, classes): number of rows."""

    @classmethod
    def cut(
        cls,
        labels: npt.NDArray[np.integer],
        classes: int,
        batch: int | None,
        rng: np.random.Generator,
    ) -> Pools:
        """Cut the rows at random into batches of at most `batch` rows, as equal as can be."""
        count = 1 if batch is None else math.ceil(len(labels) / batch)
        batch_of = np.empty(len(labels), dtype=np.int64)
        for number, members in enumerate(np.array_split(rng.permutation(len(labels)), count)):
            batch_of[members] = number
        keys = batch_of * classes + labels
        sizes = np.bincount(keys, minlength=count * classes).reshape(count, classes)
        starts = (np.cumsum(sizes) - sizes.ravel()).reshape(count, classes)
        return cls(np.argsort(keys, kind="stable"), starts, sizes)

    def batches(self, labels: Index, rng: np.random.Generator) -> Index:
        """A random batch for each row to be made, among those that hold its class."""
        chosen = np.empty(len(labels), dtype=np.int64)
        for label in np.unique(labels):
            here = labels == label
            chosen[here] = rng.choice(np.flatnonzero(self.sizes[:, label]), size=here.sum())
        return chosen

    def same_class(
        self, batches: Index, labels: Index, count: int, rng: np.random.Generator
    ) -> Index:
        """`count` rows of the same class in the same batch."""
        chosen = subsets(self.sizes[batches, labels], count, rng)
        index: Index = self.order[self.starts[batches, labels][:, None] + chosen]
        return index

    def foreign_sizes(self, batches: Index, labels: Index) -> Index:
        """Number of rows of other classes in the batch."""
        sizes: Index = self.sizes.sum(axis=1)[batches] - self.sizes[batches, labels]
        return sizes

    def foreign(self, batches: Index, labels: Index, count: int, rng: np.random.Generator) -> Index:
        """`count` rows of other classes in the same batch; any rows where there are none."""
        chosen = subsets(self.foreign_sizes(batches, labels), count, rng)
        begin = self.starts[batches, 0][:, None]
        # A batch is one piece of `order`, and the class being made is skipped.
        before = self.starts[batches, labels][:, None] - begin
        skip = np.where(chosen >= before, self.sizes[batches, labels][:, None], 0)
        index: Index = self.order[np.minimum(begin + chosen + skip, len(self.order) - 1)]
        return index

    def too_small(self, same_class: int, foreign: int) -> Flags:
        """Classes that are drawn with replacement in some batch."""
        others = self.sizes.sum(axis=1, keepdims=True) - self.sizes
        short = (self.sizes < same_class) | ((others > 0) & (others < foreign))
        flags: Flags = (short & (self.sizes > 0)).any(axis=0)
        return flags


def subsets(sizes: Index, count: int, rng: np.random.Generator) -> Index:
    """For each size s, `count` distinct numbers below s; with repetition where s < count.

    Every ordered choice is equally likely.
    """
    chosen = rng.integers(0, np.maximum(sizes, 1)[:, None], size=(len(sizes), count))
    roomy = sizes >= _ROOM * count
    _redraw(chosen, sizes, np.flatnonzero(roomy), rng)
    tight = ~roomy & (sizes >= count)
    if tight.any():
        chosen[tight] = _floyd(sizes[tight], count, rng)
    return chosen


def _redraw(chosen: Index, sizes: Index, rows: Index, rng: np.random.Generator) -> None:
    """Draw repeated numbers again until none is left.

    No number is treated unlike another, so that every ordered choice of distinct ones is equally
    likely in the end.
    """
    while rows.size:
        order = np.argsort(chosen[rows], axis=1, kind="stable")
        ordered = np.take_along_axis(chosen[rows], order, axis=1)
        row, place = np.nonzero(ordered[:, 1:] == ordered[:, :-1])
        chosen[rows[row], order[row, place + 1]] = rng.integers(0, sizes[rows[row]])
        rows = rows[np.unique(row)]


def _floyd(sizes: Index, count: int, rng: np.random.Generator) -> Index:
    """Floyd's algorithm (Bentley and Floyd, Communications of the ACM 30:754, 1987), by columns.

    Its cost does not depend on how close `count` is to the sizes. Its order is not random, so that
    columns are shuffled in the end.
    """
    chosen = np.empty((len(sizes), count), dtype=np.int64)
    for step in range(count):
        last = sizes - count + step
        drawn = rng.integers(0, last + 1)
        taken = (chosen[:, :step] == drawn[:, None]).any(axis=1)
        chosen[:, step] = np.where(taken, last, drawn)
    return rng.permuted(chosen, axis=1)


def dirichlet(shape: tuple[int, ...], concentration: float, rng: np.random.Generator) -> Array:
    """Rows of coefficients from Dirichlet(a, ..., a): gamma numbers of shape a, over their sum.

    A gamma number of a small shape underflows to zero, often a whole row of them. Its logarithm
    does not: gamma(a) is gamma(1 + a) times U^(1 / a) (Marsaglia and Tsang, ACM Transactions on
    Mathematical Software 26:363, 2000, section 6).
    """
    if concentration == 1.0:
        weights = rng.standard_exponential(shape)
    elif concentration > 1.0:
        weights = rng.standard_gamma(concentration, shape)
    else:
        logarithm = np.log(rng.standard_gamma(1.0 + concentration, shape))
        logarithm -= rng.standard_exponential(shape) / concentration
        weights = np.exp(logarithm - logarithm.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


def normalised_uniform(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Rows of uniform numbers over their sum."""
    weights: Array = 1.0 - rng.random(shape)  # in (0, 1]: the sum is never zero
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


def mixup(shape: tuple[int, ...], concentration: float, rng: np.random.Generator) -> Array:
    """Rows of coefficients of mixup, iterated over the constituents in their order.

    x <- lambda x + (1 - lambda) x_i for i = 2, ..., N, each lambda from Beta(a, a) (Zhang et al.,
    mixup, section 2, repeated): later constituents weigh more, the last one 1/2 on average.
    """
    kept = np.ones(shape)
    kept[:, 1:] = rng.beta(concentration, concentration, size=(shape[0], shape[1] - 1))
    # What a constituent brings is multiplied by every lambda drawn after it.
    later = np.cumprod(kept[:, ::-1], axis=1)[:, ::-1]
    weights: Array = np.empty(shape)
    weights[:, :-1] = later[:, 1:]
    weights[:, -1] = 1.0
    weights[:, 1:] *= 1.0 - kept[:, 1:]
    return weights


def stick_breaking(shape: tuple[int, ...], concentration: float, rng: np.random.Generator) -> Array:
    """Rows of coefficients of a stick that is broken N - 1 times, the last constituent first.

    Each piece is a share from Beta(1, a) of what is left (Sethuraman, Statistica Sinica 4:639,
    1994); the first constituent gets the rest.
    """
    broken = np.ones(shape)
    broken[:, :-1] = rng.beta(1.0, concentration, size=(shape[0], shape[1] - 1))
    left = np.ones(shape)
    left[:, 1:] = np.cumprod(1.0 - broken[:, :-1], axis=1)
    weights: Array = np.ascontiguousarray((left * broken)[:, ::-1])
    return weights


@final
@dataclass(frozen=True)
class Combiner:
    """Equations 1 and 3 on encoded rows."""

    values: Array
    encoder: Encoder
    numeric: Flags
    by_weight: bool
    """Whether constituents vote in discrete columns with their coefficients, or one vote each."""

    @classmethod
    def of(cls, values: Array, encoder: Encoder, *, by_weight: bool = False) -> Combiner:
        """Combiner of these encoded rows."""
        numeric = np.zeros(encoder.width, dtype=bool)
        for block in encoder.blocks:
            numeric[block.slice] = isinstance(block.column, Numeric)
        return cls(values, encoder, numeric, by_weight)

    def combine(self, index: Index, weights: Array) -> Single:
        """One row per row of `index`: convex in numeric columns, a majority in the others."""
        made = np.empty((len(index), len(self.numeric)), dtype=np.float32)
        made[:, self.numeric] = self._sums(index, weights, self.numeric)
        # Heads count whole; the coefficients, less than a head in all, only break ties.
        heads = weights if self.by_weight else 1.0 + weights / 2.0
        votes = self._sums(index, heads, ~self.numeric)
        positions = np.cumsum(~self.numeric) - 1
        for block in self.encoder.blocks:
            if self.numeric[block.start]:
                continue
            cast = votes[:, positions[block.start] : positions[block.stop - 1] + 1]
            if block.stop - block.start == 1:
                made[:, block.start] = np.where(cast[:, 0] >= 0.0, 1.0, -1.0)
            else:
                made[:, block.slice] = 0.0
                made[np.arange(len(made)), block.start + np.argmax(cast, axis=1)] = 1.0
        return made

    def _sums(self, index: Index, weights: Array, columns: Flags) -> Array:
        """Weighted sums of real rows, by a sparse product: no array of rows x N x columns."""
        from scipy.sparse import csr_array

        count = index.shape[1]
        pointers = np.arange(0, index.size + 1, count)
        matrix = csr_array(
            (weights.ravel(), index.ravel(), pointers), shape=(len(index), len(self.values))
        )
        sums: Array = matrix @ self.values[:, columns]
        return sums
