"""Public bins of every feature, and noisy counts in them: what teachers and pools are made from.

Bins come from the schema alone. A category is a bin; so is each value of an integer column with at
most 128 of them. Any other numeric column is cut into equal widths, once more at halves of halves
towards both bounds, and at the bounds themselves: amounts that are mostly zero, and values recorded
as "this or more", are common in clinical tables, and equal widths would mix them with their
neighbours. Empty bins cost nothing: the noise on a count does not depend on how many there are.
But sums over many of them have more, so that small tables are cut coarsely: into 16 widths.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench import Block, EncodedRows, Encoder, Floats, Numeric, PrivateData

Array = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]

FINE, COARSE = (32, 10, 128), (16, 0, 16)
"""Equal widths, halvings towards each bound, and how many integers have a bin each."""
_BOUND = 1e-6
"""Width of a bound's own bin, as a share of the range, where numbers are no integers."""


@final
@dataclass(frozen=True)
class ColumnBins:
    """The bins of one column."""

    block: Block
    edges: Array
    """Inner edges in encoded units, of a numeric column; empty for categories."""

    @classmethod
    def of(cls, block: Block, coarse: bool = False) -> ColumnBins:
        """Bins by the schema."""
        column = block.column
        if not isinstance(column, Numeric):
            return cls(block, np.empty(0))
        span = column.high - column.low
        widths, halvings, integers = COARSE if coarse else FINE
        if column.integer and span < integers:
            inner = np.arange(span)
        else:
            halves = span * 2.0 ** -np.arange(1.0, halvings + 1.0)
            inner = np.concatenate([np.arange(1, widths) * span / widths, halves, span - halves])
            bound = 0.0 if column.integer else _BOUND * span
            inner = np.concatenate([inner, [bound, span - 1.0 if column.integer else span - bound]])
        if column.integer:
            # Between two integers, so that each belongs to one bin, however the number is rounded.
            inner = np.floor(inner) + 0.5
        return cls(block, np.unique(np.round(2.0 * inner / span - 1.0, 12)))

    @property
    def ordered(self) -> bool:
        """True where neighbouring bins are alike."""
        return isinstance(self.block.column, Numeric)

    @property
    def count(self) -> int:
        """Number of bins."""
        if self.ordered:
            return len(self.edges) + 1
        return max(2, self.block.stop - self.block.start)

    def codes(self, values: Floats) -> Codes:
        """The bin of each row; rows are as the encoder makes them, one category each.

        Any other row gets some bin as well: an error would say that it is there.
        """
        own = values[:, self.block.slice]
        if self.ordered:
            return np.searchsorted(self.edges, own[:, 0]).astype(np.int64)
        if own.shape[1] == 1:
            return (own[:, 0] >= 0).astype(np.int64)
        # Many times faster than the largest entry of each row.
        number = own @ np.arange(own.shape[1], dtype=own.dtype)
        return np.rint(np.clip(number, 0, own.shape[1] - 1)).astype(np.int64)

    def fill(self, values: Array, codes: Codes, rng: np.random.Generator) -> None:
        """Write a value of its bin into each row; even within the bin, whole where declared so."""
        block = self.block
        if not self.ordered:
            if block.stop - block.start == 1:
                values[:, block.start] = 2.0 * codes - 1.0
            else:
                values[np.arange(len(codes)), block.start + codes] = 1.0
            return
        column = block.column
        assert isinstance(column, Numeric)
        low = np.concatenate([[-1.0], self.edges])[codes]
        high = np.concatenate([self.edges, [1.0]])[codes]
        drawn = low + (high - low) * rng.random(len(codes))
        # The bins at the bounds stand for the bounds themselves.
        drawn = np.where(codes == 0, -1.0, np.where(codes == self.count - 1, 1.0, drawn))
        if column.integer:
            span = column.high - column.low
            drawn = 2.0 * np.rint((drawn + 1.0) / 2.0 * span) / span - 1.0
        values[:, block.start] = drawn


