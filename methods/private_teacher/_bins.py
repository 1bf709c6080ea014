"""Public bins of every feature, noisy counts in them, and bins merged by those counts.

Bins come from the schema alone. A category is a bin. Numeric columns are cut in one of two ways:

* Tables: each value of an integer column with at most 128 of them is a bin. Any other column is cut
  into equal widths, once more at halves of halves towards both bounds, and at the bounds
  themselves: amounts that are mostly zero, and values recorded as "this or more", are common in
  clinical tables, and equal widths would mix them with their neighbours. Empty bins cost nothing,
  because the noise on a count does not depend on how many there are. But sums over many bins have
  more noise, so that small tables are cut coarsely: into 16 widths.
* Survival: equal widths between the bounds.

Merged bins are unions of bins, chosen by noisy counts, which are private answers already.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
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
"""Width of the bin of a bound, as a share of the range, where numbers are no integers."""


class ColumnBins(ABC):
    """The bins of one column."""

    block: Block

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of bins."""

    @property
    def ordered(self) -> bool:
        """True where neighbouring bins are alike."""
        return isinstance(self.block.column, Numeric)

    @abstractmethod
    def codes(self, values: Floats) -> Codes:
        """Bin of each row; rows are as the encoder makes them, one category each.

        Any other row gets some bin as well: an error would reveal that it exists.
        """

    @abstractmethod
    def fill(self, values: Array, codes: Codes, positions: Array) -> None:
        """Write a value of its bin into each row; `positions` in [0, 1) say where in the bin."""


@final
@dataclass(frozen=True)
class CategoryBins(ColumnBins):
    """One bin per category."""

    block: Block

    @property
    def count(self) -> int:
        return max(2, self.block.stop - self.block.start)

    def codes(self, values: Floats) -> Codes:
        encoded = values[:, self.block.slice]
        if encoded.shape[1] == 1:
            return (encoded[:, 0] >= 0).astype(np.int64)
        # Many times faster than the largest entry of each row.
        number = encoded @ np.arange(encoded.shape[1], dtype=encoded.dtype)
        return np.rint(np.clip(number, 0, encoded.shape[1] - 1)).astype(np.int64)

    def fill(self, values: Array, codes: Codes, positions: Array) -> None:
        if self.block.stop - self.block.start == 1:
            values[:, self.block.start] = 2.0 * codes - 1.0
        else:
            values[np.arange(len(codes)), self.block.start + codes] = 1.0


@final
@dataclass(frozen=True)
class EdgeBins(ColumnBins):
    """Bins of a numeric column of a table; the first and the last hold the bounds alone."""

    block: Block
    edges: Array
    """Inner edges in encoded units; a value on an edge belongs to the bin below."""

    @classmethod
    def of(cls, block: Block, coarse: bool = False) -> EdgeBins:
        """Bins by the schema."""
        column = _numeric(block)
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
    def count(self) -> int:
        return len(self.edges) + 1

    def codes(self, values: Floats) -> Codes:
        return np.searchsorted(self.edges, values[:, self.block.start]).astype(np.int64)

    def fill(self, values: Array, codes: Codes, positions: Array) -> None:
        low = np.concatenate([[-1.0], self.edges])[codes]
        high = np.concatenate([self.edges, [1.0]])[codes]
        inside = low + (high - low) * positions
        inside = np.where(codes == 0, -1.0, np.where(codes == self.count - 1, 1.0, inside))
        column = _numeric(self.block)
        if column.integer:
            inside = 2.0 * _whole(column, (inside + 1.0) / 2.0) - 1.0
        values[:, self.block.start] = inside


@final
@dataclass(frozen=True)
class WidthBins(ColumnBins):
    """Bins of a numeric column that are equal in width between its public bounds."""

    block: Block
    widths: int

    @property
    def count(self) -> int:
        return self.widths

    def codes(self, values: Floats) -> Codes:
        scaled = (values[:, self.block.start].astype(np.float64) + 1.0) / 2.0 * self.widths
        return np.clip(scaled, 0, self.widths - 1).astype(np.int64)

    def fill(self, values: Array, codes: Codes, positions: Array) -> None:
        column = _numeric(self.block)
        share = (codes + positions) / self.widths
        if column.integer:
            share = _whole(column, share)
        values[:, self.block.start] = 2.0 * np.clip(share, 0.0, 1.0) - 1.0


