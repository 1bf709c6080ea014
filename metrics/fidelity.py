"""Do single columns of the release look like those of the training rows?

A release with as many rows of each class as of any other would differ from the training rows in
every column that goes with the class, without being wrong. Released rows are therefore weighted to
the declared class shares (within a class by the release's own weights): what is compared is the
population that the release stands for. A class that the release lacks is left out of the shares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import pandas as pd
from scipy import sparse

from bench.core.encode import Integers
from bench.core.errors import NotComputable
from bench.core.metric import Direction, Evaluation, Family, Metric, Scores
from bench.core.schema import Categorical, Column, Numeric
from bench.metrics import _bootstrap
from bench.metrics._bootstrap import Array

RESAMPLES = 200
"""Each resample of these metrics goes over all columns; 200 give the ends of an interval."""

ColumnStatistic = Callable[[Array], Array]
"""(rows, resamples) signed weights in, one distance a resample out. Released rows weigh
positively, training rows negatively, each sums to one."""


@final
class KolmogorovSmirnov(Metric):
    """Largest gap between two cumulative distributions, mean over numeric columns."""

    name: ClassVar[str] = "ks"
    family: ClassVar[Family] = Family.FIDELITY
    direction: ClassVar[Direction] = Direction.LOWER
    definition: ClassVar[str] = (
        "Two-sample Kolmogorov-Smirnov distance between training rows and released rows (fidelity "
        "paper, section 3.4), mean over numeric feature columns and the time. Released rows are "
        "weighted to the declared class shares, times their own weights. Interval: 200 bootstrap "
        "resamples of both tables (released rows within class), corrected for the inflation of "
        "distances between resamples."
    )

    def compute(self, evaluation: Evaluation) -> Scores:
        columns = [column for column in _columns(evaluation) if isinstance(column, Numeric)]
        if not columns:
            raise NotComputable("the schema declares no numeric feature column")
        pooled = _pooled(evaluation)
        statistics = [
            kolmogorov_smirnov(pooled.frame[column.name].to_numpy(dtype=np.float64))
            for column in columns
        ]
        return _compare(self, evaluation, pooled, columns, statistics)


@final
class TotalVariation(Metric):
    """Half the absolute difference of category shares, mean over categorical columns."""

    name: ClassVar[str] = "tvd"
    family: ClassVar[Family] = Family.FIDELITY
    direction: ClassVar[Direction] = Direction.LOWER
    definition: ClassVar[str] = (
        "Total variation distance, half the sum of absolute differences of category shares, "
        "between training rows and released rows, mean over categorical feature columns (the "
        "histograms of the fidelity paper's section 3.4; unlike its KL divergence finite for "
        "absent categories). Weights and interval as for ks."
    )

    def compute(self, evaluation: Evaluation) -> Scores:
        columns = [column for column in _columns(evaluation) if isinstance(column, Categorical)]
        if not columns:
            raise NotComputable("the schema declares no categorical feature column")
        pooled = _pooled(evaluation)
        statistics = [
            total_variation(pooled.frame[column.name].cat.codes.to_numpy(), len(column.categories))
            for column in columns
        ]
        return _compare(self, evaluation, pooled, columns, statistics)


def kolmogorov_smirnov(values: Array) -> ColumnStatistic:
    """The largest absolute difference of two weighted cumulative distributions.

    The signed weights sum to zero, so that the difference after a value is the sum of the weights
    up to it, or minus the sum of those above it.
    """
    levels, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    if len(levels) > len(values) // 4:
        return _smirnov_of_many(codes, len(levels))
    # Few distinct values (integers, pixels): sum by value. Rows of the commonest value, often most
    # of them, need not be touched at all: come from below to it, and from above.
    common = int(np.argmax(counts))
    rows = np.flatnonzero(codes != common)
    sums_of = sparse.csr_array(
        (np.ones(len(rows)), (codes[rows], rows)), shape=(len(levels), len(values))
    )

    def statistic(signed: Array) -> Array:
        sums = sums_of @ signed
        below = np.cumsum(sums[:common], axis=0)
        above = -np.cumsum(sums[:common:-1], axis=0)
        largest: Array = np.abs(np.concatenate([below, above])).max(axis=0, initial=0.0)
        return largest

    return statistic


def _smirnov_of_many(codes: Integers, levels: int) -> ColumnStatistic:
    """The same for values that hardly repeat: one cumulative sum over the ordered rows."""
    order = np.argsort(codes, kind="stable")
    # Distributions are compared after all rows of a value, not between tied rows.
    last = np.cumsum(np.bincount(codes, minlength=levels)) - 1

    def statistic(signed: Array) -> Array:
        gaps = np.cumsum(signed[order], axis=0)
        if len(last) < len(gaps):
            gaps = gaps[last]
        largest: Array = np.maximum(gaps.max(axis=0), -gaps.min(axis=0))
        return largest

    return statistic


def total_variation(codes: Integers, categories: int) -> ColumnStatistic:
    """Half the sum of absolute differences of weighted category shares."""
    indicator = (np.arange(categories)[:, None] == codes).astype(np.float64)

    def statistic(signed: Array) -> Array:
        total: Array = np.abs(indicator @ signed).sum(axis=0) / 2
        return total

    return statistic


def class_shares(labels: Integers, declared: Sequence[int]) -> Array:
    """Of each row: the declared share of its class among the classes that are present."""
    present = np.bincount(labels, minlength=len(declared)) > 0
    shares = np.where(present, declared, 0)
    if not shares.sum():
        raise NotComputable("the release holds rows of classes only that are declared empty")
    result: Array = (shares / shares.sum())[labels]
    return result


@final
@dataclass(frozen=True)
class _Pooled:
    """Training rows, then released rows with a positive weight."""

    frame: pd.DataFrame
    strata: Integers
    """0 for a training row, 1 + class for a released one."""
    weights: Array
    """Of the released rows, as released."""
    shares: Array
    """Of the released rows: the declared share of the class."""

    @property
    def real(self) -> int:
        """Number of training rows."""
        return len(self.frame) - len(self.weights)

    def signed(self, counts: Array) -> Array:
        """Weights of a resample: training rows sum to -1, released rows to 1."""
        signed = np.empty_like(counts)
        signed[: self.real] = counts[: self.real] / -self.real
        labels = self.strata[self.real :] - 1
        released = counts[self.real :] * self.weights[:, None]
        for label in np.unique(labels):
            own = labels == label
            # Drawn within class, and all weights are positive: no class is lost in a resample.
            released[own] *= self.shares[own][0] / released[own].sum(axis=0)
        signed[self.real :] = released / released.sum(axis=0)
        return signed


def _columns(evaluation: Evaluation) -> list[Column]:
    """Features, and the time of a survival task."""
    return [block.column for block in evaluation.dataset.encoder.blocks]


def _pooled(evaluation: Evaluation) -> _Pooled:
    def build() -> _Pooled:
        dataset, rows = evaluation.dataset, evaluation.rows
        if not len(dataset.train):
            raise NotComputable("the dataset has no training rows")
        weights = np.ones(len(rows)) if rows.weights is None else np.asarray(rows.weights, float)
        kept = weights > 0
        if not kept.any():
            raise NotComputable("every released row has weight 0")
        train = dataset.train.rows
        # As a reader would see them if they were released: clipped, filled and rounded alike.
        real = dataset.encoder.decode(train.values, train.labels)
        labels = np.asarray(rows.labels, dtype=np.int64)[kept]
        return _Pooled(
            pd.concat([real, evaluation.decoded[kept]], ignore_index=True),
            np.concatenate([np.zeros(len(real), dtype=np.int64), 1 + labels]),
            weights[kept],
            class_shares(labels, dataset.counts.by_class),
        )

    return evaluation.shared("pooled", build)


def _compare(
    metric: Metric,
    evaluation: Evaluation,
    pooled: _Pooled,
    columns: Sequence[Column],
    statistics: Sequence[ColumnStatistic],
) -> Scores:
    def mean(counts: Array) -> Array:
        signed = pooled.signed(counts)
        total = np.zeros(counts.shape[1])
        for statistic in statistics:
            total += statistic(signed)
        return total / len(statistics)

    estimate = _bootstrap.bootstrap(
        mean, pooled.strata, evaluation.generator("bootstrap/fidelity"), RESAMPLES
    )
    low, high = estimate.distance_interval
    ones = pooled.signed(np.ones((len(pooled.frame), 1)))
    table = pd.DataFrame(
        {
            "column": [column.name for column in columns],
            "kind": "numeric" if isinstance(columns[0], Numeric) else "categorical",
            "statistic": [float(statistic(ones)[0]) for statistic in statistics],
        }
    )
    return Scores((metric.score(metric.name, estimate.value, low, high),), {metric.name: table})