@final
@dataclass(frozen=True)
class Grid:
    """The bins of all features."""

    encoder: Encoder
    columns: tuple[ColumnBins, ...]

    @classmethod
    def of(cls, encoder: Encoder, coarse: bool = False) -> Grid:
        """Bins of every feature, by the schema; fewer of them for a small table."""
        features = encoder.blocks[: len(encoder.schema.features)]
        return cls(encoder, tuple(ColumnBins.of(block, coarse) for block in features))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of bins."""
        return tuple(column.count for column in self.columns)

    def codes(self, values: Floats) -> Codes:
        """(rows, features): the bins of each row."""
        codes = np.empty((len(values), len(self.columns)), dtype=np.int64, order="F")
        for number, column in enumerate(self.columns):
            codes[:, number] = column.codes(values)
        return codes

    def values(self, codes: Codes, rng: np.random.Generator) -> Array:
        """Encoded rows that lie in these bins."""
        values = np.zeros((len(codes), self.encoder.width))
        for number, column in enumerate(self.columns):
            column.fill(values, codes[:, number], rng)
        return values


@final
@dataclass(frozen=True)
class ClassCounts:
    """Noisy counts of every feature's bins within every class."""

    grid: Grid
    counts: tuple[Array, ...]
    """(classes, bins) of each feature."""
    deviation: float
    """Of the noise on one count."""
    declared: tuple[int, ...]
    """Rows of each class, as declared."""

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.counts[0])

    def totals(self, column: int) -> Array:
        """Noisy counts of a feature's bins, all classes together."""
        return np.asarray(self.counts[column].sum(axis=0))

    def shares(self, column: int) -> Array:
        """(classes, bins): how each class is spread over the bins, and rather too widely.

        Counts within one deviation of zero are taken for noise: a column of a hundred empty bins
        would otherwise be drawn from them. What a class does not say is filled in from all classes
        together, which weigh as much as one deviation. For rows that a teacher labels: some that
        lie where nobody is cost little, and show what it knows of rare values. (Birmingham of
        `curial-sim`, control rows, IPC 100: trees 0.889, and 0.882 by the nearest counts.)
        """
        every = _spread(self.totals(column), math.sqrt(self.classes) * self.deviation)
        own = np.where(self.counts[column] > self.deviation, self.counts[column], 0.0)
        return self._filled(own, every)

    def nearest(self, column: int) -> Array:
        """The same by the nearest counts that are possible.

        For rows that have their label from the counts: those that noise made up would be wrong.
        """
        every = simplex(self.totals(column), float(sum(self.declared)))
        own = [
            simplex(row, float(size))
            for row, size in zip(self.counts[column], self.declared, strict=True)
        ]
        return self._filled(np.stack(own), every / every.sum())

    def _filled(self, own: Array, every: Array) -> Array:
        mixed = own + self.deviation * every
        return np.asarray(mixed / mixed.sum(axis=1, keepdims=True))


def _spread(counts: Array, deviation: float) -> Array:
    kept = np.where(counts > deviation, counts, 0.0)
    # All drowned in noise: nothing is known, so nothing is preferred.
    kept = kept if kept.sum() > 0 else np.ones_like(kept)
    return np.asarray(kept / kept.sum())


def simplex(counts: Array, total: float) -> Array:
    """The nearest counts that are not negative and sum to the declared total, at least to 1.

    Of counts with Gaussian noise that is their maximum likelihood: all lose the same, as much as
    the sum of what is left is too large.
    """
    total = max(total, 1.0)
    ranked = -np.sort(-counts)
    excess = (np.cumsum(ranked) - total) / np.arange(1, len(ranked) + 1)
    last = int(np.flatnonzero(ranked > excess)[-1])
    return np.asarray(np.maximum(counts - excess[last], 0.0))


def count_classes(private: PrivateData, grid: Grid, noise_multiplier: float) -> ClassCounts:
    """One Gaussian mechanism for all features.

    A row is counted once in each of k features, in the bin of its class: the L2 sensitivity is
    sqrt(k), and each count has noise of deviation noise_multiplier sqrt(k).
    """
    classes = len(private.schema.classes)

    def codes(rows: EncodedRows) -> Codes:
        return grid.codes(rows.values) * classes + np.asarray(rows.labels)[:, None]

    sizes = [size * classes for size in grid.sizes]
    flat = private.histograms(codes, sizes, noise_multiplier)
    deviation = noise_multiplier * math.sqrt(len(sizes))
    tables = tuple(part.reshape(-1, classes).T for part in flat)
    return ClassCounts(grid, tables, deviation, private.counts.by_class)


@final
@dataclass(frozen=True)
class Merged:
    """Bins of a grid put together, so that each holds enough rows to learn from."""

    grid: Grid
    maps: tuple[Codes, ...]
    """Of each feature, the merged bin of each fine one."""

    @classmethod
    def of(cls, counts: ClassCounts, least: float) -> Merged:
        """Neighbours are joined until they hold `least` rows; rare categories become one."""
        columns = counts.grid.columns
        maps = [
            merged_bins(counts.totals(number), column.ordered, least)
            for number, column in enumerate(columns)
        ]
        return cls(counts.grid, tuple(maps))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of merged bins."""
        return tuple(int(own.max()) + 1 for own in self.maps)

    @property
    def offsets(self) -> Codes:
        """Where each feature's bins start when all are numbered through."""
        return np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)

    def codes(self, values: Floats) -> Codes:
        """(rows, features): merged bins, numbered through all features."""
        codes, starts = self.grid.codes(values), self.offsets
        for number, own in enumerate(self.maps):
            codes[:, number] = own[codes[:, number]] + starts[number]
        return codes

    def sums(self, fine: Sequence[Array]) -> Array:
        """Of one vector a feature over fine bins: its sums over merged bins, numbered through."""
        parts = [
            np.bincount(own, weights=values, minlength=size)
            for own, values, size in zip(self.maps, fine, self.sizes, strict=True)
        ]
        return np.concatenate(parts)


def merged_bins(counts: Array, ordered: bool, least: float) -> Codes:
    """The merged bin of each fine one; see `Merged.of`."""
    kept = np.maximum(counts, 0.0)
    if not ordered:
        large = kept >= least
        return np.where(large, np.cumsum(large) - 1, large.sum()).astype(np.int64)
    merged = np.zeros(len(kept), dtype=np.int64)
    current, held = 0, 0.0
    for number, count in enumerate(kept):
        merged[number] = current
        held += count
        if held >= least and number < len(kept) - 1:
            current, held = current + 1, 0.0
    if held < least and current > 0:
        merged[merged == current] = current - 1
    return merged