def _numeric(block: Block) -> Numeric:
    assert isinstance(block.column, Numeric)
    return block.column


def _whole(column: Numeric, share: Array) -> Array:
    """Shares of the range, moved to the integers that decoding would round them to."""
    span = column.high - column.low
    return np.asarray(np.rint(share * span) / span)


@final
@dataclass(frozen=True)
class FeatureGrid:
    """The bins of all features."""

    encoder: Encoder
    columns: tuple[ColumnBins, ...]

    @classmethod
    def of(cls, encoder: Encoder, coarse: bool = False) -> FeatureGrid:
        """Bins of a table, by the schema; fewer of them for a small table."""
        return cls._by(encoder, lambda block: EdgeBins.of(block, coarse))

    @classmethod
    def equal_widths(cls, encoder: Encoder, count: int) -> FeatureGrid:
        """`count` bins of equal width for every numeric feature."""
        return cls._by(encoder, lambda block: WidthBins(block, count))

    @classmethod
    def _by(cls, encoder: Encoder, numeric: Callable[[Block], ColumnBins]) -> FeatureGrid:
        return cls(
            encoder,
            tuple(
                numeric(block) if isinstance(block.column, Numeric) else CategoryBins(block)
                for block in encoder.feature_blocks
            ),
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of bins of each feature."""
        return tuple(column.count for column in self.columns)

    def codes(self, values: Floats) -> Codes:
        """(rows, features): the bins of each row."""
        codes = np.empty((len(values), len(self.columns)), dtype=np.int64, order="F")
        for number, column in enumerate(self.columns):
            codes[:, number] = column.codes(values)
        return codes

    def values(self, codes: Codes, positions: Array) -> Array:
        """Encoded features in these bins; `positions` (rows, features) say where in the bins."""
        values = np.zeros((len(codes), self.encoder.feature_width))
        for number, column in enumerate(self.columns):
            column.fill(values, codes[:, number], positions[:, number])
        return values

    def draw(self, codes: Codes, rng: np.random.Generator) -> Array:
        """Encoded features in these bins, uniform within each bin."""
        positions = np.zeros(codes.shape)
        for number, column in enumerate(self.columns):
            if column.ordered:
                positions[:, number] = rng.random(len(codes))
        return self.values(codes, positions)


# Counts of a table ------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class ClassCounts:
    """Noisy counts of every feature's bins within every class."""

    grid: FeatureGrid
    counts: tuple[Array, ...]
    """(classes, bins) of each feature."""
    deviation: float
    """Standard deviation of the noise on one count."""
    declared: tuple[int, ...]
    """Declared number of rows of each class."""

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.counts[0])

    def totals(self, column: int) -> Array:
        """Noisy counts of a feature's bins, summed over the classes."""
        return np.asarray(self.counts[column].sum(axis=0))

    def shares(self, column: int) -> Array:
        """(classes, bins): distribution of each class over the bins, rather too wide.

        Counts within one deviation of zero are taken for noise: a column of a hundred empty bins
        would otherwise be drawn from them. What a class lacks is filled in from all classes
        together, which weigh as much as one deviation. These shares are for rows that a teacher
        labels: some in empty regions cost little, and show what it has learned about rare values.
        (Birmingham of `curial-sim`, control rows, IPC 100: trees 0.889, and 0.882 by `nearest`.)
        """
        totals = self.totals(column)
        every = np.where(totals > math.sqrt(self.classes) * self.deviation, totals, 0.0)
        # No count exceeds the noise: nothing is known, so no bin is preferred.
        every = every if every.sum() > 0 else np.ones_like(every)
        counts = np.where(self.counts[column] > self.deviation, self.counts[column], 0.0)
        return self._filled(counts, every)

    def nearest(self, column: int) -> Array:
        """(classes, bins): distribution of each class by the nearest counts that are possible.

        For rows that have their label from the counts: bins that only noise filled would mislead.
        """
        every = nearest_counts(self.totals(column), float(sum(self.declared)))
        counts = [
            nearest_counts(row, float(size))
            for row, size in zip(self.counts[column], self.declared, strict=True)
        ]
        return self._filled(np.stack(counts), every)

    def _filled(self, counts: Array, every: Array) -> Array:
        mixed = counts + self.deviation * (every / every.sum())
        return np.asarray(mixed / mixed.sum(axis=1, keepdims=True))


