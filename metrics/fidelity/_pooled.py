"""Training rows and released rows side by side, weighted to the same population.

A release with as many rows of each class as of any other would differ from the training rows in
every column correlated with the class, without being wrong. Released rows are therefore weighted to
the real class shares (within a class by the release's own weights): what is compared is the
population that the release represents. A class that the release lacks is left out of the shares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import pandas as pd

from bench import Column, Evaluation, Floats, Integers, NotComputable
from bench.metrics._shared.bootstrap import Array, Estimate, GroupedRows, jointly
from bench.metrics._shared.rows import positive_rows, real_training_rows, row_weights

RESAMPLES = 200
"""Each resample of these metrics passes over all columns; 200 give the ends of an interval."""

ColumnStatistic = Callable[[Array], Array]
"""(rows, resamples) signed weights in, (distances, resamples) out. Released rows weigh positively,
training rows negatively, each sums to one."""

WEIGHTS_AND_INTERVAL = (
    "Released rows are weighted to the real class shares, times their own weights. Interval: "
    "200 bootstrap resamples of both tables (released rows within class), corrected for the "
    "inflation of distances between resamples."
)


GROUPS = 100
"""Groups of the training rows, and of the released rows of all classes together."""

LEAST_GROUPS = 10
"""Groups of a class: fewer would make the interval too narrow, by 1 / (2 groups) of its length."""

_CELLS = 2**21
"""Sums of products held at a time, for all groups and for all resamples."""

GROUPED_INTERVAL = (
    "Interval: 200 bootstrap resamples of both tables, of rows in up to 100 random groups "
    "(released rows within class), corrected for the inflation of distances between resamples."
)


def class_shares(labels: Integers, real: Sequence[int]) -> Array:
    """Share of the class of each row in the training rows, among the classes that are present."""
    present = np.bincount(labels, minlength=len(real)) > 0
    shares = np.where(present, real, 0)
    if not shares.sum():
        raise NotComputable("every released row has a class that no training row has")
    result: Array = (shares / shares.sum())[labels]
    return result


@final
@dataclass(frozen=True)
class PooledRows:
    """Training rows, then released rows with a positive weight."""

    frame: pd.DataFrame
    strata: Integers
    """0 for a training row, 1 + class for a released one."""
    weights: Array
    """Weights of the released rows, as released."""
    shares: Array
    """Declared share of the class of each released row."""

    @property
    def real(self) -> int:
        """Number of training rows."""
        return len(self.frame) - len(self.weights)

    @property
    def released_weights(self) -> Array:
        """Weights of the released rows: class share times weight within the class, of sum one."""
        ones = np.ones((len(self.frame), 1))
        result: Array = self.signed(ones)[self.real :, 0]
        return result

    @property
    def effective(self) -> float:
        """Kish's effective number of released rows, 1 / sum of squared weights that sum to one.

        That many rows of equal weight would have a mean of the same variance.
        """
        return float(1.0 / np.square(self.released_weights).sum())

    def numbers(self, name: str) -> Array:
        """A numeric column of all rows."""
        values: Array = self.frame[name].to_numpy(dtype=np.float64)
        return values

    def codes(self, name: str) -> Integers:
        """A categorical column of all rows, coded by the declared order."""
        return self.frame[name].cat.codes.to_numpy().astype(np.int64)

    def signed(self, counts: Array) -> Array:
        """Weights of a resample: training rows sum to -1, released rows to 1."""
        signed = np.empty_like(counts)
        signed[: self.real] = counts[: self.real] / -self.real
        labels = self.strata[self.real :] - 1
        released = counts[self.real :] * self.weights[:, None]
        for label in np.unique(labels):
            members = labels == label
            # Drawn within class, and all weights are positive: no class is lost in a resample.
            released[members] *= self.shares[members][0] / released[members].sum(axis=0)
        signed[self.real :] = released / released.sum(axis=0)
        return signed


def feature_columns(evaluation: Evaluation) -> list[Column]:
    """Features, and the time of a survival task."""
    return [block.column for block in evaluation.dataset.encoder.blocks]


def pooled(evaluation: Evaluation) -> PooledRows:
    """The rows that the fidelity metrics of one release compare."""

    def build() -> PooledRows:
        dataset, rows = evaluation.dataset, evaluation.rows
        real_training_rows(evaluation)
        kept = positive_rows(evaluation)
        real = decoded_train(evaluation)
        labels = np.asarray(rows.labels, dtype=np.int64)[kept]
        return PooledRows(
            pd.concat([real, evaluation.decoded.iloc[kept]], ignore_index=True),
            np.concatenate([np.zeros(len(real), dtype=np.int64), 1 + labels]),
            row_weights(rows)[kept],
            class_shares(labels, dataset.training_class_counts),
        )

    return evaluation.shared("pooled", build)


def decoded_train(evaluation: Evaluation) -> pd.DataFrame:
    """Training rows as a reader would see them if they were released: clipped, filled, rounded."""
    dataset = evaluation.dataset
    train = dataset.train.rows
    return evaluation.reference(
        "fidelity/decoded",
        lambda rng: dataset.encoder.decode(train.values, train.labels, complete=True),
    )


def mean_over_columns(
    evaluation: Evaluation, statistics: Sequence[ColumnStatistic]
) -> tuple[list[Estimate], Array]:
    """Means of statistics over columns with their resamples, and each column's values.

    The values are (columns, statistics); the resamples are the same for all metrics of a release.
    """
    rows = pooled(evaluation)

    def mean(counts: Array) -> Array:
        signed = rows.signed(counts)
        total = statistics[0](signed)
        for statistic in statistics[1:]:
            total += statistic(signed)
        return total / len(statistics)

    rng = evaluation.generator("bootstrap/fidelity")
    means = list(jointly(mean, rows.strata, rng, RESAMPLES).each())
    ones = rows.signed(np.ones((len(rows.frame), 1)))
    return means, np.array([statistic(ones)[:, 0] for statistic in statistics])


# Rows in groups ----------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class GroupedTables:
    """Training rows and released rows in groups."""

    real: GroupedRows
    released: GroupedRows

    def shares(self, codes: Integers, categories: int) -> dict[str, Array]:
        """Shares of categories in both tables, as columns of a stored table."""
        return {
            "real": self.real.shares(codes, categories)[0],
            "released": self.released.shares(codes, categories)[0],
        }

    def correlations(self, values: Floats) -> Iterator[tuple[slice, slice, Array, Array]]:
        """Pearson correlations of columns, in blocks of the upper triangle.

        Blocks are (first columns, second columns, real, released), correlations of shape
        (1 + resamples, first, second). A column without variance has the correlation 0. Values are
        best given in units in which the training rows have mean 0 and variance 1.
        """
        width = values.shape[1]
        held = max(len(self.real.draws), len(self.real.starts), len(self.released.starts))
        block = max(1, _CELLS // (held * width))
        tables = [_OrderedColumns.of(side, values) for side in (self.real, self.released)]
        for start in range(0, width, block):
            first, second = slice(start, min(start + block, width)), slice(start, width)
            real, released = (table.correlations(first, second) for table in tables)
            yield first, second, real, released


@final
@dataclass(frozen=True)
class _OrderedColumns:
    """The columns of one side, in the order of its groups."""

    side: GroupedRows
    values: Floats
    mean: Array
    inverse_deviation: Array

    @classmethod
    def of(cls, side: GroupedRows, values: Floats) -> _OrderedColumns:
        mean = side.means(values)
        inverse = inverse_or_zero(side.means(values, 2) - np.square(mean))
        return cls(side, values[side.rows], mean, inverse)

    def correlations(self, first: slice, second: slice) -> Array:
        result = self.side.products(self.values[:, first], self.values[:, second])
        result -= self.mean[:, first, None] * self.mean[:, None, second]
        result *= self.inverse_deviation[:, first, None]
        result *= self.inverse_deviation[:, None, second]
        return np.clip(result, -1.0, 1.0, out=result)


def inverse_or_zero(variance: Array) -> Array:
    """One over the square root, zero where there is no variance beyond rounding."""
    result = np.zeros_like(variance)
    np.divide(1.0, np.sqrt(np.maximum(variance, 0.0)), out=result, where=variance > 1e-12)
    return result


def grouped_tables(evaluation: Evaluation, resamples: int = RESAMPLES) -> GroupedTables:
    """Both tables in groups, the same for every metric of a release.

    Rows are assigned at random within table and class; released groups are weighted back to the
    real class shares in each resample, as the rows are.
    """
    return evaluation.shared(
        ("groups", resamples),
        lambda: _build(pooled(evaluation), evaluation.generator("bootstrap/groups"), resamples),
    )


def _build(rows: PooledRows, rng: np.random.Generator, resamples: int) -> GroupedTables:
    released = rows.released_weights
    all_weights = np.concatenate([np.full(rows.real, 1.0 / rows.real), released])
    classes = np.unique(rows.strata[rows.real :])
    least = max(LEAST_GROUPS, GROUPS // len(classes))
    return GroupedTables(
        GroupedRows.dealt(rows.strata, all_weights, {0: GROUPS}, rng, resamples, float(rows.real)),
        GroupedRows.dealt(
            rows.strata,
            all_weights,
            {int(number): least for number in classes},
            rng,
            resamples,
            rows.effective,
        ),
    )
