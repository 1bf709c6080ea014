"""Gradient boosting with trees of depth 3, for attacks that fit many small models.

XGBoost's trees without penalties (`reg_lambda` and `min_child_weight` 0), in a compiled loop that
takes rows in bins: up to some thousand rows, most of XGBoost's time goes to everything but the
search for splits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench import Floats
from bench.metrics._shared.bootstrap import Array

ROUNDS = 100
RATE = 0.1
"""Trees and learning rate of both attacks of the zero-order paper (sections 4.5 and 4.6)."""

MOST_BINS = 256
"""Bins of a column whose values are too many to be split between any two of them."""


@final
@dataclass(frozen=True)
class BinnedRows:
    """Rows of numbers, each column in bins; several one-hot columns can be one group of bins."""

    bins: npt.NDArray[np.integer]
    """(rows, groups), numbered through all groups."""
    starts: npt.NDArray[np.intp]
    """First bin of each group, and the number of all bins."""
    ordered: npt.NDArray[np.bool_]
    """Whether a group is a column of numbers, not one of one-hot categories."""
    columns: npt.NDArray[np.intp]
    """Column of the table that tells whether a row is in this bin, or above it."""
    lowest: npt.NDArray[np.float32]
    highest: npt.NDArray[np.float32]
    """Least and greatest value in each bin."""

    @classmethod
    def of(
        cls, values: Floats, exact: bool, one_hot: Sequence[slice] = (), most: int = MOST_BINS
    ) -> BinnedRows:
        """One bin per value where `exact`, otherwise at most so many, of about as many rows each.

        `one_hot` are columns of which one is 1 and the others are 0 in every row.
        """
        values = np.asarray(values, dtype=np.float32)
        if not np.isfinite(values).all():
            raise ValueError("trees are grown from finite numbers; a value is missing or infinite")
        together = {place.start: place for place in one_hot}
        codes, ordered, columns, lowest, highest = [], [], [], [], []
        column = 0
        while column < values.shape[1]:
            if column in together:
                place = together[column]
                codes.append(values[:, place].argmax(axis=1))
                ordered.append(False)
                columns.append(np.arange(place.start, place.stop))
                lowest.append(np.zeros(place.stop - place.start, dtype=np.float32))
                highest.append(lowest[-1])
                column = place.stop
                continue
            distinct, code, counts = np.unique(
                values[:, column], return_inverse=True, return_counts=True
            )
            low = high = distinct
            if not exact and len(distinct) > most:
                # The middle of each value's ranks decides: equal values share a bin.
                middle = np.cumsum(counts) - 0.5 * counts
                target = np.unique((middle * (most / len(values))).astype(np.intp))
                of_value = np.searchsorted(target, (middle * (most / len(values))).astype(np.intp))
                first = np.flatnonzero(np.r_[True, of_value[1:] != of_value[:-1]])
                low, high = distinct[first], distinct[np.r_[first[1:] - 1, len(distinct) - 1]]
                code = of_value[code]
            codes.append(code)
            ordered.append(True)
            columns.append(np.full(len(low), column))
            lowest.append(low)
            highest.append(high)
            column += 1
        starts = np.cumsum([0, *(len(part) for part in columns)])
        kind = np.uint16 if starts[-1] < 2**16 else np.uint32
        numbered = [code + start for code, start in zip(codes, starts[:-1], strict=True)]
        return cls(
            np.column_stack(numbered).astype(kind),
            starts.astype(np.intp),
            np.array(ordered),
            np.concatenate(columns).astype(np.intp),
            np.concatenate(lowest),
            np.concatenate(highest),
        )

    def take(self, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> BinnedRows:
        """Some of the rows, in the same bins."""
        return BinnedRows(
            np.ascontiguousarray(self.bins[rows]),
            self.starts,
            self.ordered,
            self.columns,
            self.lowest,
            self.highest,
        )

    def groups_beside(self, columns: slice) -> npt.NDArray[np.intp]:
        """All groups that are not made of these columns."""
        first = self.columns[self.starts[:-1]]
        return np.flatnonzero((first < columns.start) | (first >= columns.stop))


@final
@dataclass(frozen=True)
class ShallowTrees:
    """Trees of depth 3 as arrays; nodes are numbered level by level."""

    features: npt.NDArray[np.intp]
    """(trees, 7): column that each node compares."""
    thresholds: npt.NDArray[np.float32]
    """A row goes left where its value is below; infinity where the tree has no such node."""
    leaves: npt.NDArray[np.float32]
    """(trees, 8), from left to right."""

    def sums(self, columns: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Sum of leaves of each row of a (columns, rows) table."""
        from bench.metrics._shared import tree_kernel

        sums = np.zeros(columns.shape[1], dtype=np.float32)
        tree_kernel.add_leaves(columns, self.features, self.thresholds, self.leaves, sums)
        return sums


@final
@dataclass(frozen=True)
class Boosted:
    """Trees, and what they say about the rows they were grown from."""

    trees: ShallowTrees
    predictions: Array


def grow(
    rows: BinnedRows,
    target: Array,
    weights: Array | None = None,
    groups: npt.NDArray[np.intp] | None = None,
    logistic: bool = False,
    rounds: int = ROUNDS,
) -> Boosted:
    """Boost the squared error of a target, or the log-likelihood of a 0/1 one, from zero on.

    `groups` are the groups of columns that the trees may split; by default all. The predictions of
    a `logistic` model are log-odds.
    """
    from bench.metrics._shared import tree_kernel

    count = len(rows.bins)
    chosen = np.full((rounds, 7), -1, dtype=np.intp)
    thresholds = np.full((rounds, 7), np.inf, dtype=np.float32)
    leaves = np.zeros((rounds, 8), dtype=np.float32)
    predictions = tree_kernel.grow(
        np.ascontiguousarray(rows.bins),
        rows.starts,
        rows.ordered,
        np.arange(rows.bins.shape[1]) if groups is None else groups,
        rows.lowest,
        rows.highest,
        np.ascontiguousarray(target, dtype=np.float64),
        np.ones(count) if weights is None else np.ascontiguousarray(weights, dtype=np.float64),
        logistic,
        rounds,
        RATE,
        chosen,
        thresholds,
        leaves,
    )
    features = np.where(chosen < 0, 0, rows.columns[chosen])
    trees = ShallowTrees(features, thresholds, leaves)
    return Boosted(trees, np.asarray(predictions, dtype=np.float64))