def nearest_counts(counts: Array, total: float) -> Array:
    """The nearest counts that are not negative and sum to `total`, at least to 1.

    Of counts with Gaussian noise that is their maximum likelihood: all lose the same, as much as
    the sum of what is left is too large (Duchi et al., ICML 2008, figure 1).
    """
    falling = -np.sort(-counts)
    excess = (np.cumsum(falling) - max(total, 1.0)) / np.arange(1, len(falling) + 1)
    last = int(np.flatnonzero(falling > excess)[-1])
    return np.asarray(np.maximum(counts - excess[last], 0.0))


def count_classes(private: PrivateData, grid: FeatureGrid, noise_multiplier: float) -> ClassCounts:
    """Count all features by one Gaussian mechanism.

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


# Merged bins ------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class MergedBins:
    """Bins of a grid put together, so that each holds enough rows to learn from."""

    grid: FeatureGrid
    maps: tuple[Codes, ...]
    """Merged bin of each bin of the grid, for every feature."""

    @classmethod
    def by_count(cls, counts: ClassCounts, least: float) -> MergedBins:
        """Join neighbours until they hold `least` rows; rare categories become one."""
        maps = [
            merged_bins(counts.totals(number), column.ordered, least)
            for number, column in enumerate(counts.grid.columns)
        ]
        return cls(counts.grid, tuple(maps))

    @classmethod
    def by_mass(cls, grid: FeatureGrid, marginals: Sequence[Array], most: int) -> MergedBins:
        """At most `most` bins of about equal mass per numeric feature; categories as they are."""
        maps = [
            _quantile_groups(counts, most) if column.ordered else np.arange(len(counts))
            for column, counts in zip(grid.columns, marginals, strict=True)
        ]
        return cls(grid, tuple(maps))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of merged bins of each feature."""
        return tuple(int(merged.max()) + 1 for merged in self.maps)

    @property
    def offsets(self) -> Codes:
        """First bin of each feature when all are numbered through, and the number of all bins."""
        return np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)

    def merge(self, codes: Codes) -> Codes:
        """(rows, features): merged bins of rows in these bins of the grid, from 0 per feature."""
        return np.stack(
            [merged[codes[:, number]] for number, merged in enumerate(self.maps)], axis=1
        )

    def numbered(self, values: Floats) -> Codes:
        """(rows, features): merged bins of encoded rows, numbered through all features."""
        return self.merge(self.grid.codes(values)) + self.offsets[:-1]

    def sums(self, fine: Sequence[Array]) -> list[Array]:
        """Sums over merged bins of one vector per feature over the bins of the grid."""
        return [
            np.bincount(merged, weights=values, minlength=size).astype(np.float64)
            for merged, values, size in zip(self.maps, fine, self.sizes, strict=True)
        ]


def merged_bins(counts: Array, ordered: bool, least: float) -> Codes:
    """Merged bin of each bin of one feature; see `MergedBins.by_count`."""
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


def _quantile_groups(counts: Array, most: int) -> Codes:
    """Quantile group of each bin's middle; groups that no bin falls into are left out."""
    share = counts / counts.sum()
    groups = np.minimum((np.cumsum(share) - share / 2) * most, most - 1).astype(np.int64)
    _, merged = np.unique(groups, return_inverse=True)
    return merged.astype(np.int64)
